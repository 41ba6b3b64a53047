package apps

import (
	"context"
	"encoding/json"
	"maps"
	"mime"
	"slices"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/mcp"
)

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
	// flatKey is the deprecated key of a tool's view in `_meta`. The specification still has it,
	// and early hosts and servers support no other.
	flatKey = "ui/resourceUri"
	scheme  = "ui://"
)

// clientSettings is the value of the extension in a client's capabilities.
type clientSettings struct {
	MIMETypes []string `json:"mimeTypes"`
}

// Supported reports whether the client has declared that it shows views. ctx is that of a request;
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
