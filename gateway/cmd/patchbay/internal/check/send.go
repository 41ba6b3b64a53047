package check

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/jsonschema"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// send sends a request with the text of its params, and returns its result in the format of the newest
// revision. A result is never read from the cache of the client.
func (r *runner) send(ctx context.Context, method string, params []byte) ([]byte, error) {
	ctx = mcp.WithCallOptions(ctx, mcp.CallOptions{NoCache: true})
	var members any
	if params != nil {
		members = stdjson.RawMessage(params)
	}
	result, err := r.client.Do(ctx, method, members)
	var rpc *mcp.Error
	isMismatch := errors.As(err, &rpc) && rpc.Remote() && rpc.Code == driver.CodeHeaderMismatch
	if !isMismatch || method != driver.MethodToolsCall {
		return result, err
	}
	// The server also wants arguments as HTTP headers, which the client learns from the list of tools. It
	// did not run the tool. Spec: basic/transports/streamable-http (2026-07-28), Client Behavior.
	arguments, _ := rawjson.Get(params, "arguments")
	called, err := r.client.CallTool(ctx, toolOf(params), stdjson.RawMessage(arguments))
	if err != nil {
		return nil, err
	}
	var req mcp.Request
	return req.EncodeResult(called)
}

// toolOf returns the name in the params of tools/call. A server refuses anything but a string.
func toolOf(params []byte) string {
	name := rawjson.GetString(params, "name")
	return name
}

// outputSchema returns the output schema of a tool.
func (r *runner) outputSchema(ctx context.Context, name string) (*jsonschema.Schema, error) {
	for tool, err := range r.client.Tools(ctx) {
		if err != nil {
			return nil, fmt.Errorf("list the tools: %w", err)
		}
		if tool.Name == name && tool.OutputSchema != nil {
			return jsonschema.Compile(tool.OutputSchema)
		}
	}
	return nil, fmt.Errorf("the server lists no tool %.64q with an output schema", name)
}

// errorObject returns an error as its JSON object, to which pointers refer.
func errorObject(e *mcp.Error) []byte {
	out := append([]byte(`{"code":`), strconv.Itoa(e.Code)...)
	out = rawjson.AppendQuote(append(out, `,"message":`...), e.Message)
	if e.Data != nil {
		out = append(append(out, `,"data":`...), e.Data...)
	}
	return append(out, '}')
}
