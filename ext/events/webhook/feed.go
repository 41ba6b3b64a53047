package webhook

import (
	"context"
	"encoding/json"
	"iter"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// A Subscription selects the events that a principal receives.
type Subscription struct {
	Principal *mcp.Principal  // stored without its claims
	Name      string          // of the event
	Arguments json.RawMessage // an object; nil for an empty object
}

// Start is where a subscription begins.
type Start struct {
	Cursor *string       // nil: from now
	MaxAge time.Duration // of the events after the cursor; 0 for no limit
}

// An Item of a [Feed] is an event, a gap, or the position of a quiet feed.
type Item struct {
	Event  *Delivered // nil for a gap and a position
	Cursor *string    // after a gap, or of a position; nil if events cannot be replayed
	Gap    bool       // events were skipped
}

// Delivered is an event of a subscription.
type Delivered struct {
	ID     string // its eventId
	Name   string
	Time   time.Time
	Data   json.RawMessage // an object
	Meta   json.RawMessage // an object; nil if absent
	Cursor *string         // the position after the event; nil if events cannot be replayed
}

// AppendJSON appends the EventOccurrence with a cursor. It appends nothing if a member is not valid
// JSON.
//
// Spec: SEP-3415, Event Occurrences.
func (d *Delivered) AppendJSON(dst []byte, cursor *string) []byte {
	body, err := jsonv2.Marshal(struct {
		ID     string          `json:"eventId"`
		Name   string          `json:"name"`
		Time   time.Time       `json:"timestamp"`
		Data   json.RawMessage `json:"data"`
		Cursor *string         `json:"cursor"`
		Meta   json.RawMessage `json:"_meta,omitzero"`
	}{d.ID, d.Name, d.Time, d.Data, cursor, d.Meta})
	if err != nil {
		return dst
	}
	return append(dst, body...)
}

// A Feed produces the events of subscriptions. Its methods are called concurrently.
type Feed interface {
	// Begin checks a new subscription and returns the position at which it begins, and whether
	// events after the cursor of its start are skipped. An [*mcp.Error] is for the client.
	Begin(ctx context.Context, s Subscription, at Start) (cursor *string, truncated bool, err error)
	// Follow yields the items after a cursor, in order, until ctx ends. It waits while the loop
	// body runs. An error is the last value: an [*mcp.Error] with CodeNotFound, CodeForbidden or
	// CodeUnsupported ends the subscription; after any other error Follow is called again.
	Follow(ctx context.Context, s Subscription, cursor *string) iter.Seq2[Item, error]
}

// Codes of errors.
//
// Spec: SEP-3415, Error Handling.
const (
	CodeNotFound          = -32023 // unknown event or subscription
	CodeForbidden         = -32024 // not permitted, or not any more
	CodeResourceExhausted = -32025 // a limit of the server was reached
	CodeUnsupported       = -32026 // not supported for this event
	CodeCallbackEndpoint  = -32027 // the endpoint cannot be reached, or did not answer its challenge
)
