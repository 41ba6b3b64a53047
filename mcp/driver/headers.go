package driver

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/patchbay-mcp/patchbay/internal/schema"
)

// A HeaderParam is an argument of a tool that clients repeat in an HTTP header. An mcp.Transport that
// sends such headers must implement the method UsesHeaderParams(), which does nothing.
//
// Spec: basic/transports/streamable-http (2026-07-28), Custom Headers from Tool Parameters.
type HeaderParam = schema.HeaderParam

// A HeaderParamHandler is an mcp.Handler that knows the header parameters of its tools. The HTTP
// transport rejects a call whose headers and body differ. *mcp.Server implements it. R is *mcp.Request.
type HeaderParamHandler[R any] interface {
	// HeaderParams returns the header parameters of the tool that req calls, or nil for an unknown tool.
	HeaderParams(ctx context.Context, req R, tool string) []HeaderParam
}

// HeaderParamsOf returns the arguments of a tool that HTTP clients repeat in headers, from its input
// schema. If the schema or an annotation is invalid, it returns an error: clients over HTTP ignore such
// a tool.
//
// Spec: basic/transports/streamable-http (2026-07-28), Custom Headers from Tool Parameters.
func HeaderParamsOf(inputSchema json.RawMessage) ([]HeaderParam, error) {
	if !bytes.Contains(inputSchema, []byte("x-mcp-header")) {
		return nil, nil
	}
	compiled, err := schema.Compile(inputSchema)
	if err != nil {
		return nil, err
	}
	return compiled.Headers()
}
