package mcp

import (
	"context"
	"encoding/json"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// A call is a request that a server is serving. It is itself the context of the handler.
type call struct {
	context.Context
	server   *Server
	req      *Request
	input    input
	progress progress
}

type callKey struct{}

// newCall does not reuse calls: goroutines of the handler may outlive them.
func newCall(ctx context.Context, s *Server, req *Request) *call {
	return &call{Context: ctx, server: s, req: req}
}

// Value returns the call itself for callKey.
func (c *call) Value(key any) any {
	if key == (callKey{}) {
		return c
	}
	return c.Context.Value(key)
}

func callFrom(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// RequestFrom returns the request that ctx belongs to, or nil outside a handler.
func RequestFrom(ctx context.Context) *Request {
	if c := callFrom(ctx); c != nil {
		return c.req
	}
	return nil
}

// knownTool returns the name of a registered tool, given in JSON, without an allocation, or "".
func (r *Request) knownTool(name []byte) string {
	if r.Method != wire.MethodToolsCall || r.server == nil {
		return ""
	}
	return knownName(&r.server.tools, name)
}

func knownName[V, E any](set *featureSet[V, E], name []byte) string {
	if len(name) > 1 && name[0] == '"' {
		if e, ok := set.snapshot().byName[string(name[1:len(name)-1])]; ok {
			return e.name
		}
	}
	return ""
}

// targetParams are the params of a method that uses a tool, prompt or resource. They alias the
// request.
type targetParams struct {
	target    string          // the feature's name or uri
	arguments json.RawMessage // nil when absent
	retry     *retryParams    // nil if the request is sent for the first time
}

// retryParams are the params that a client adds to a repeated request. The methods accept nil.
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

// parseTarget parses such params. key is the member that names the feature: "name" or "uri".
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
	if s.Arguments != nil && !r.env.IsOf(r.Params) { // not validated when the envelope was opened
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
