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

// Names of the extension. Spec: SEP-1865, Extension Identifier, UI Resource Format.
const (
	// ID is the id of the extension.
	ID = "io.modelcontextprotocol/ui"
	// MIMEType is the type of a view.
	MIMEType = "text/html;profile=mcp-app"
	// Revision is the revision of the specification that pages and hosts speak with each other.
	Revision = "2026-01-26"
)

const (
	// metaKey is where metadata of the extension stands in `_meta`.
	metaKey = "ui"
	// flatKey is the older place of a tool's view. The specification still has it, and hosts and servers of its first
	// months know no other.
	flatKey = "ui/resourceUri"
	scheme  = "ui://"
)

// clientSettings is what a client declares.
type clientSettings struct {
	MIMETypes []string `json:"mimeTypes"`
}

// Supported reports whether the client of the request that ctx belongs to shows views. A tool may then give a shorter text.
// It is the client's own word. False outside a request.
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

// isViewType reports whether a MIME type is that of views, however it is written.
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

// Declare returns a copy of a client's options that declares the extension: the client shows views. The options may be nil.
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
