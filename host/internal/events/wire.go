// Package events follows the events of a server for a subscription of a caller, in the mode of delivery that the
// server offers, and keeps events for callers that poll while the server pushes.
//
// The package knows the messages of the extension, but no policy, no names of callers and no connections: a
// [Source] sends the requests. Events of a server are decoded and encoded again, so that only the members
// that the extension defines reach a caller.
//
// Spec: SEP-3415.
package events

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/ext/events"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// Notifications of a stream.
const (
	Active     = "notifications/events/active"
	Occurred   = "notifications/events/event"
	Failed     = "notifications/events/error"
	Heartbeat  = "notifications/events/heartbeat"
	Terminated = "notifications/events/terminated"
)

const (
	// maxEvent limits an event in bytes: servers should keep events below 256 KiB.
	maxEvent = 1 << 20
	// maxID limits the ID of an event in bytes. IDs of real systems have at most a few hundred.
	maxID = 1 << 10
	// maxMessage limits the message and the data of an error within a stream, in bytes.
	maxMessage = 2 << 10
)

// IsFinal reports whether an error of a server ends a subscription. After other errors, the server may be asked
// again.
func IsFinal(err error) bool {
	e, ok := errors.AsType[*mcp.Error](err)
	return ok && slices.Contains([]int{events.CodeNotFound, events.CodeForbidden, events.CodeUnsupported,
		mcp.CodeInvalidParams, mcp.CodeMethodNotFound}, e.Code)
}

// A Request contains the params of events/poll and events/stream.
type Request struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments,omitzero"`
	Cursor    *string         `json:"cursor"`
	MaxAge    *int64          `json:"maxAgeMs,omitzero"`
	MaxEvents int             `json:"maxEvents,omitzero"` // events/poll only
}

// ParseRequest reads the params of a caller.
func ParseRequest(params json.RawMessage) (*Request, error) {
	r := &Request{}
	if err := jsonv2.Unmarshal(params, r); err != nil {
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "invalid params: must contain a name, and arguments, cursor, "+
			"maxAgeMs and maxEvents of the types that the extension defines")
	}
	switch {
	case r.Arguments != nil && !jsonscan.IsObject(r.Arguments):
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "invalid params.arguments: must be an object")
	case r.MaxEvents < 0, r.MaxAge != nil && *r.MaxAge < 0:
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "invalid params: maxEvents and maxAgeMs must not be negative")
	}
	return r, nil
}

// An Event is an occurrence.
type Event struct {
	ID   string          `json:"eventId"`
	Name string          `json:"name"`
	Time time.Time       `json:"timestamp"`
	Data json.RawMessage `json:"data"`
}

func (e *Event) check() error {
	switch {
	case e.ID == "" || len(e.ID) > maxID:
		return fmt.Errorf("invalid eventId: must be a string of 1 to %d bytes", maxID)
	case !jsonscan.IsObject(e.Data):
		return errors.New("invalid data: must be an object")
	}
	return nil
}

// A message contains the members of all notifications of a server's stream.
type message struct {
	Event
	Cursor    *string `json:"cursor"`
	Truncated bool    `json:"truncated"`
	Error     struct {
		Code    int             `json:"code"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data"`
	} `json:"error"`
}

// fault returns the error of a notification.
func (m *message) fault() *mcp.Error {
	text := m.Error.Message
	text = strings.ToValidUTF8(text[:min(len(text), maxMessage)], "") // the last character may be cut
	e := mcp.Errorf(m.Error.Code, "%s", text)
	if jsonscan.IsObject(m.Error.Data) && len(m.Error.Data) <= maxMessage {
		e.Data = m.Error.Data
	}
	return e
}

// A batch is the result of events/poll of a server.
type batch struct {
	Events    []json.RawMessage `json:"events"`
	Cursor    *string           `json:"cursor"`
	Truncated bool              `json:"truncated"`
	HasMore   bool              `json:"hasMore"`
	NextPoll  float64           `json:"nextPollMs"`
}

// A Result is the result of events/poll for a caller.
type Result struct {
	Events    []Event `json:"events"`
	Cursor    *string `json:"cursor"`
	Truncated bool    `json:"truncated"`
	HasMore   bool    `json:"hasMore"`
	NextPoll  int64   `json:"nextPollMs"`
	// Failed counts events that were left out, because they were invalid.
	Failed int `json:"-"`
	// At is the position after the events, without the server.
	At Cursor `json:"-"`
}

// ResultType returns "complete".
func (r *Result) ResultType() string { return driver.ResultComplete }

// ResultMeta returns nil.
func (r *Result) ResultMeta() mcp.Meta { return nil }

// ParseResult reads the result of a server's events/poll.
func ParseResult(raw json.RawMessage) (*Result, error) {
	var b batch
	if err := jsonv2.Unmarshal(raw, &b); err != nil {
		return nil, fmt.Errorf("invalid result of events/poll: %w", err)
	}
	r := &Result{Events: []Event{}, Cursor: b.Cursor, Truncated: b.Truncated, HasMore: b.HasMore,
		At:       Cursor{Position: b.Cursor},
		NextPoll: int64(min(max(b.NextPoll, 0), float64(maxPoll.Milliseconds())))}
	for _, raw := range b.Events {
		var e Event
		if len(raw) > maxEvent || jsonv2.Unmarshal(raw, &e) != nil || e.check() != nil {
			r.Failed++
			continue
		}
		r.Events = append(r.Events, e)
	}
	return r, nil
}
