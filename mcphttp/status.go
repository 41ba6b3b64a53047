package mcphttp

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// A refusal is the response to an HTTP request that is not served: a status and the error in the
// body.
type refusal struct {
	status int
	err    *mcp.Error
}

func refuse(status int, message string) *refusal {
	return &refusal{status, &mcp.Error{Code: mcp.CodeInvalidRequest, Message: message}}
}

// refuseBusy returns a refusal after which the client should retry. The status is 429 if the client
// sent too many requests, and 503 if the server has.
func refuseBusy(status int, message string) *refusal {
	return &refusal{status, wire.Busy(message)}
}

var errShutdown = refuseBusy(http.StatusServiceUnavailable, "server is shutting down")

// A challenge is a response with status 401 or 403 and a WWW-Authenticate header, such as for a
// token that lacks a scope.
type challenge struct {
	status int
	fields []string // of WWW-Authenticate
}

// challengeOf returns the challenge in the error of a handler, or nil. The error is recognized by
// its method RefuseHTTP.
func challengeOf(err error) *challenge {
	var e interface {
		error
		RefuseHTTP() (status int, challenges []string)
	}
	if !errors.As(err, &e) {
		return nil
	}
	status, fields := e.RefuseHTTP()
	if status != http.StatusUnauthorized && status != http.StatusForbidden {
		return nil
	}
	return &challenge{status, fields}
}

func (h *Handler) writeChallenge(w http.ResponseWriter, c *challenge, body []byte) {
	w.Header()["Www-Authenticate"] = c.fields
	h.refused.add(http.StatusText(c.status))
	h.writeJSON(w, c.status, body)
}

// statusOf returns the HTTP status of the error response to a modern request. Only errors about the
// request itself use a status other than 200. Spec: basic/transports/streamable-http (2026-07-28)
func statusOf(err *mcp.Error) int {
	switch err.Code {
	case mcp.CodeMethodNotFound:
		return http.StatusNotFound
	case driver.CodeHeaderMismatch, driver.CodeMissingRequiredClientCapability, driver.CodeUnsupportedProtocolVersion:
		return http.StatusBadRequest
	}
	if retryAfter(err) != "" {
		return http.StatusServiceUnavailable
	}
	return http.StatusOK
}

// retryAfter returns the value of Retry-After, in whole seconds, for an error that asks the client
// to retry; empty for other errors.
func retryAfter(err *mcp.Error) string {
	if err == nil || err.Code != mcp.CodeBusy {
		return ""
	}
	raw, _ := jsonscan.Get(err.Data, "retryAfterMs")
	ms, e := strconv.Atoi(string(raw))
	if e != nil || ms < 0 {
		return ""
	}
	return strconv.Itoa((ms + 999) / 1000)
}

// refuse writes a refusal. The id is that of the request, if it was read.
func (h *Handler) refuse(w http.ResponseWriter, id jsonrpc.ID, no *refusal) {
	if h.observer != nil {
		h.observer.Refused(no.status, no.reason())
	}
	h.refused.add(no.reason())
	if after := retryAfter(no.err); after != "" {
		w.Header().Set("Retry-After", after)
	}
	h.writeJSON(w, no.status, jsonrpc.Append(nil, &jsonrpc.Message{ID: id, Error: no.err}))
}

// jsonContent is the Content-Type value of all JSON responses. Its capacity is 1, so that appending
// copies it.
var jsonContent = []string{typeJSON}[:1:1]

// netHTTPBuffer is how much of a response net/http buffers until the handler returns.
const netHTTPBuffer = 2 << 10

// writeResponse writes the JSON response to a caller, in parts; see [buffer.parts]. The response is cut
// if too much output is unread. A spliced part counts unless other responses share it.
func (h *Handler) writeResponse(w http.ResponseWriter, c caller, status int, b *buffer, body []byte) {
	if status >= http.StatusBadRequest {
		h.refused.add(http.StatusText(status))
	}
	before, spliced, after := b.parts(body)
	size, held := len(before), cap(before) // the memory that it holds
	if spliced != nil && !b.shared {
		size, held = size+len(spliced), held+len(spliced)
	}
	if size > minUnread {
		o := &output{caller: c, cut: func() { expireWrite(w) }}
		h.unread.add(o, int64(held))
		defer h.unread.remove(o)
	}
	h.writeJSON(w, status, before, spliced, after)
}

// writeJSON writes a whole JSON response. A client that does not read it cannot block the handler
// for longer than the write timeout. Errors are ignored: the client is gone.
func (h *Handler) writeJSON(w http.ResponseWriter, status int, parts ...[]byte) {
	w.Header()["Content-Type"] = jsonContent
	size := 0
	for _, part := range parts {
		size += len(part)
	}
	// net/http writes a short response after the handler returned, so it blocks only its connection.
	isLong := size > netHTTPBuffer
	if isLong {
		w.Header()["Content-Length"] = []string{strconv.Itoa(size)}
		clearWriteDeadline(w)
		defer h.responseWrites.remove(h.responseWrites.add(w, time.Now()))
	}
	w.WriteHeader(status)
	for _, part := range parts {
		if len(part) > 0 {
			_, _ = w.Write(part)
		}
	}
	if isLong {
		_ = http.NewResponseController(w).Flush()
	}
}

// clearWriteDeadline removes the deadline that the WriteTimeout of the http.Server sets for a whole
// request. Later writes have their own deadlines.
func clearWriteDeadline(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
}

func expireWrite(w http.ResponseWriter) (again bool) {
	_ = http.NewResponseController(w).SetWriteDeadline(aLongTimeAgo)
	return false
}
