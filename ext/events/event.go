package events

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/jsonschema"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	maxName     = 128 // bytes of the name of an event type, as of a tool
	maxEventID  = 256 // bytes of the id of an occurrence, which clients remember
	maxCursor   = 4 << 10
	maxArgument = 64 << 10 // bytes of the arguments of a subscription, which are kept while it is open
	// maxData limits a payload, so that the body of a webhook stays below 256 KiB. Spec: SEP-3415,
	// Delivery profile.
	maxData = 250 << 10
)

// An Event describes an event type.
//
// Spec: SEP-3415, Listing Available Events.
type Event struct {
	// Name identifies the event type, such as "build.finished": 1 to 128 letters, digits, dots,
	// dashes and underscores.
	Name string `json:"name"`
	// Description says when the event occurs, for people and models.
	Description string `json:"description"`
	// Delivery contains the supported delivery modes. Default in a server: all modes that the server
	// offers.
	Delivery []Mode `json:"delivery"`
	// InputSchema is the JSON Schema of the arguments of a subscription. Default in a server: derived
	// from the type of the arguments, as [mcp.AddTool] does.
	InputSchema json.RawMessage `json:"inputSchema"`
	// PayloadSchema is the JSON Schema of the payloads. Default in a server: derived from their type.
	PayloadSchema json.RawMessage `json:"payloadSchema"`
	Meta          mcp.Meta        `json:"_meta,omitzero"`
}

func checkName(name string) error {
	if name == "" || len(name) > maxName {
		return fmt.Errorf("the name has %d characters, want 1 to %d", len(name), maxName)
	}
	for _, c := range []byte(name) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-', c == '.':
		default:
			return fmt.Errorf("the name contains %q, want only A-Z a-z 0-9 _ - and dot", c)
		}
	}
	return nil
}

// An Occurrence is a single event. Data is its payload, an object.
//
// Spec: SEP-3415, Event Occurrences.
type Occurrence[Payload any] struct {
	// ID identifies the occurrence, so that receivers drop duplicates: use the identifier of the
	// system that the event comes from. It has at most 256 bytes. Default in a server: random.
	ID string
	// Time is when the event occurred. Default in a server: now.
	Time time.Time
	Data Payload
	// Cursor is the position after the occurrence, empty if it is not known. A server that emits
	// occurrences leaves it empty.
	Cursor string
	Meta   mcp.Meta
}

// A Delivered is an encoded occurrence, for a subscription.
type Delivered struct {
	ID     string          `json:"eventId"`
	Name   string          `json:"name"` // of the event type
	Time   time.Time       `json:"timestamp"`
	Data   json.RawMessage `json:"data"`
	Cursor string          `json:"-"` // the position after the occurrence; empty if there is no replay
	Meta   mcp.Meta        `json:"_meta,omitzero"`
}

// Encode returns the occurrence as a JSON object, with a member cursor that contains the given
// position, or null if it is empty.
func (d *Delivered) Encode(cursor string) (json.RawMessage, error) {
	raw, err := jsonv2.Marshal(struct {
		Occurrence *Delivered `json:",embed"`
		Cursor     *string    `json:"cursor"`
	}{d, nullable(cursor)}, jsonv2.Deterministic(true))
	return json.RawMessage(raw), err
}

// nullable returns the cursor as it is sent: null if there is none.
func nullable(cursor string) *string {
	if cursor == "" {
		return nil
	}
	return &cursor
}

// deliver encodes an occurrence, with defaults for its ID and time.
func deliver[Payload any](name string, schema *jsonschema.Schema, o *Occurrence[Payload]) (*Delivered, error) {
	if o.ID == "" {
		o.ID = rand.Text()
	}
	if o.Time.IsZero() {
		o.Time = time.Now()
	}
	if len(o.ID) > maxEventID || len(o.Cursor) > maxCursor {
		return nil, fmt.Errorf("event %q: the id has %d bytes and the cursor %d, want at most %d and %d",
			name, len(o.ID), len(o.Cursor), maxEventID, maxCursor)
	}
	data, err := jsonv2.Marshal(o.Data, jsonv2.Deterministic(true))
	switch {
	case err != nil:
		return nil, fmt.Errorf("event %q, id %q: encode the payload: %w", name, o.ID, err)
	case len(data) > maxData:
		return nil, fmt.Errorf("event %q, id %q: the payload has %d bytes, want at most %d: "+
			"send an identifier with which clients fetch the rest", name, o.ID, len(data), maxData)
	}
	if err := schema.Validate(data); err != nil {
		return nil, fmt.Errorf("event %q, id %q: invalid payload: %w", name, o.ID, err)
	}
	return &Delivered{ID: o.ID, Name: name, Time: o.Time.UTC(), Data: data, Cursor: o.Cursor, Meta: o.Meta}, nil
}
