package mcphttp

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"sync"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// RoundTrip posts a request and gives the result. When ctx ends before, the response stream is closed, which is how a
// request is cancelled. A request whose params have arguments that its HeaderParams name repeats them in headers.
//
// A JSON-RPC error is an [*mcp.Error], whatever the HTTP status; with 401 and 403 it is within a [*StatusError]. The error says that the request has not run when there
// was no connection, and when the status says that the request was turned away: a redirect, most of 4xx, and 503 with
// Retry-After.
//
// Spec: basic/transports/streamable-http#sending-messages (2026-07-28)
func (t *Transport) RoundTrip(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	x, err := t.depart(ctx, &t.life, req.Method)
	if err != nil {
		return nil, err
	}
	defer x.end()
	header, err := t.mirrored(req)
	if err != nil {
		return nil, x.notSent(err)
	}
	id := jsonrpc.IntID(t.ids.Add(1))
	if err := x.post(t.target, header, jsonrpc.NewRequest(id, req.Method, req.Params)); err != nil {
		return nil, err
	}
	m, err := x.answer(id, func(m *jsonrpc.Message) { x.notify(req, m) })
	if err != nil {
		return nil, err
	}
	x.linger()
	if m.Error != nil {
		return nil, m.Error
	}
	if err := checkResult(m); err != nil {
		return nil, x.unanswered(err)
	}
	return mcp.RawResult(m.Result), nil
}

// notify hands a notification on. Servers send no requests in this form of the protocol, so there is nothing to answer.
func (x *trip) notify(req *mcp.Request, m *jsonrpc.Message) {
	switch {
	case m.Kind() == jsonrpc.Request:
		x.drop("servers send no requests", nil)
	case req.Notify == nil:
	case m.Params == nil:
		_ = req.Notify(x.caller, m.Method, stdjson.RawMessage("{}")) // a receiver fails only when the caller has gone
	case jsonscan.Kind(m.Params) == '{':
		_ = req.Notify(x.caller, m.Method, m.Params)
	default:
		x.drop("the params are no object", nil)
	}
}

// UsesHeaderParams marks the transport as one that sends [mcp.HeaderParam] headers.
func (t *Transport) UsesHeaderParams() {}

// mirrored returns the header of a request, with what repeats the body.
//
// Spec: basic/transports/streamable-http#standard-headers (2026-07-28)
func (t *Transport) mirrored(req *mcp.Request) (http.Header, error) {
	version := req.Revision()
	if version == "" { // the request was put together by hand
		env, err := wire.Open(req.Params)
		if err != nil || env.VersionText == "" {
			return nil, errNoEnvelope
		}
		version = env.VersionText
	}
	subject := subject(req)
	header := t.headers.get(version, req.Method, subject)
	if header == nil {
		var err error
		if header, err = t.standard(version, req.Method, subject); err != nil {
			return nil, err
		}
		if nameParams[req.Method] == "" { // ids come and go, and would drive out the names of tools
			t.headers.put(version, req.Method, subject, header)
		}
	}
	if req.Method == wire.MethodToolsCall && len(req.HeaderParams) > 0 {
		header = maps.Clone(header)
		arguments, _ := req.Param("arguments")
		for _, p := range req.HeaderParams {
			if err := mirror(header, p, arguments); err != nil {
				return nil, err
			}
		}
	}
	return header, nil
}

// standard makes the header of requests that are about the same, with a subject in JSON.
func (t *Transport) standard(version, method string, subject []byte) (http.Header, error) {
	if !isPlainValue(version) || !isPlainValue(method) {
		return nil, errors.New("version or method cannot stand in a header")
	}
	header := maps.Clone(t.postHeader)
	header[headerVersion] = []string{version}
	header[headerMethod] = []string{method}
	if name, err := jsonscan.Unquote(subject); subject != nil && err == nil {
		header[headerName] = []string{encodeHeaderValue(name)}
	}
	return header, nil
}

const (
	// maxHeaders is how many headers are kept for later requests: more than a model has tools before it.
	maxHeaders = 64
	// maxKeptSubject bounds what such a request is about, in bytes, so that what is kept is small. Names of tools are.
	maxKeptSubject = 256
)

// A headerCache keeps the headers of requests: most are like one before.
type headerCache struct {
	mu   sync.RWMutex
	kept map[headerKey]http.Header
}

type headerKey struct{ version, method, subject string }

func (c *headerCache) get(version, method string, subject []byte) http.Header {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.kept[headerKey{version, method, string(subject)}]
}

// put keeps a header, which nobody may change from then on.
func (c *headerCache) put(version, method string, subject []byte, header http.Header) {
	if len(subject) > maxKeptSubject || len(version)+len(method) > maxKeptSubject {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kept == nil || len(c.kept) >= maxHeaders {
		c.kept = map[headerKey]http.Header{}
	}
	c.kept[headerKey{version, method, string(subject)}] = header
}

var errNoEnvelope = errors.New("the params have no envelope that names a version")

// subject returns what a request is about, as JSON: the name of a tool or prompt, the URI of a resource, the id of a task.
func subject(req *mcp.Request) []byte {
	method, _ := wire.Latest().Method(req.Method)
	param := method.NameParam
	if param == "" {
		if param = nameParams[req.Method]; param == "" {
			return nil
		}
	}
	raw, _ := req.Param(param)
	return raw
}

// mirror repeats one argument in its header. An argument that is absent or null has none.
//
// Spec: basic/transports/streamable-http#client-behavior-for-custom-headers (2026-07-28)
func mirror(header http.Header, p mcp.HeaderParam, arguments []byte) error {
	if !isToken(p.Header) {
		return fmt.Errorf("%q is no name for a header", p.Header)
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
		return fmt.Errorf("argument %q cannot be repeated in header %s: it has to be a string, a boolean or an integer within ±(2^53-1)", p.Path, headerParam+p.Header)
	}
	header[http.CanonicalHeaderKey(headerParam+p.Header)] = []string{encodeHeaderValue(value)}
	return nil
}
