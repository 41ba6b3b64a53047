// Package jsonrpc implements the messages of JSON-RPC 2.0 as MCP uses them, with a strict codec.
//
// [Decode] decodes a [Message], [Append] encodes one. Decode reads a message in one pass and
// rejects any text that two readers could understand differently, with a [*DecodeError] that has
// the response to send. Params, results and error data stay raw JSON.
//
// The package starts no goroutines and does not know the methods of MCP. Messages are plain values:
// they are safe for concurrent reads.
//
// Spec: basic/index#messages.
package jsonrpc

import "encoding/json"

// Error codes that JSON-RPC defines. Package mcp has the codes of MCP. Spec: basic/index#responses.
const (
	CodeParseError     = -32700 // the text is not valid JSON
	CodeInvalidRequest = -32600 // the JSON is not a valid message
	CodeMethodNotFound = -32601 // the receiver does not support the method
	CodeInvalidParams  = -32602 // the params are not valid for the method
	CodeInternalError  = -32603 // the receiver failed
)

// A Kind is the kind of a [Message].
type Kind uint8

// The kinds. Only revision 2025-03-26 has Batch.
const (
	Invalid      Kind = iota // rejected, or empty
	Request                  // has a method and an id
	Notification             // has a method and no id; gets no response
	Response                 // has a result or an error
	Batch                    // several messages in one array
)

// A Message is a JSON-RPC message. The fields that are set determine its [Kind].
type Message struct {
	ID     ID              // of a request or response; zero in an error that answers no known request
	Method string          // of a request or notification
	Params json.RawMessage // of a request or notification: an object or array as received; nil if absent
	Result json.RawMessage // of a successful response: any value as received
	Error  *Error          // of a failed response

	// Batch holds the messages of a batch, in order. Rejected ones are of kind Invalid.
	Batch []*Message

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

// NewRequest returns a request. params must be a JSON object or array, or nil.
func NewRequest(id ID, method string, params json.RawMessage) *Message {
	return &Message{ID: id, Method: method, Params: params}
}

// NewNotification returns a notification. params must be a JSON object or array, or nil.
func NewNotification(method string, params json.RawMessage) *Message {
	return &Message{Method: method, Params: params}
}

// NewResponse returns a successful response to the request with the id. A nil result is sent as an
// empty object, since responses require one.
func NewResponse(id ID, result json.RawMessage) *Message {
	if result == nil {
		result = json.RawMessage("{}")
	}
	return &Message{ID: id, Result: result}
}

// NewErrorResponse returns a failed response to the request with the id. A zero id means that the
// request is unknown.
func NewErrorResponse(id ID, err *Error) *Message {
	return &Message{ID: id, Error: err}
}
