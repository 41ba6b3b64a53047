package mcp

import (
	"context"
	stdjson "encoding/json"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// A dispatcher is the innermost handler: the method table of the modern era. What the other revisions call differently is
// translated before it gets here.
type dispatcher struct{ server *Server }

func (d dispatcher) ServeMCP(ctx context.Context, req *Request) (Result, error) {
	s := d.server
	c := callFrom(ctx)
	switch req.Method {
	case wire.MethodToolsCall:
		return s.answer(ctx, c, "name", (*Server).callTool)
	case wire.MethodToolsList:
		return s.listTools(ctx, req)
	case wire.MethodPromptsGet:
		return s.answer(ctx, c, "name", (*Server).getPrompt)
	case wire.MethodPromptsList:
		return s.listPrompts(ctx, req)
	case wire.MethodResourcesRead:
		return s.answer(ctx, c, "uri", (*Server).readResource)
	case wire.MethodResourcesList:
		return s.listResources(ctx, req)
	case wire.MethodResourcesTemplatesList:
		return s.listTemplates(ctx, req)
	case wire.MethodCompletionComplete:
		return s.complete(ctx, req)
	case wire.MethodSubscriptionsListen:
		return s.listen(ctx, req)
	case wire.MethodDiscover:
		return s.discover(ctx)
	}
	if h, ok := (*s.methods.Load())[req.Method]; ok {
		return h.ServeMCP(ctx, req)
	}
	return nil, methodNotFound(req.Method)
}

// coreMethod reports whether any revision of the protocol defines the method. Tasks have left the core since: all there
// is of them is in an extension.
func coreMethod(method string) bool {
	switch method {
	case wire.MethodTasksGet, wire.MethodTasksResult, wire.MethodTasksList, wire.MethodTasksCancel:
		return false
	}
	for _, r := range wire.Revisions() {
		if _, ok := r.Method(method); ok {
			return true
		}
	}
	return false
}

// answer serves one of the three methods that may ask the client for input. Questions that the handler recorded win
// over whatever it returned.
//
// Spec: basic/patterns/mrtr (2026-07-28).
func (s *Server) answer(ctx context.Context, c *call, key string,
	serve func(s *Server, ctx context.Context, c *call, target string, args stdjson.RawMessage) (Result, error)) (Result, error) {
	target, args, err := c.begin(key)
	if err != nil {
		return nil, err
	}
	res, err := serve(s, ctx, c, target, args)
	asked, askErr := c.inputRequired()
	switch {
	case askErr != nil:
		return nil, askErr
	case asked != nil:
		return asked, nil
	}
	return res, err
}
