package apps

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"mime"
	"slices"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// A ToolUI describes the view of a tool, and who may call the tool.
//
// Spec: SEP-1865, McpUiToolMeta.
type ToolUI struct {
	// View is the URI of the view that shows the tool's results, or empty.
	View string `json:"resourceUri,omitzero"`
	// Visibility lists who may see and call the tool. Default, if it is nil: the model and views.
	Visibility []Visibility `json:"visibility,omitzero"`
}

// A Visibility is a kind of caller of a tool.
type Visibility string

// The kinds of callers.
const (
	VisibilityModel Visibility = "model" // the model may see and call the tool
	VisibilityApp   Visibility = "app"   // views of the same server may call the tool
)

// ForModel reports whether the model may see and call the tool.
func (u ToolUI) ForModel() bool {
	return u.Visibility == nil || slices.Contains(u.Visibility, VisibilityModel)
}

// ForApp reports whether views of the same server may call the tool.
func (u ToolUI) ForApp() bool {
	return u.Visibility == nil || slices.Contains(u.Visibility, VisibilityApp)
}

// ToolUIOf returns the ToolUI in the metadata of a tool. If the metadata is malformed it returns an
// error, and a ToolUI that allows no caller, because the metadata may be meant to hide the tool.
//
// Spec: SEP-1865, Resource Discovery.
func ToolUIOf(t *mcp.Tool) (ToolUI, error) {
	if u, ok := t.Meta[metaKey].(ToolUI); ok {
		return u, nil // set by WithUI in the same process
	}
	u := ToolUI{}
	found, err := decodeMeta(t.Meta, &u)
	if err != nil {
		return ToolUI{Visibility: []Visibility{}}, fmt.Errorf("tool %.128q: %w", t.Name, err)
	}
	if flat, ok := t.Meta[flatKey].(string); ok && (!found || u.View == "") {
		u.View = flat
	}
	if u.View != "" {
		if err := checkURI(u.View); err != nil {
			return ToolUI{Visibility: []Visibility{}}, fmt.Errorf("tool %.128q: invalid view: %w", t.Name, err)
		}
	}
	return u, nil
}

// checkURI returns an error if uri cannot be the URI of a view: "ui://" and an opaque name.
func checkURI(uri string) error {
	if name, ok := strings.CutPrefix(uri, scheme); !ok || name == "" {
		return fmt.Errorf("invalid URI %.128q: want %s and a name", uri, scheme)
	}
	if len(uri) > maxURI {
		return fmt.Errorf("the URI has %d bytes, the limit is %d", len(uri), maxURI)
	}
	if strings.ContainsFunc(uri, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return errors.New("the URI has spaces or characters that must be percent-encoded")
	}
	return nil
}

// Constants of the extension.
//
// Spec: SEP-1865 (2026-01-26), Extension Identifier, UI Resource Format.
const (
	// ID is the identifier of the extension.
	ID = "io.modelcontextprotocol/ui"
	// MIMEType is the MIME type of a view.
	MIMEType = "text/html;profile=mcp-app"
	// Revision is the protocolVersion between pages and hosts.
	Revision = "2026-01-26"
)

const (
	// metaKey is the key of the extension's metadata in `_meta`.
	metaKey = "ui"
	// flatKey is the deprecated key of a tool's view in `_meta`. The specification still defines
	// it, and early hosts and servers support no other.
	flatKey = "ui/resourceUri"
	scheme  = "ui://"
)

// clientSettings is the value of the extension in a client's capabilities.
type clientSettings struct {
	MIMETypes []string `json:"mimeTypes"`
}

// Supported reports whether the client declared that it shows views. ctx is that of a request;
// outside a request Supported returns false. A tool may return a shorter text if the client shows
// its view.
//
// Spec: SEP-1865, Client<>Server Capability Negotiation.
func Supported(ctx context.Context) bool {
	req := mcp.RequestFrom(ctx)
	return req != nil && supports(req)
}

func supports(req *mcp.Request) bool {
	var s clientSettings
	raw := req.Capabilities().Extensions[ID]
	return raw != nil && jsonv2.Unmarshal(raw, &s) == nil && slices.ContainsFunc(s.MIMETypes, isViewType)
}

// isViewType reports whether a MIME type is equivalent to MIMEType.
func isViewType(text string) bool {
	if text == MIMEType {
		return true
	}
	kind, params, err := mime.ParseMediaType(text)
	if err != nil || kind != "text/html" || params["profile"] != "mcp-app" {
		return false
	}
	charset, ok := params["charset"]
	return !ok || strings.EqualFold(charset, "utf-8")
}

// Declare returns a copy of opts, which may be nil, for a client that shows views: it declares the
// extension io.modelcontextprotocol/ui.
//
// Spec: SEP-1865, Client (Host) Capabilities.
func Declare(opts *mcp.ClientOptions) *mcp.ClientOptions {
	var full mcp.ClientOptions
	if opts != nil {
		full = *opts
	}
	full.Extensions = maps.Clone(full.Extensions)
	if full.Extensions == nil {
		full.Extensions = map[string]json.RawMessage{}
	}
	full.Extensions[ID] = json.RawMessage(`{"mimeTypes":["` + MIMEType + `"]}`)
	return &full
}
