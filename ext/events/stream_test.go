package events_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/events"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

func TestStreamDeliversAsTheyOccur(t *testing.T) {
	s, srv := newServer(t, nil)
	builds := events.Add(srv, &events.Event{Name: "build.finished"}, onBranch)
	run(t, s, func(t *testing.T, c *mcptest.Client) {
		p := c.Send("events/stream", object{"name": "build.finished", "arguments": object{"branch": "main"}})
		c.Await(1, "notifications/events/active")
		emit(t, builds, 1, "main")
		emit(t, builds, 2, "fix")
		emit(t, builds, 3, "main")
		c.Await(2, "notifications/events/event")
		c.Await(1, "notifications/events/heartbeat")
		emit(t, builds, 4, "main")
		c.Await(3, "notifications/events/event")
		p.Cancel("enough")
		synctest.Wait()
		emit(t, builds, 5, "main")
		synctest.Wait()
		wantFrames(t, c, "active", `event b1 {"number":1,"branch":"main"}`, `event b3 {"number":3,"branch":"main"}`,
			"heartbeat", `event b4 {"number":4,"branch":"main"}`)
		last := ""
		for i, m := range c.Notifications() {
			f := decode[struct {
				Cursor string
				Meta   struct {
					ID any `json:"io.modelcontextprotocol/subscriptionId"`
				} `json:"_meta"`
			}](t, m.Params)
			if fmt.Sprint(f.Meta.ID) != p.ID.String() {
				t.Errorf("got subscription id %v, want %v", f.Meta.ID, p.ID)
			}
			if quiet := m.Method == "notifications/events/heartbeat"; f.Cursor == "" || (f.Cursor == last) != quiet {
				t.Errorf("notification %d has cursor %q after %q", i, f.Cursor, last)
			}
			last = f.Cursor
		}
		if again := pollOnce(t, c, object{"name": "build.finished", "cursor": last}); again.String() != "b5" {
			t.Errorf("got %q after the stream", again)
		}
	})
}

func TestStreamContinuesAtPosition(t *testing.T) {
	s, srv := newServer(t, &events.Options{BufferEvents: 2})
	builds := events.Add(srv, &events.Event{Name: "build.finished"}, onBranch)
	c := mcptest.Connect(t, s, mcptest.Since(mcptest.Modern)[0], &mcptest.Options{Extension: extension})
	start := pollOnce(t, c, object{"name": "build.finished"})
	for i := range 3 {
		emit(t, builds, i+1, "")
	}
	lost := c.Send("events/stream", object{"name": "build.finished", "cursor": start.Cursor})
	c.Await(2, "notifications/events/event")
	lost.Cancel("enough")
	wantFrames(t, c, "active truncated", `event b2 {"number":2}`, `event b3 {"number":3}`)
}

// The limit of age is for the replay: a later occurrence is delivered, whatever its time.
func TestStreamDeliversLateOccurrences(t *testing.T) {
	s, srv := newServer(t, nil)
	builds := events.Add(srv, &events.Event{Name: "build.finished"}, onBranch)
	run(t, s, func(t *testing.T, c *mcptest.Client) {
		start := pollOnce(t, c, object{"name": "build.finished"})
		emit(t, builds, 1, "")
		c.Send("events/stream", object{"name": "build.finished", "cursor": start.Cursor, "maxAgeMs": 60_000})
		c.Await(1, "notifications/events/event")
		emit(t, builds, 2, "")
		c.Await(2, "notifications/events/event")
		late := events.Occurrence[build]{ID: "late", Time: time.Now().Add(-time.Hour), Data: build{Number: 3}}
		if err := builds.Emit(late); err != nil {
			t.Error(err)
		}
		c.Await(3, "notifications/events/event")
		wantFrames(t, c, "active", `event b1 {"number":1}`, `event b2 {"number":2}`, `event late {"number":3}`)
	})
}

// A stream is not closed by a failure or a gap of its source, and ends when access is revoked.
func TestStreamOutlivesFailuresAndGaps(t *testing.T) {
	var step atomic.Int32
	s, srv := newServer(t, &events.Options{Recheck: time.Hour})
	events.Add(srv, &events.Event{Name: "upstream"}, events.Source[struct{}, build]{
		Interval: time.Second,
		Check: func(_ context.Context, _ struct{}, at events.Position) (events.Batch[build], error) {
			switch step.Add(1) {
			case 2:
				return events.Batch[build]{}, errors.New("secret text")
			case 3:
				return events.Batch[build]{}, mcp.Errorf(-32603, "upstream is down")
			case 4:
				return events.Batch[build]{Cursor: "9", Truncated: true}, nil
			case 5:
				return events.Batch[build]{Cursor: "10",
					Events: []events.Occurrence[build]{{ID: "b1", Data: build{Number: 1}}}}, nil
			}
			return events.Batch[build]{Cursor: at.Cursor + "+"}, nil
		},
		Authorize: func(context.Context, struct{}) error {
			if step.Load() > 100 {
				return events.Forbidden("no access")
			}
			return nil
		},
	})
	run(t, s, func(t *testing.T, c *mcptest.Client) {
		step.Store(0)
		c.Options.Timeout = 2 * time.Hour
		p := c.Send("events/stream", object{"name": "upstream"})
		if m := p.Wait(); m.Error != nil || !strings.Contains(string(m.Result), `"resultType":"complete"`) ||
			!strings.Contains(string(m.Result), `/subscriptionId":`+p.ID.String()) {
			t.Errorf("got result %s, error %v", m.Result, m.Error)
		}
		var got []string
		for _, f := range frames(t, c) {
			if f != "heartbeat" {
				got = append(got, f)
			}
		}
		want := []string{"active", "error -32603 ", "error -32603 ", "active truncated", `event b1 {"number":1}`,
			`terminated -32024 {"reason":"no access"}`}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("got %q, want %q", got, want)
		}
		for _, m := range c.Notifications("notifications/events/error") {
			if strings.Contains(string(m.Params), "secret") {
				t.Errorf("got %s", m.Params)
			}
		}
	})
}

