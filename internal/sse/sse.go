// Package sse encodes and decodes event streams (text/event-stream).
//
// [Append] encodes an event. A [Reader] decodes a stream. A Reader returns exactly the events that
// Append accepts.
//
// Spec: html.spec.whatwg.org/multipage/server-sent-events.html.
package sse

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"time"
)

// DefaultType is the type of an event without a type field.
const DefaultType = "message"

// MaxRetry is the maximum reconnection time that a [Reader] returns; longer times are reduced to
// it.
const MaxRetry = 24 * time.Hour

// An Event is an event of a stream.
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

// Errors of [Append] for events that a stream cannot represent.
var (
	ErrBadID    = errors.New("event id holds a NUL or a line break")
	ErrBadType  = errors.New("event type holds a NUL or a line break")
	ErrBadData  = errors.New("event data holds a carriage return")
	ErrBadRetry = errors.New("reconnection time is negative")
)

var lineBreak = []byte{'\n'}

// Append appends the encoded event to dst, including the blank line at its end. It returns dst
// unchanged and an error for an event that would be decoded differently: with a NUL or line break
// in the id or type, a carriage return in the data, or a negative retry.
func Append(dst []byte, e Event) ([]byte, error) {
	switch {
	case e.HasID && !isLine(e.ID):
		return dst, ErrBadID
	case !isLine(e.Type):
		return dst, ErrBadType
	case bytes.IndexByte(e.Data, '\r') >= 0:
		return dst, ErrBadData
	case e.HasRetry && e.Retry < 0:
		return dst, ErrBadRetry
	}
	if e.HasID {
		dst = append(append(append(dst, "id: "...), e.ID...), '\n')
	}
	if e.Type != "" {
		dst = append(append(append(dst, "event: "...), e.Type...), '\n')
	}
	if e.HasRetry {
		dst = append(dst, "retry: "...)
		dst = append(strconv.AppendInt(dst, int64(e.Retry/time.Millisecond), 10), '\n')
	}
	if e.Data != nil {
		for rest, more := e.Data, true; more; {
			var line []byte
			line, rest, more = bytes.Cut(rest, lineBreak)
			dst = append(append(append(dst, "data: "...), line...), '\n')
		}
	}
	return append(dst, '\n'), nil
}

// isLine reports whether a field can contain the value: it contains no NUL and no line break.
func isLine(value string) bool { return !strings.ContainsAny(value, "\x00\n\r") }

// AppendComment appends text to dst as a comment, which readers ignore. It keeps an idle connection
// open. Every line of text becomes a comment line.
func AppendComment(dst []byte, text string) []byte {
	text = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text)
	for line := range strings.SplitSeq(text, "\n") {
		dst = append(append(append(dst, ": "...), line...), '\n')
	}
	return append(dst, '\n')
}
