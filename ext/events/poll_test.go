package events_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/events"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

func TestPollReturnsWhatWasEmitted(t *testing.T) {
	s, srv := newServer(t, nil)
	builds := events.Add(srv, &events.Event{Name: "build.finished"}, onBranch)
	emit(t, builds, 99, "main") // before the subscription
	number := 0
	run(t, s, func(t *testing.T, c *mcptest.Client) {
		start := pollOnce(t, c, object{"name": "build.finished", "cursor": nil})
		if start.String() != "" || start.Cursor == nil || start.NextPollMs != 1000 || start.ResultType != "complete" {
			t.Fatalf("got %v, %+v", start, start)
		}
		var ids []string
		for _, branch := range []string{"main", "fix", "main"} {
			number++
			emit(t, builds, number, branch)
			ids = append(ids, fmt.Sprint("b", number))
		}
		for _, test := range []struct {
			args object
			max  any
			want string
		}{
			{nil, nil, strings.Join(ids, " ")},
			{object{"branch": "main"}, nil, ids[0] + " " + ids[2]},
			{object{"branch": "main"}, 1, ids[0] + " more"},
			{object{"branch": "none"}, nil, ""},
		} {
			params := object{"name": "build.finished", "arguments": test.args, "cursor": start.Cursor}
			if test.max != nil {
				params["maxEvents"] = test.max
			}
			got := pollOnce(t, c, params)
			if got.String() != test.want {
				t.Errorf("%v: got %q, want %q", test.args, got, test.want)
			}
			params["cursor"] = got.Cursor
			rest := strings.TrimSuffix(strings.TrimPrefix(test.want, ids[0]+" more"), test.want)
			if got := pollOnce(t, c, params); test.max != nil && got.String() != ids[2] ||
				test.max == nil && got.String() != rest {
				t.Errorf("%v: got %q at the next poll", test.args, got)
			}
		}
		terse := pollOnce(t, c, object{"name": "build.finished", "arguments": object{"terse": true}, "cursor": start.Cursor})
		if got := string(terse.Events[0].Data); got != fmt.Sprintf(`{"number":%s}`, ids[0][1:]) {
			t.Errorf("got payload %s", got)
		}
	})
}

func TestPollRefusesInvalidParams(t *testing.T) {
	s, srv := newServer(t, nil)
	events.Add(srv, &events.Event{Name: "pushed", Delivery: []events.Mode{events.ModePush}}, onBranch)
	events.Add(srv, &events.Event{Name: "build.finished"}, onBranch)
	run(t, s, func(t *testing.T, c *mcptest.Client) {
		wantError(t, c, "events/poll", object{"name": "pushed"}, events.CodeUnsupported,
			`{"feature":"deliveryMode","value":"poll"}`)
		wantError(t, c, "events/poll", object{"name": "none"}, events.CodeNotFound, `{"kind":"event"}`)
		for key, value := range map[string]any{
			"arguments": []int{}, "cursor": 7, "maxAgeMs": -1, "maxEvents": 0, "name": strings.Repeat("x", 200),
		} {
			params := object{"name": "build.finished", key: value}
			wantError(t, c, "events/poll", params, mcp.CodeInvalidParams, "")
			if key != "maxEvents" {
				wantError(t, c, "events/stream", params, mcp.CodeInvalidParams, "")
			}
		}
		wantError(t, c, "events/poll", object{}, mcp.CodeInvalidParams, "")
		wantError(t, c, "events/poll", object{"name": "build.finished", "arguments": object{"branch": 7}},
			mcp.CodeInvalidParams, "")
		wantError(t, c, "events/poll", object{"name": "build.finished",
			"arguments": object{"branch": strings.Repeat("x", 70<<10)}}, mcp.CodeInvalidParams, "")
		wantError(t, c, "events/poll", object{"name": "build.finished", "cursor": strings.Repeat("x", 5<<10)},
			mcp.CodeInvalidParams, "")
	})
}

// A position that the server no longer knows is not an error: the poll starts at the oldest
// occurrence and says so.
func TestLostPositionsAreTruncated(t *testing.T) {
	s, srv := newServer(t, &events.Options{BufferEvents: 3, BufferAge: time.Hour})
	builds := events.Add(srv, &events.Event{Name: "build.finished"}, onBranch)
	c := mcptest.Connect(t, s, mcptest.Since(mcptest.Modern)[0], &mcptest.Options{Extension: extension})
	start := pollOnce(t, c, object{"name": "build.finished"})
	for i := range 5 {
		emit(t, builds, i+1, "main")
	}
	for _, cursor := range []string{*start.Cursor, "elsewhere.3", *start.Cursor + "zz", "x", "."} {
		got := pollOnce(t, c, object{"name": "build.finished", "cursor": cursor})
		if want := "b3 b4 b5 truncated"; got.String() != want {
			t.Errorf("cursor %q: got %q, want %q", cursor, got, want)
		}
		if got := pollOnce(t, c, object{"name": "build.finished", "cursor": got.Cursor}); got.String() != "" {
			t.Errorf("cursor %q: got %q at the next poll", cursor, got)
		}
	}
}

