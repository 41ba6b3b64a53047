package events

import (
	"encoding/json"
	"errors"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// Codes of the errors of the extension. With [Options].SketchCodes a server sends the codes of the
// design before SEP-3415, -32011 to -32015 in the same order; this package's client reads both.
//
// Spec: SEP-3415, Error Handling.
const (
	CodeNotFound          = -32023 // an event type or subscription does not exist; see [NotFound]
	CodeForbidden         = -32024 // the caller lacks the permission, or lost it; see [Forbidden]
	CodeResourceExhausted = -32025 // a limit was reached; see [Exhausted]
	CodeUnsupported       = -32026 // a delivery mode or option is not supported; see [Unsupported]
	CodeCallbackEndpoint  = -32027 // the endpoint of a webhook failed; data contains the reason
)

// sketchOffset is the difference between the codes of the design and of SEP-3415.
const sketchOffset = 12

// NotFound returns the error for an unknown entity. The kind is "event" or "subscription".
func NotFound(kind string) *mcp.Error {
	return newError(CodeNotFound, "unknown "+kind, map[string]any{"kind": kind})
}

// Forbidden returns the error for a caller without permission. The client sees the reason.
// [Source].Authorize returns it.
func Forbidden(reason string) *mcp.Error {
	return newError(CodeForbidden, "forbidden: "+reason, map[string]any{"reason": reason})
}

// Exhausted returns the error for a limit that was reached, such as "subscriptions" with at most n.
func Exhausted(limit string, n int) *mcp.Error {
	return newError(CodeResourceExhausted, "too many "+limit, map[string]any{"limit": limit, "max": n})
}

// Unsupported returns the error for a value of a feature that is not supported, such as "push" of
// "deliveryMode".
func Unsupported(feature, value string) *mcp.Error {
	return newError(CodeUnsupported, feature+" "+value+" is not supported",
		map[string]any{"feature": feature, "value": value})
}

// SchemaChanged returns the error for subscriptions that end because a schema of their event type,
// "inputSchema" or "payloadSchema", changed incompatibly. Pass it to [Type.Remove].
//
// Spec: SEP-3415, Event type removal and breaking changes.
func SchemaChanged(feature string) *mcp.Error {
	return newError(CodeUnsupported, feature+" changed",
		map[string]any{"feature": feature, "reason": "schema_changed"})
}

func newError(code int, message string, data map[string]any) *mcp.Error {
	raw, err := jsonv2.Marshal(data, jsonv2.Deterministic(true))
	if err != nil {
		raw = nil // strings that are not UTF-8: the message remains
	}
	return &mcp.Error{Code: code, Message: message, Data: json.RawMessage(raw)}
}

// asError returns the [*mcp.Error] in err, or nil.
func asError(err error) *mcp.Error {
	e, _ := errors.AsType[*mcp.Error](err)
	return e
}

// isFinal reports whether an error ends a subscription: it would recur, or access was revoked.
func isFinal(e *mcp.Error) bool {
	if e == nil {
		return false
	}
	switch e.Code {
	case CodeNotFound, CodeForbidden, CodeUnsupported, mcp.CodeInvalidParams, mcp.CodeMethodNotFound:
		return true
	}
	return false
}

// errFailed is sent for a failure whose text the client must not see.
var errFailed = mcp.Errorf(mcp.CodeInternalError, "the source of the events failed")

// withCode returns e with its code moved by offset, if it is a code of the extension. The first and
// last code delimit the range before the move.
func withCode(e *mcp.Error, last, first, offset int) *mcp.Error {
	if e == nil || e.Code < last || e.Code > first {
		return e
	}
	moved := *e
	moved.Code += offset
	return &moved
}

// toSketch returns the error with the code of the design before SEP-3415.
func toSketch(e *mcp.Error) *mcp.Error {
	return withCode(e, CodeCallbackEndpoint, CodeNotFound, sketchOffset)
}

// fromSketch returns the error with the code of SEP-3415.
func fromSketch(e *mcp.Error) *mcp.Error {
	return withCode(e, CodeCallbackEndpoint+sketchOffset, CodeNotFound+sketchOffset, -sketchOffset)
}
