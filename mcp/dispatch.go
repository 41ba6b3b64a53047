package mcp

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"log/slog"
	"runtime/debug"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
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

// coreMethod reports whether the core protocol defines the method. Tasks belong to an extension.
func coreMethod(method string) bool {
	switch method {
	case wire.MethodTasksGet, wire.MethodTasksResult, wire.MethodTasksList, wire.MethodTasksCancel:
		return false
	}
	return wire.InAnyRevision(method)
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

// recovered is deferred around functions of the user. It turns a panic into an error with an
// incident id, which is sent to the peer; the value and the stack are logged with the same id.
func recovered(ctx context.Context, log *slog.Logger, what string, err *error) {
	value := recover()
	if value == nil {
		return
	}
	incident, public := newIncident()
	log.ErrorContext(ctx, "mcp: panic recovered",
		"in", what, "incident", incident, "value", value, "stack", string(debug.Stack()))
	*err = public
}

// readMessage reads from a Conn. A panic of the Conn becomes an error, which ends its stream only.
func readMessage(ctx context.Context, log *slog.Logger, conn Conn) (m *jsonrpc.Message, err error) {
	defer recovered(ctx, log, "Conn.Read", &err)
	return conn.Read(ctx)
}

// newIncident returns a random id for the log, and the error with it that the peer sees.
func newIncident() (id string, public *Error) {
	id = rand.Text()[:16]
	data := append(jsonscan.AppendQuote([]byte(`{"incident":`), id), '}')
	return id, &Error{Code: CodeInternalError, Message: "internal error", Data: data}
}
