// Package sse writes and reads event streams, the text/event-stream of the WHATWG.
//
// [Append] makes the bytes of an event, [Reader] takes a stream apart. Whatever Append accepts, Reader gives back.
//
// Spec: html.spec.whatwg.org/multipage/server-sent-events.html.
package sse

import "time"

// DefaultType is the type of an event that names none.
const DefaultType = "message"

// MaxRetry is the longest reconnection time that a [Reader] reports; a longer one is read as it.
const MaxRetry = 24 * time.Hour

// An Event is one event of a stream.
type Event struct {
	// ID is this event's own id. It counts only when HasID is set: an empty id is one too, and forgets the one before.
	ID    string
	HasID bool

	// Type is the type of the event. Empty, it is not written; what is read has DefaultType then.
	Type string

	// Data is the payload, its lines separated by "\n". Nil, it is not written, and readers will not see the event but
	// only take note of its id and reconnection time; what is read is never nil. It is handed on byte for byte, also
	// when it is not UTF-8: refusing that is for the decoder behind.
	Data []byte

	// Retry is how long to wait before connecting again, in whole milliseconds. It counts only when HasRetry is set.
	Retry    time.Duration
	HasRetry bool
}
