package mcphttp

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/netx"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// RoundTrip posts a request and returns its result. If ctx ends before, it closes the response
// stream, which cancels the request. Arguments that req.HeaderParams names are repeated in headers.
//
// A JSON-RPC error is an [*mcp.Error] whatever the HTTP status, within a [*StatusError] if the
// status is 401 or 403. The error reports that the request did not run if there was no connection,
// or if the status says so: a redirect, most of 4xx, and 503 with Retry-After.
//
// Spec: basic/transports/streamable-http#sending-messages (2026-07-28)
func (t *Transport) RoundTrip(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	x, err := t.startExchange(ctx, &t.life, req.Method)
	if err != nil {
		return nil, err
	}
	defer x.end()
	header, err := t.requestHeader(req)
	if err != nil {
		return nil, x.notSent(err)
	}
	id := jsonrpc.IntID(t.ids.Add(1))
	if err := x.post(t.target, header, &jsonrpc.Message{ID: id, Method: req.Method, Params: req.Params}); err != nil {
		return nil, err
	}
	m, err := x.response(id, func(_ context.Context, m *jsonrpc.Message) { x.notify(req, m) })
	if err != nil {
		return nil, err
	}
	x.drain()
	if m.Error != nil {
		return nil, m.Error
	}
	if jsonscan.Kind(m.Result) != '{' {
		return nil, x.unanswered(errors.New("invalid result: must be a JSON object"))
	}
	req.Driver().Valid = m.Result
	return mcp.RawResult(m.Result), nil
}

// notify passes a notification to the request. Servers send no requests in this era.
func (x *clientExchange) notify(req *mcp.Request, m *jsonrpc.Message) {
	switch {
	case m.Kind() == jsonrpc.Request:
		x.drop("unexpected request", nil)
	case req.Notify == nil:
	case m.Params == nil:
		_ = req.Notify(x.caller, m.Method, stdjson.RawMessage("{}")) // fails only if the caller is gone
	case jsonscan.Kind(m.Params) == '{':
		_ = req.Notify(x.caller, m.Method, m.Params)
	default:
		x.drop("params must be an object", nil)
	}
}

// UsesHeaderParams marks the transport as a transport that sends [driver.HeaderParam] headers.
func (t *Transport) UsesHeaderParams() {}

// requestHeader returns the header of a request, with the headers that mirror the body. Spec:
// basic/transports/streamable-http#standard-headers (2026-07-28)
func (t *Transport) requestHeader(req *mcp.Request) (http.Header, error) {
	version := req.Revision()
	if version == "" { // the request was not created by mcp.NewRequest
		env, err := wire.Open(req.Params)
		if err != nil || env.VersionText == "" {
			return nil, errNoEnvelope
		}
		version = env.VersionText
	}
	header, err := t.standardHeader(version, req.Method, subject(req))
	if err != nil {
		return nil, err
	}
	if req.Method == wire.MethodToolsCall && len(req.HeaderParams) > 0 {
		arguments, _ := req.Param("arguments")
		for _, p := range req.HeaderParams {
			if err := setParamHeader(header, p, arguments); err != nil {
				return nil, err
			}
		}
	}
	return header, nil
}

// standardHeader returns the header of a request; subject is the JSON value that Mcp-Name mirrors.
func (t *Transport) standardHeader(version, method string, subject []byte) (http.Header, error) {
	if !isPlainValue(version) || !isPlainValue(method) {
		return nil, fmt.Errorf("invalid version %q or method %q: must be valid in a header", version, method)
	}
	header := maps.Clone(t.postHeader)
	values := []string{version, method, ""} // of three headers
	header[headerVersion], header[headerMethod] = values[0:1:1], values[1:2:2]
	if name, err := jsonscan.Unquote(subject); subject != nil && err == nil {
		values[2] = encodeHeaderValue(name)
		header[headerName] = values[2:3:3]
	}
	return header, nil
}

var errNoEnvelope = errors.New("invalid params: _meta must name a protocol version")

// subject returns the JSON value that Mcp-Name mirrors: the name of a tool or prompt, the URI of a
// resource, or the id of a task.
func subject(req *mcp.Request) []byte {
	param := nameParam(req.Method)
	if param == "" {
		return nil
	}
	raw, _ := req.Param(param)
	return raw
}

// setParamHeader sets the header of an argument, unless the argument is absent or null.
// Spec: basic/transports/streamable-http#client-behavior-for-custom-headers (2026-07-28)
func setParamHeader(header http.Header, p driver.HeaderParam, arguments []byte) error {
	if !netx.IsToken(p.Header) {
		return fmt.Errorf("invalid header name %q", p.Header)
	}
	argument := arguments
	for _, key := range p.Path {
		argument, _ = jsonscan.Get(argument, key)
	}
	value, ok := "", true
	switch jsonscan.Kind(argument) {
	case 0, 'n':
		return nil
	case '"':
		var err error
		value, err = jsonscan.Unquote(argument)
		ok = err == nil
	case '0':
		var n int64
		n, ok = parseInteger(string(argument))
		value = strconv.FormatInt(n, 10)
	case 't', 'f':
		value = string(argument)
	default:
		ok = false
	}
	if !ok {
		return fmt.Errorf("invalid argument %q for header %s: must be a string, a boolean or a safe integer",
			p.Path, headerParam+p.Header)
	}
	header[http.CanonicalHeaderKey(headerParam+p.Header)] = []string{encodeHeaderValue(value)}
	return nil
}
