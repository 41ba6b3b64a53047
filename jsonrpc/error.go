package jsonrpc

import (
	"encoding/json"
	"fmt"
)

// An Error is the error object of a response.
type Error struct {
	Code    int             `json:"code"`          // the kind of error, one of the Code constants or another integer
	Message string          `json:"message"`       // a one-sentence description
	Data    json.RawMessage `json:"data,omitzero"` // any JSON value; nil if absent

	remote bool
}

// Error returns the message and the code. The message of a remote error is text of the peer.
func (e *Error) Error() string {
	if e.remote {
		return fmt.Sprintf("peer: %s (code %d)", e.Message, e.Code)
	}
	return fmt.Sprintf("%s (code %d)", e.Message, e.Code)
}

// Remote reports whether the error was decoded from a response of the peer. A copy of a remote
// error is remote.
func (e *Error) Remote() bool {
	return e.remote
}

// Is makes [errors.Is] match errors by code. If target is remote, only remote errors match.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code && (e.remote || !t.remote)
}

// A DecodeError is the error for a message that [Decode] rejects.
type DecodeError struct {
	ID   ID     // of the message; zero if it could not be read or is duplicate
	Kind Kind   // what the message was meant to be, if that is certain; otherwise Invalid
	Err  *Error // the error to send; its message does not quote the peer
}

// Error describes the error without quoting the message.
func (e *DecodeError) Error() string {
	return "refused message: " + e.Err.Error()
}

// Unwrap returns e.Err.
func (e *DecodeError) Unwrap() error {
	return e.Err
}

// Response returns the response to the rejected message. It is nil for a notification or a
// response, which must not be answered.
func (e *DecodeError) Response() *Message {
	if e.Kind == Notification || e.Kind == Response {
		return nil
	}
	return NewErrorResponse(e.ID, e.Err)
}
