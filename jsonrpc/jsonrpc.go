// Package jsonrpc implements the messages of JSON-RPC 2.0 as MCP uses them, with a strict codec.
//
// [Decode] decodes a [Message], [Append] encodes a message. Decode reads a message in a single pass
// and rejects any text that two readers could understand differently, with a [*DecodeError] that
// contains the response to send. Params, results and error data stay raw JSON.
//
// The package starts no goroutines and does not know the methods of MCP. Messages are plain values:
// they are safe for concurrent reads.
//
// Spec: basic/index#messages.
package jsonrpc

import (
	"encoding/json"
	"fmt"
)

// Error codes of a [DecodeError]. Package mcp contains the other codes. Spec: basic/index#responses.
const (
	CodeParseError     = -32700 // the text is not valid JSON
	CodeInvalidRequest = -32600 // the JSON is not a valid message
)

// A Kind is the kind of a [Message].
type Kind uint8

// The kinds. Only revision 2025-03-26 defines Batch.
const (
	Invalid      Kind = iota // rejected, or empty
	Request                  // provides a method and an id
	Notification             // provides a method and no id; gets no response
	Response                 // contains a result or an error
	Batch                    // several messages in one array
)

// A Message is a JSON-RPC message. The fields that are set determine its [Kind]: a request provides ID
// and Method, a notification Method, and a response ID and either Result or Error.
type Message struct {
	ID     ID              // of a request or response; zero in an error that answers no known request
	Method string          // of a request or notification
	Params json.RawMessage // of a request or notification: an object or array as received; nil if absent
	Result json.RawMessage // of a successful response: any value as received
	Error  *Error          // of a failed response

	// Batch holds the messages of a batch, in order. Rejected messages are of kind Invalid.
	Batch []*Message

	// Repaired reports whether U+FFFD replaced lone surrogates in the text of a response.
	Repaired bool

	// Refused is why a message of a batch was rejected.
	Refused *DecodeError
}

// Kind returns the kind of the message.
func (m *Message) Kind() Kind {
	switch {
	case m.Refused != nil:
		return Invalid
	case m.Batch != nil:
		return Batch
	case m.Method != "" && m.ID.IsZero():
		return Notification
	case m.Method != "":
		return Request
	case m.Result != nil || m.Error != nil:
		return Response
	}
	return Invalid
}

// An Error is the error object of a response.
type Error struct {
	Code    int             `json:"code"`          // the kind of error
	Message string          `json:"message"`       // a one-sentence description
	Data    json.RawMessage `json:"data,omitzero"` // any JSON value; nil if absent

	remote bool
}

// Error returns the message and the code. The message of a remote error is text of the peer.
func (e *Error) Error() string {
	if e.remote {
		return fmt.Sprintf("remote error: %s (code %d)", e.Message, e.Code)
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
	return &Message{ID: e.ID, Error: e.Err}
}