func TestRemovalEndsStreams(t *testing.T) {
	s, srv := newServer(t, nil)
	for name, test := range map[string]struct {
		reason *mcp.Error
		want   string
	}{
		"removed": {nil, `terminated -32023 {"kind":"event"}`},
		"changed": {events.SchemaChanged("payloadSchema"),
			`terminated -32026 {"feature":"payloadSchema","reason":"schema_changed"}`},
	} {
		run(t, s, func(t *testing.T, c *mcptest.Client) {
			typ := events.Add(srv, &events.Event{Name: name}, onBranch)
			p := c.Send("events/stream", object{"name": name})
			c.Await(1, "notifications/events/active")
			if err := typ.Update(func(e *events.Event) { e.Description = "New" }); err != nil { // ends nothing
				t.Error(err)
			}
			synctest.Wait()
			typ.Remove(test.reason)
			if m := p.Wait(); m.Error != nil {
				t.Error(m.Error)
			}
			wantFrames(t, c, "active", test.want)
			wantError(t, c, "events/poll", object{"name": name}, events.CodeNotFound, `{"kind":"event"}`)
		})
	}
}

func TestStreamsAreLimitedPerPrincipal(t *testing.T) {
	s, srv := newServer(t, &events.Options{MaxStreamsPerPrincipal: 2, MaxStreams: 3})
	events.Add(srv, &events.Event{Name: "build.finished"}, onBranch)
	run(t, s, func(t *testing.T, c *mcptest.Client) {
		params := object{"name": "build.finished"}
		first := c.Send("events/stream", params)
		c.Send("events/stream", params)
		c.Await(2, "notifications/events/active")
		wantError(t, c, "events/stream", params, events.CodeResourceExhausted, `{"limit":"streams","max":2}`)
		other := c.Another(&mcptest.Options{Extension: extension, Principal: &mcp.Principal{Subject: "ann"}})
		other.Send("events/stream", params)
		other.Await(1, "notifications/events/active")
		wantError(t, other, "events/stream", params, events.CodeResourceExhausted,
			`{"limit":"streams of all callers","max":3}`)
		first.Cancel("enough")
		synctest.Wait()
		c.Send("events/stream", params)
		c.Await(3, "notifications/events/active")
	})
}

// The server ends its streams at once when it shuts down.
func TestShutdownEndsStreams(t *testing.T) {
	s, srv := newServer(t, nil)
	events.Add(srv, &events.Event{Name: "build.finished"}, onBranch)
	run(t, s, func(t *testing.T, c *mcptest.Client) {
		p := c.Send("events/stream", object{"name": "build.finished"})
		c.Await(1, "notifications/events/active")
		began := time.Now()
		c.Shutdown()
		if m := p.Wait(); m.Error != nil || time.Since(began) > time.Second {
			t.Errorf("got error %v after %v", m.Error, time.Since(began))
		}
	})
}

// Feeds serve delivery modes of other packages, without a request in progress.
func TestFeedForOtherModes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, srv := newServer(t, nil)
		ann := &mcp.Principal{Subject: "ann"}
		forAnn := onBranch
		forAnn.Authorize = func(ctx context.Context, _ filter) error {
			if mcp.PrincipalFrom(ctx) != ann {
				return events.Forbidden("not ann")
			}
			return nil
		}
		builds := events.Add(srv, &events.Event{Name: "build.finished"}, forAnn)
		sub := events.Subscription{Principal: ann, Name: "build.finished"}
		if _, err := srv.Open(t.Context(), events.ModeWebhook, sub, events.Start{}); err == nil {
			t.Error("the mode is not offered")
		}
		srv.Offer(events.ModeWebhook)
		f, err := srv.Open(t.Context(), events.ModeWebhook, sub, events.Start{})
		if err != nil {
			t.Fatal(err)
		}
		emit(t, builds, 1, "") // after Open and before Items
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for item, err := range f.Items(ctx) {
			if err != nil || item.Event == nil {
				t.Fatalf("got %+v, %v", item, err)
			}
			raw, err := item.Event.Encode(item.Cursor)
			if err != nil || !strings.Contains(string(raw), `"cursor":"`+item.Cursor+`"`) ||
				!strings.Contains(string(raw), `"eventId":"b1"`) {
				t.Errorf("got %s, %v", raw, err)
			}
			break
		}
	})
}
