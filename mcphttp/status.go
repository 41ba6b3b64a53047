package mcphttp

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A refusal is an HTTP request that is not served: its status, and the error that the body explains it with.
type refusal struct {
	status int
	err    *mcp.Error
}

func refuse(status int, message string) *refusal {
	return &refusal{status, &mcp.Error{Code: mcp.CodeInvalidRequest, Message: message}}
}

// refuseBusy asks the client to come back: 429 when it has too much going on itself, 503 when the server has.
func refuseBusy(status int, message string) *refusal {
	return &refusal{status, &mcp.Error{Code: mcp.CodeBusy, Message: message, Data: []byte(`{"retryAfterMs":1000}`)}}
}

// A challenge is an answer to a request whose caller lacks something that a server of another party gives, such as a
// token with more scopes.
type challenge struct {
	status int
	fields []string // of WWW-Authenticate
}

// challengeOf returns the challenge within the error of a handler, or nil. An error has one if it says so: then nothing of it
// is known here but this one method. It decides nothing else about the answer.
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

// challenge answers with an error that a challenge goes with.
func (h *Handler) challenge(w http.ResponseWriter, c *challenge, body []byte) {
	w.Header()["Www-Authenticate"] = c.fields
	h.reply(w, c.status, body)
}

// statusOf returns the HTTP status of an answer to a modern request. Only the errors that say something about the request
// itself have one of their own; what a method answers, good or bad, is 200.
//
// Spec: basic/transports/streamable-http (2026-07-28)
func statusOf(err *mcp.Error) int {
	switch err.Code {
	case mcp.CodeMethodNotFound:
		return http.StatusNotFound
	case mcp.CodeHeaderMismatch, mcp.CodeMissingCapability, mcp.CodeUnsupportedVersion:
		return http.StatusBadRequest
	}
	if retryAfter(err) != "" {
		return http.StatusServiceUnavailable
	}
	return http.StatusOK
}

// retryAfter returns the value of Retry-After, in whole seconds, for an error that asks the client to come back.
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

// refuse answers with a refusal. The id is that of the request, as far as it was read.
func (h *Handler) refuse(w http.ResponseWriter, id jsonrpc.ID, no *refusal) {
	if after := retryAfter(no.err); after != "" {
		w.Header().Set("Retry-After", after)
	}
	h.reply(w, no.status, jsonrpc.Append(nil, jsonrpc.NewErrorResponse(id, no.err)))
}

// jsonContent is the value of Content-Type that all JSON answers share. Whoever adds to it gets a copy.
var jsonContent = []string{typeJSON}[:1:1]

// heldBack is how much of a response net/http keeps until its handler has returned.
const heldBack = 2 << 10

// reply writes a whole JSON answer, in one piece. A client that does not read it cannot hold the handler for longer
// than the write timeout; that it is gone is no news to anyone, so errors end here.
func (h *Handler) reply(w http.ResponseWriter, status int, body []byte) {
	if len(body) <= heldBack {
		w.Header()["Content-Type"] = jsonContent
		// It is written when the handler is done, and so can hold nothing but its connection. net/http counts it then.
		w.WriteHeader(status)
		_, _ = w.Write(body)
		return
	}
	defer h.answers.stop(h.beginLarge(w, len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
	_ = http.NewResponseController(w).Flush()
}

// beginLarge begins an answer of that many bytes. The caller ends the wait when all is written.
func (h *Handler) beginLarge(w http.ResponseWriter, size int) *waiting[http.ResponseWriter] {
	head := w.Header()
	head["Content-Type"] = jsonContent
	head["Content-Length"] = []string{strconv.Itoa(size)}
	ownTime(w)
	return h.answers.start(w)
}

// ownTime takes the time off that the http.Server gives a whole request: what is written from here on has a time of its own.
func ownTime(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
}

// breakWrite makes the write that is going on fail.
func breakWrite(w http.ResponseWriter) (again bool) {
	_ = http.NewResponseController(w).SetWriteDeadline(past)
	return false
}
