package mcp

import (
	"context"
	"encoding/json"
	"sync/atomic"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// A call is one request while a server works on it. It is a context, so that handing it to a handler costs nothing
// more than itself.
type call struct {
	context.Context
	server   *Server
	req      *Request
	taken    atomic.Bool // of the call that a request has room for
	input    input
	progress progress
}

type callKey struct{}

// newCall begins a call of the request. The first one has its room beside the request. It is never used again: a context
// may outlive its call, since handlers leave goroutines behind.
func newCall(ctx context.Context, s *Server, req *Request) *call {
	c := req.first
	if c == nil || !c.taken.CompareAndSwap(false, true) {
		c = &call{}
	}
	c.Context, c.server, c.req = ctx, s, req
	return c
}

// Value returns the call itself to whoever asks for it.
func (c *call) Value(key any) any {
	if key == (callKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// callFrom returns the call that ctx belongs to, or nil.
func callFrom(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// RequestFrom returns the request that ctx belongs to: revision, client, capabilities, principal, header and meta. It is
// nil outside a handler.
func RequestFrom(ctx context.Context) *Request {
	if c := callFrom(ctx); c != nil {
		return c.req
	}
	return nil
}

// knownTool returns the name of the tool that a call names in JSON, without making a string of it; "" for any other.
func (r *Request) knownTool(name []byte) string {
	if r.Method != wire.MethodToolsCall || r.server == nil || len(name) < 2 || name[0] != '"' {
		return ""
	}
	if e, ok := r.server.tools.snapshot().byName[string(name[1:len(name)-1])]; ok {
		return e.name
	}
	return ""
}

// targetParams are the params of the methods that use one feature. All spans alias the request.
type targetParams struct {
	target    string          // the feature's name or uri
	arguments json.RawMessage // nil when absent
	retry     *retryParams    // nil for nothing: most requests are sent once
}

// brought is what a client adds to a request that it sends again. Its methods take nil.
type retryParams struct {
	inputResponses json.RawMessage // nil when absent
	requestState   json.RawMessage // a JSON string, nil when absent
}

func (b *retryParams) responses() json.RawMessage {
	if b == nil {
		return nil
	}
	return b.inputResponses
}

func (b *retryParams) state() json.RawMessage {
	if b == nil {
		return nil
	}
	return b.requestState
}

// parseTarget reads the params of such a method; key is the member that names the feature, "name" or "uri".
func parseTarget(r *Request, key string) (p targetParams, err error) {
	s := r.env.Subject(r.Params)
	name := s.Name
	if key == "uri" {
		name = s.URI
	}
	if name == nil {
		return p, Errorf(CodeInvalidParams, "params.%s is missing", key)
	}
	if p.target = r.knownTool(name); p.target == "" {
		if p.target, err = jsonscan.Unquote(name); err != nil {
			return p, Errorf(CodeInvalidParams, "params.%s: want a string", key)
		}
	}
	switch {
	case s.Arguments != nil && jsonscan.Kind(s.Arguments) != '{':
		return p, Errorf(CodeInvalidParams, "params.arguments: want an object")
	case s.InputResponses != nil && jsonscan.Kind(s.InputResponses) != '{':
		return p, Errorf(CodeInvalidParams, "params.inputResponses: want an object")
	case s.RequestState != nil && jsonscan.Kind(s.RequestState) != '"':
		return p, Errorf(CodeInvalidParams, "params.requestState: want a string")
	}
	if s.Arguments != nil && !r.env.IsOf(r.Params) { // they were made in this process
		if err := jsonscan.Valid(s.Arguments, jsonscan.Limits{}); err != nil {
			return p, Errorf(CodeInvalidParams, "params.arguments: %v", err)
		}
	}
	p.arguments = s.Arguments
	if s.InputResponses != nil || s.RequestState != nil {
		p.retry = &retryParams{s.InputResponses, s.RequestState}
	}
	return p, nil
}
