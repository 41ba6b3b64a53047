package webhook

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/patchbay-mcp/patchbay/ext/events"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A Message is a delivery of a subscription: an event, a gap, or the end. Its text is not trusted,
// though its sender is known.
type Message struct {
	Subscription string // the ID of the subscription
	ID           string // the eventId of an event; unique for other messages
	Type         string // empty for an event, [TypeGap], or [TypeTerminated]

	Event  *events.Delivered // nil unless the message is an event
	Cursor string            // the position to keep, of an event or a gap; empty if there is none
	Error  *mcp.Error        // why the subscription ended; nil unless it did

	challenge string // of a verification
}

// maxChallenge limits the challenge of a verification, in bytes, since it is sent back.
const maxChallenge = 1 << 10

type messageMembers struct {
	Type      *string         `json:"type"`
	Challenge *string         `json:"challenge"`
	Error     json.RawMessage `json:"error"`
	ID        string          `json:"eventId"`
	Name      string          `json:"name"`
	Time      string          `json:"timestamp"`
	Data      json.RawMessage `json:"data"`
	Meta      mcp.Meta        `json:"_meta"`
	Cursor    *string         `json:"cursor"`
}

// parseMessage reads the body of a delivery with the identifier of its header. An event must have
// the same identifier, since both serve to recognize repetitions.
func parseMessage(id string, body []byte) (*Message, error) {
	var m messageMembers
	if err := jsonv2.Unmarshal(body, &m); err != nil {
		return nil, fmt.Errorf("decode the message: %w", err)
	}
	if jsontext.Value(body).Kind() != '{' {
		return nil, errors.New("the message is not a JSON object")
	}
	message := &Message{ID: id}
	if m.Cursor != nil {
		message.Cursor = *m.Cursor
	}
	if m.Type == nil {
		return message, m.event(message)
	}
	switch message.Type = *m.Type; message.Type {
	case TypeGap:
	case TypeTerminated:
		if err := jsonv2.Unmarshal(m.Error, &message.Error); err != nil || message.Error == nil {
			return nil, errors.New("the message contains no valid error")
		}
	case typeVerification:
		if m.Challenge == nil || *m.Challenge == "" || len(*m.Challenge) > maxChallenge {
			return nil, fmt.Errorf("the challenge must have 1 to %d bytes", maxChallenge)
		}
		message.challenge = *m.Challenge
	default:
		return nil, fmt.Errorf("unknown type %.64q of a message", message.Type)
	}
	return message, nil
}

// event sets the event of a message.
func (m *messageMembers) event(message *Message) error {
	at, err := time.Parse(time.RFC3339, m.Time)
	switch {
	case m.ID != message.ID:
		return errors.New("the eventId differs from webhook-id")
	case m.Name == "":
		return errors.New("the event has no name")
	case err != nil:
		return errors.New("the timestamp of the event is invalid")
	case jsontext.Value(m.Data).Kind() != '{':
		return errors.New("the data of the event is not an object")
	}
	message.Event = &events.Delivered{ID: m.ID, Name: m.Name, Time: at, Data: m.Data, Meta: m.Meta,
		Cursor: message.Cursor}
	return nil
}
