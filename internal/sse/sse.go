// Package sse encodes and decodes event streams (text/event-stream).
//
// [Append] encodes an event. A [Reader] decodes a stream. A Reader returns exactly the events that
// Append accepts.
//
// Spec: html.spec.whatwg.org/multipage/server-sent-events.html.
package sse

import "time"

// DefaultType is the type of an event without a type field.
const DefaultType = "message"

// MaxRetry is the maximum reconnection time that a [Reader] returns; longer ones are reduced to it.
const MaxRetry = 24 * time.Hour

// An Event is one event of a stream.
type Event struct {
	// ID is the id of the event, if HasID is set. An empty id resets the last event id.
	ID    string
	HasID bool

	// Type is the type of the event. An empty type is not encoded. A Reader returns DefaultType for
	// it.
	Type string

	// Data is the payload, with lines separated by "\n". Nil data is not encoded: readers then only
	// process the id and reconnection time. A Reader never returns nil. Data need not be UTF-8; the
	// caller must check it.
	Data []byte

	// Retry is the reconnection time, in whole milliseconds, if HasRetry is set.
	Retry    time.Duration
	HasRetry bool
}
