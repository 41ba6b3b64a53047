package events

import (
	"context"
	stdjson "encoding/json"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/ext/events"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// maxPolled limits the occurrences of a command, which stay in memory: with its cursor, the next
	// command continues.
	maxPolled = 10_000
	// maxPolledBytes limits their encoded size.
	maxPolledBytes = 64 << 20
)

// A pollReport is the value of "events poll --json", and the result of a poll.
//
// Spec: SEP-3415, Poll-Based Delivery.
type pollReport struct {
	Events     []*events.Delivered `json:"events"`
	Cursor     *string             `json:"cursor"`
	Truncated  bool                `json:"truncated"`
	HasMore    bool                `json:"hasMore"`
	NextPollMs int64               `json:"nextPollMs"`
}

type pollParams struct {
	Name      string             `json:"name"`
	Arguments stdjson.RawMessage `json:"arguments"`
	Cursor    *string            `json:"cursor"`
	MaxAge    int64              `json:"maxAgeMs,omitzero"`
}

// poll prints the occurrences after the cursor, as far as the server has them now.
func poll(ctx context.Context, o *Options, c *mcp.Client) error {
	e, arguments, err := prepare(ctx, o, c, "poll")
	if err != nil {
		return err
	}
	p := pollParams{Name: e.Name, Arguments: arguments, MaxAge: o.MaxAge.Milliseconds()}
	if o.Cursor != "" {
		p.Cursor = &o.Cursor
	}
	all, err := pollAll(ctx, c, p)
	if err != nil {
		return err
	}
	o.IO.Err.Done()
	if o.PrintedJSON(all) {
		return nil
	}
	if all.Truncated {
		o.IO.Err.Printf("patchbay: events after the cursor were skipped")
	}
	for _, d := range all.Events {
		show(o.Factory, d)
	}
	if all.HasMore {
		o.IO.Err.Printf("The server has more events.")
	}
	if all.Cursor != nil {
		showCursor(o.Factory, *all.Cursor)
	}
	return nil
}

// pollAll polls until the server has no more occurrences, or a limit is reached.
func pollAll(ctx context.Context, c *mcp.Client, p pollParams) (*pollReport, error) {
	all := &pollReport{Events: []*events.Delivered{}}
	for size := 0; ; {
		raw, err := c.Do(ctx, "events/poll", p)
		if err != nil {
			return nil, err
		}
		var r pollReport
		if err := json.Unmarshal(raw, &r); err != nil {
			return nil, fmt.Errorf("events/poll: %w: %w", mcp.ErrInvalidResult, err)
		}
		if slices.Contains(r.Events, nil) {
			return nil, fmt.Errorf("events/poll: %w: events contains null", mcp.ErrInvalidResult)
		}
		stuck := len(r.Events) == 0 || r.Cursor == nil || p.Cursor != nil && *r.Cursor == *p.Cursor
		all.Events, size = append(all.Events, r.Events...), size+len(raw)
		all.Cursor, all.HasMore, all.NextPollMs = r.Cursor, r.HasMore, r.NextPollMs
		all.Truncated = all.Truncated || r.Truncated
		if !r.HasMore || stuck || len(all.Events) >= maxPolled || size >= maxPolledBytes {
			return all, nil
		}
		p.Cursor, p.MaxAge = r.Cursor, 0 // the age limits the replay at the first cursor
	}
}
