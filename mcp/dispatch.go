package mcp

import (
	"context"
	"encoding/json"
	"log/slog"

	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// A dispatcher is the innermost handler: it maps the methods of the modern era. Requests of older
// revisions are translated before.
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

// answer serves a method that may ask for input. Open questions take precedence over the result.
// Spec: basic/patterns/mrtr (2026-07-28).
func (s *Server) answer(ctx context.Context, c *call, key string,
	serve func(s *Server, ctx context.Context, c *call, target string, args json.RawMessage) (Result, error),
) (Result, error) {
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

// readMessage reads from a Conn. A panic of the Conn becomes an error, which ends its stream only.
func readMessage(ctx context.Context, log *slog.Logger, conn Conn) (m *jsonrpc.Message, err error) {
	defer recovered(ctx, log, "Conn.Read", &err)
	return conn.Read(ctx)
}
