// Package jsonrpc holds the messages of JSON-RPC 2.0 as MCP uses it, and their strict codec.
//
// [Decode] and [Append] are the only way from bytes to a [Message] and back. Decode reads each message in one pass and
// refuses every text that two readers could read differently; what it refuses it reports as a [*DecodeError], which
// knows what to answer. Parameters, results and error data stay raw: they are the bytes of the peer, for others to
// read once.
//
// The package starts no goroutines and knows nothing of MCP's methods. Messages are plain values: they may be read
// concurrently, but not while someone changes them.
//
// Spec: basic/index#messages.
package jsonrpc

import "encoding/json"

// Codes of errors that JSON-RPC itself defines. Spec: basic/index#responses.
const (
	CodeParseError     = -32700 // the bytes are not JSON
	CodeInvalidRequest = -32600 // the JSON is not a message
	CodeMethodNotFound = -32601 // the receiver does not have the method
	CodeInvalidParams  = -32602 // the method does not take the parameters
	CodeInternalError  = -32603 // the receiver failed
)

// Kind tells what a [Message] is.
type Kind uint8

// The kinds. Batch exists in revision 2025-03-26 alone; an edge that serves another one refuses it.
const (
	Invalid      Kind = iota // no message: refused, or not filled in
	Request                  // has a method and an id, and wants a response
	Notification             // has a method and no id, and must not be answered
	Response                 // has a result or an error
	Batch                    // several messages in one array
)

// String returns the kind in lower case.
func (k Kind) String() string {
	switch k {
	case Request:
		return "request"
	case Notification:
		return "notification"
	case Response:
		return "response"
	case Batch:
		return "batch"
	}
	return "invalid"
}

// A Message is one JSON-RPC message. Which fields are set decides its [Kind].
type Message struct {
	ID     ID              // of a request, and of the response to it; zero on an error that answers no known request
	Method string          // of a request or notification
	Params json.RawMessage // of a request or notification: an object or array as it was sent, nil when absent
	Result json.RawMessage // of a response that is no error: any value as it was sent
	Error  *Error          // of a response that is an error

	// Batch holds the messages of a batch, in order. Elements that were refused are of kind Invalid.
	Batch []*Message

	// Refused says why an element of a batch was refused.
	Refused *DecodeError
}

// Kind tells what the message is by the fields that are set.
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

// NewRequest returns a request. params is a JSON object or array, or nil for none.
func NewRequest(id ID, method string, params json.RawMessage) *Message {
	return &Message{ID: id, Method: method, Params: params}
}

// NewNotification returns a notification. params is a JSON object or array, or nil for none.
func NewNotification(method string, params json.RawMessage) *Message {
	return &Message{Method: method, Params: params}
}

// NewResponse returns the successful response to the request with that id. A nil result is sent as an empty object,
// since a response cannot be without one.
func NewResponse(id ID, result json.RawMessage) *Message {
	if result == nil {
		result = json.RawMessage("{}")
	}
	return &Message{ID: id, Result: result}
}

// NewErrorResponse returns the failed response to the request with that id, or to no known request when id is zero.
func NewErrorResponse(id ID, err *Error) *Message {
	return &Message{ID: id, Error: err}
}