func TestMaxAgeLimitsReplay(t *testing.T) {
	s, srv := newServer(t, nil)
	builds := events.Add(srv, &events.Event{Name: "build.finished"}, onBranch)
	old := events.Occurrence[build]{ID: "old", Time: time.Now().Add(-time.Hour), Data: build{Number: 1}}
	checked := events.Source[filter, build]{
		Check: func(_ context.Context, _ filter, at events.Position) (events.Batch[build], error) {
			if at.Cursor == "" {
				return events.Batch[build]{Cursor: "0"}, nil
			}
			return events.Batch[build]{Cursor: "2", Events: []events.Occurrence[build]{old,
				{ID: "new", Data: build{Number: 2}}}}, nil
		},
	}
	events.Add(srv, &events.Event{Name: "checked"}, checked)
	c := mcptest.Connect(t, s, mcptest.Since(mcptest.Modern)[0], &mcptest.Options{Extension: extension})
	for _, name := range []string{"build.finished", "checked"} {
		start := pollOnce(t, c, object{"name": name, "maxAgeMs": 1})
		if start.String() != "" {
			t.Errorf("%s: got %q from now on", name, start)
		}
		if name == "build.finished" {
			if err := builds.Emit(old); err != nil {
				t.Fatal(err)
			}
			if err := builds.Emit(events.Occurrence[build]{ID: "new", Data: build{Number: 2}}); err != nil {
				t.Fatal(err)
			}
		}
		for maxAge, want := range map[int]string{int(2 * time.Hour / time.Millisecond): "old new", 60_000: "new truncated"} {
			got := pollOnce(t, c, object{"name": name, "cursor": start.Cursor, "maxAgeMs": maxAge})
			if got.String() != want {
				t.Errorf("%s, max age %d: got %q, want %q", name, maxAge, got, want)
			}
		}
	}
}

// counter is a source with a history of its own: the numbers up to a limit.
func counter(limit int, withCursors bool) events.Source[struct{}, build] {
	return events.Source[struct{}, build]{
		Interval: 30 * time.Second,
		Check: func(_ context.Context, _ struct{}, at events.Position) (b events.Batch[build], err error) {
			if at.Cursor == "" {
				b.Cursor = "0"
				return b, nil
			}
			n, err := strconv.Atoi(at.Cursor)
			if err != nil {
				return b, mcp.Errorf(mcp.CodeInvalidParams, "params.cursor is not a number")
			}
			for ; n < limit && (!withCursors || len(b.Events) <= at.Max); n++ { // one too many
				o := events.Occurrence[build]{ID: fmt.Sprint("b", n+1), Data: build{Number: n + 1}}
				if withCursors {
					o.Cursor = strconv.Itoa(n + 1)
				}
				b.Events = append(b.Events, o)
			}
			b.Cursor = strconv.Itoa(n)
			b.HasMore = n < limit
			return b, nil
		},
	}
}

func TestPollReadsSourceWithHistory(t *testing.T) {
	s, srv := newServer(t, &events.Options{MaxEvents: 2})
	events.Add(srv, &events.Event{Name: "counted"}, counter(3, true))
	events.Add(srv, &events.Event{Name: "whole"}, counter(3, false))
	run(t, s, func(t *testing.T, c *mcptest.Client) {
		for name, want := range map[string][]string{"counted": {"", "b1 b2 more", "b3", ""}, "whole": {"", "b1 b2 b3", ""}} {
			var cursor *string
			for _, want := range want {
				got := pollOnce(t, c, object{"name": name, "cursor": cursor, "maxEvents": 1000})
				if got.String() != want || got.NextPollMs != 30_000 {
					t.Errorf("%s: got %q, next poll %d, want %q", name, got, got.NextPollMs, want)
				}
				cursor = got.Cursor
			}
			wantError(t, c, "events/poll", object{"name": name, "cursor": "x"}, mcp.CodeInvalidParams, "")
		}
	})
}

// Large payloads divide a batch, so that no result exceeds the limits of clients.
func TestPollDividesLargeBatches(t *testing.T) {
	s, srv := newServer(t, nil)
	const number, size, most = 30, 200 << 10, 4<<20/(200<<10) + 1
	large := counter(number, true)
	events.Add(srv, &events.Event{Name: "large"}, events.Source[struct{}, build]{
		Check: func(ctx context.Context, a struct{}, at events.Position) (events.Batch[build], error) {
			b, err := large.Check(ctx, a, at)
			for i := range b.Events {
				b.Events[i].Data.Branch = strings.Repeat("x", size)
			}
			return b, err
		},
	})
	c := mcptest.Connect(t, s, mcptest.Since(mcptest.Modern)[0], &mcptest.Options{Extension: extension})
	first := pollOnce(t, c, object{"name": "large", "cursor": "0"})
	if got := len(first.Events); got == 0 || got > most || !*first.HasMore {
		t.Fatalf("got %d events of 200 KiB, more: %t, want at most %d and more", got, *first.HasMore, most)
	}
	rest := pollOnce(t, c, object{"name": "large", "cursor": first.Cursor})
	if got := len(first.Events) + len(rest.Events); got != number || *rest.HasMore {
		t.Errorf("got %d events in two results, more: %t, want all %d", got, *rest.HasMore, number)
	}
}

