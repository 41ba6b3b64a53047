package jsonrpc

import (
	"encoding/json"
	"fmt"
)

// An Error is the error of a response, as it travels.
type Error struct {
	Code    int             `json:"code"`          // what went wrong, for programs
	Message string          `json:"message"`       // what went wrong, for people: one sentence
	Data    json.RawMessage `json:"data,omitzero"` // any JSON value, nil when absent

	remote bool
}

// Error returns the message and the code. The message of a remote error is the peer's text.
func (e *Error) Error() string {
	if e.remote {
		return fmt.Sprintf("peer: %s (code %d)", e.Message, e.Code)
	}
	return fmt.Sprintf("%s (code %d)", e.Message, e.Code)
}

// Remote reports whether the error came from the peer: it was decoded from a response. A copy of such an error is
// remote too.
func (e *Error) Remote() bool {
	return e.remote
}

// Is makes [errors.Is] match errors by their code, and by their side when target is remote.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code && (e.remote || !t.remote)
}

// A DecodeError is the refusal of a message that a peer sent.
type DecodeError struct {
	ID   ID     // of the message; zero where it could not be read, or stood twice
	Kind Kind   // what the message was meant to be, as far as that could be read; else Invalid
	Err  *Error // what is wrong, in words that are fit to be sent: none of them the peer's
}

// Error describes the refusal without quoting the message.
func (e *DecodeError) Error() string {
	return "refused message: " + e.Err.Error()
}

// Unwrap returns the error that would be sent.
func (e *DecodeError) Unwrap() error {
	return e.Err
}

// Response returns the response to the refused message. It is nil when none may be sent: nothing answers a
// notification or a response, however malformed it is.
func (e *DecodeError) Response() *Message {
	if e.Kind == Notification || e.Kind == Response {
		return nil
	}
	return NewErrorResponse(e.ID, e.Err)
}
