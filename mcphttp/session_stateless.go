package mcphttp

import (
	"context"
	"net/http"

	"github.com/patchbay-mcp/patchbay/internal/legacy"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// serveStateless serves a POST of the session era without a session: the session that it opens ends
// with the response. See [SessionOptions.Stateless].
func (h *Handler) serveStateless(w http.ResponseWriter, r *http.Request, head *head, msg *jsonrpc.Message) *refusal {
	if no := checkSessionVersion(head.version, h.sessions.config.Revisions); no != nil {
		return no
	}
	if !h.life.isOpen() {
		return errShutdown
	}
	if kind := msg.Kind(); kind == jsonrpc.Notification || kind == jsonrpc.Response {
		w.WriteHeader(http.StatusAccepted) // without a session the request changes no state
		return nil
	}
	s, no := h.sessions.open(head.body.caller, nil)
	if no != nil {
		return no
	}
	defer h.sessions.release(s)
	defer h.sessions.end(s, mcp.ErrClosed)
	defer context.AfterFunc(r.Context(), func() { h.sessions.end(s, mcp.ErrDisconnected) })()
	if msg.Kind() == jsonrpc.Request && msg.Method == wire.MethodInitialize {
		h.writeInitialize(w, r, s, msg)
		return nil
	}
	ctx := context.WithValue(r.Context(), callerKey{}, s.caller)
	conv, err := legacy.OpenStateless(ctx, &h.sessions.config, head.version.value)
	if err != nil {
		return &refusal{http.StatusBadRequest, err}
	}
	s.mu.Lock()
	isEnded := s.ended
	s.conv.Store(conv)
	s.mu.Unlock()
	if isEnded { // the client disconnected
		conv.Close(mcp.ErrDisconnected)
	}
	return h.serveMessage(w, r, s, head, msg)
}