// A subscription that starts now has no occurrences to read yet, whatever its source says.
func TestPollThatStartsNowHasNoMore(t *testing.T) {
	s, srv := newServer(t, nil)
	events.Add(srv, &events.Event{Name: "eager"}, events.Source[struct{}, build]{
		Check: func(context.Context, struct{}, events.Position) (events.Batch[build], error) {
			return events.Batch[build]{Cursor: "7", HasMore: true}, nil
		},
	})
	c := mcptest.Connect(t, s, mcptest.Since(mcptest.Modern)[0], &mcptest.Options{Extension: extension})
	if got := pollOnce(t, c, object{"name": "eager"}); got.String() != "" || *got.Cursor != "7" {
		t.Errorf("got %q and the cursor %s, want no occurrence, no more, and 7", got, *got.Cursor)
	}
}

// A source without history has no cursors and never truncates.
func TestPollWithoutHistory(t *testing.T) {
	s, srv := newServer(t, nil)
	events.Add(srv, &events.Event{Name: "queue"}, events.Source[struct{}, build]{
		Check: func(context.Context, struct{}, events.Position) (events.Batch[build], error) {
			return events.Batch[build]{Events: []events.Occurrence[build]{{ID: "b1", Data: build{Number: 1}}},
				Truncated: true}, nil
		},
	})
	run(t, s, func(t *testing.T, c *mcptest.Client) {
		if got := pollOnce(t, c, object{"name": "queue"}); got.String() != "b1" || got.Cursor != nil {
			t.Errorf("got %q, cursor %v", got, got.Cursor)
		}
	})
}

func TestFailuresOfSources(t *testing.T) {
	s, srv := newServer(t, nil)
	var result error
	var data build
	events.Add(srv, &events.Event{Name: "failing"}, events.Source[struct{}, build]{
		Check: func(context.Context, struct{}, events.Position) (events.Batch[build], error) {
			return events.Batch[build]{Events: []events.Occurrence[build]{{Data: data}}}, result
		},
		Authorize: func(context.Context, struct{}) error {
			if errors.Is(result, context.Canceled) {
				return events.Forbidden("no access")
			}
			return nil
		},
	})
	c := mcptest.Connect(t, s, mcptest.Since(mcptest.Modern)[0], &mcptest.Options{Extension: extension})
	result = errors.New("secret text")
	_, err := c.Try("events/poll", object{"name": "failing"})
	if err == nil || err.Code != mcp.CodeInternalError || strings.Contains(err.Message, "secret") {
		t.Errorf("got %v", err)
	}
	result = mcp.Errorf(-32603, "upstream is down")
	if _, err := c.Try("events/poll", object{"name": "failing"}); err == nil || err.Message != "upstream is down" {
		t.Errorf("got %v", err)
	}
	result = context.Canceled
	wantError(t, c, "events/poll", object{"name": "failing"}, events.CodeForbidden, `{"reason":"no access"}`)
	result = nil // an invalid payload: number is 0
	wantError(t, c, "events/poll", object{"name": "failing"}, mcp.CodeInternalError, "")
}

func TestEmitRefusesInvalidOccurrences(t *testing.T) {
	_, srv := newServer(t, nil)
	builds := events.Add(srv, &events.Event{Name: "build.finished"}, onBranch)
	counted := events.Add(srv, &events.Event{Name: "counted"}, counter(3, true))
	valid := build{Number: 1}
	for name, err := range map[string]error{
		"payload":   builds.Emit(events.Occurrence[build]{}),
		"id":        builds.Emit(events.Occurrence[build]{ID: strings.Repeat("x", 300), Data: valid}),
		"size":      builds.Emit(events.Occurrence[build]{Data: build{Number: 1, Branch: strings.Repeat("x", 300<<10)}}),
		"has Check": counted.Emit(events.Occurrence[build]{Data: valid}),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	builds.Remove(nil)
	if err := builds.Emit(events.Occurrence[build]{Data: valid}); err == nil {
		t.Error("no error after Remove")
	}
}

func TestSketchCodes(t *testing.T) {
	s, srv := newServer(t, &events.Options{SketchCodes: true})
	events.Add(srv, &events.Event{Name: "pushed", Delivery: []events.Mode{events.ModePush}}, onBranch)
	run(t, s, func(t *testing.T, c *mcptest.Client) {
		wantError(t, c, "events/poll", object{"name": "none"}, -32011, `{"kind":"event"}`)
		wantError(t, c, "events/poll", object{"name": "pushed"}, -32014, "")
	})
	client := dial(t, s)
	for _, err := range events.Poll[build](t.Context(), client, "none", nil, nil) {
		if e, ok := errors.AsType[*mcp.Error](err); !ok || e.Code != -32011 {
			t.Errorf("got %v", err)
		}
	}
}
