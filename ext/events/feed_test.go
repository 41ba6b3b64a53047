package events_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/events"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A ledger is a source with history: occurrence n has the cursor "n" and the age n minutes before now.
type ledger struct {
	number      int  // of occurrences
	withoutEach bool // only batches have a cursor
	truncated   bool // of each batch
	authorize   func() error
}

func (l *ledger) check(_ context.Context, _ filter, at events.Position) (events.Batch[build], error) {
	b := events.Batch[build]{Cursor: fmt.Sprint(l.number), Truncated: l.truncated}
	read := 0
	if _, err := fmt.Sscan(at.Cursor, &read); err != nil && at.Cursor != "" {
		return b, err
	}
	for n := read + 1; n <= l.number; n++ {
		o := events.Occurrence[build]{ID: fmt.Sprint("b", n), Data: build{Number: n},
			Time: time.Now().Add(time.Duration(n-l.number) * time.Minute)}
		if !l.withoutEach {
			o.Cursor = fmt.Sprint(n)
		}
		b.Events = append(b.Events, o)
	}
	return b, nil
}

func (l *ledger) open(t testing.TB, opts *events.Options, at events.Start) *events.Feed {
	t.Helper()
	_, srv := newServer(t, opts)
	events.Add(srv, &events.Event{Name: "build"}, events.Source[filter, build]{Check: l.check,
		Authorize: func(context.Context, filter) error {
			if l.authorize == nil {
				return nil
			}
			return l.authorize()
		}})
	f, err := srv.Open(t.Context(), events.ModePush, events.Subscription{Name: "build"}, at)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// Whoever stores the position at which a feed begins must not lose an occurrence of its first batch.
func TestFeedBeginsBeforeItsFirstOccurrence(t *testing.T) {
	for _, tt := range []struct {
		name      string
		source    ledger
		cursor    string
		age       time.Duration
		want      string
		truncated bool
	}{
		{"nothing is too old", ledger{number: 5}, "1", time.Hour, "1", false},
		{"some are too old", ledger{number: 5}, "1", 90 * time.Second, "3", true},
		{"all are too old", ledger{number: 5}, "1", 1, "4", true},
		{"some are too old, without cursors", ledger{number: 5, withoutEach: true}, "1", 90 * time.Second, "1", true},
		{"skipped by the source", ledger{number: 5, truncated: true}, "2", 0, "2", true},
		{"skipped by the source at the end", ledger{number: 5, truncated: true}, "5", 0, "5", true},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := tt.source.open(t, nil, events.Start{Cursor: tt.cursor, MaxAge: tt.age})
			if f.Cursor != tt.want || f.Truncated != tt.truncated {
				t.Errorf("%s: the feed begins at %q, truncated %t, want %q and %t", tt.name, f.Cursor, f.Truncated,
					tt.want, tt.truncated)
			}
		})
	}
}

func TestPermissionThatCannotBeCheckedIsCheckedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		l := &ledger{authorize: func() error {
			if calls++; calls > 1 {
				return errors.New("the database is down")
			}
			return nil
		}}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		failures := 0
		for item, err := range l.open(t, nil, events.Start{}).Items(ctx) {
			if err != nil {
				t.Fatal(err)
			}
			if item.Failure != nil {
				failures++
			}
		}
		if calls > 20 || failures < 5 || failures != calls-1 {
			t.Errorf("got %d checks and %d failures in 10 minutes, want growing delays up to a minute", calls, failures)
		}
	})
}

// The loop body may be a delivery that lasts minutes.
func TestPermissionIsCheckedWithinABatch(t *testing.T) {
	down := errors.New("the database is down")
	for _, tt := range []struct {
		name    string
		results []error // of the checks, then nil
		want    string
	}{
		{"granted", nil, "b1 b2 b3 b4 b5"},
		{"revoked", []error{nil, nil, events.Forbidden("revoked")}, "b1 b2 revoked"},
		{"unknown for a time", []error{nil, down, down}, "b1 failure failure b2 b3 b4 b5"},
		{"unknown and then revoked", []error{nil, down, events.Forbidden("revoked")}, "b1 failure revoked"},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := &ledger{number: 5, authorize: func() (err error) {
				if len(tt.results) > 0 {
					err, tt.results = tt.results[0], tt.results[1:]
				}
				return err
			}}
			var got []string
			for item, err := range l.open(t, nil, events.Start{Cursor: "0"}).Items(t.Context()) {
				switch {
				case err != nil:
					got = append(got, "revoked")
					if e, ok := errors.AsType[*mcp.Error](err); !ok || e.Code != events.CodeForbidden {
						t.Errorf("%s: got error %v, want code %d", tt.name, err, events.CodeForbidden)
					}
				case item.Failure != nil:
					got = append(got, "failure")
				case item.Event != nil:
					got = append(got, item.Event.ID)
					<-time.After(2 * time.Minute)
				}
				if slices.Contains(got, "b5") {
					break
				}
			}
			if all := strings.Join(got, " "); all != tt.want {
				t.Errorf("%s: got %s, want %s", tt.name, all, tt.want)
			}
		})
	}
}

// What was emitted while the permission was unknown must be delivered, though nothing is emitted later.
func TestEmittedWhileThePermissionIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, srv := newServer(t, nil)
		calls := 0
		src := events.Source[filter, build]{Authorize: func(context.Context, filter) error {
			if calls++; calls == 2 {
				return errors.New("the database is down")
			}
			return nil
		}}
		typ := events.Add(srv, &events.Event{Name: "build"}, src)
		f, err := srv.Open(t.Context(), events.ModePush, events.Subscription{Name: "build"}, events.Start{})
		if err != nil {
			t.Fatal(err)
		}
		emit(t, typ, 1, "")
		emit(t, typ, 2, "")
		var got []string
		start := time.Now()
		for item := range f.Items(t.Context()) {
			switch {
			case item.Failure != nil:
				emit(t, typ, 3, "")
			case item.Event != nil:
				got = append(got, item.Event.ID)
				<-time.After(2 * time.Minute)
			}
			if len(got) == 3 || time.Since(start) > time.Hour {
				break
			}
		}
		if !slices.Equal(got, []string{"b1", "b2", "b3"}) {
			t.Errorf("got %q, want b1, b2 and b3", got)
		}
	})
}

// Any reason for which an event type is removed ends its feeds.
func TestRemovedForAnyReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, srv := newServer(t, nil)
		typ := events.Add(srv, &events.Event{Name: "build"}, onBranch)
		f, err := srv.Open(t.Context(), events.ModePush, events.Subscription{Name: "build"}, events.Start{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		time.AfterFunc(time.Second, func() { typ.Remove(mcp.Errorf(mcp.CodeInternalError, "moved")) })
		var last error
		for _, err := range f.Items(ctx) {
			last = err
		}
		if last == nil || last.Error() == "" || ctx.Err() != nil {
			t.Errorf("got error %v, want the reason of the removal at once", last)
		}
	})
}

// A server that always has more of the same must not be polled without a delay.
func TestPollOfEndlessRepetitionsIsDelayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, srv := newServer(t, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		polls := 0
		events.Add(srv, &events.Event{Name: "build"}, events.Source[filter, build]{
			Check: func(context.Context, filter, events.Position) (events.Batch[build], error) {
				if polls++; polls > 100 {
					cancel()
				}
				o := events.Occurrence[build]{ID: "b1", Data: build{Number: 1}}
				return events.Batch[build]{Cursor: "c", HasMore: true, Events: []events.Occurrence[build]{o}}, nil
			}})
		count := 0
		for range events.Poll[build](ctx, dial(t, s), "build", nil, nil) {
			count++
		}
		if polls > 70 || count != 1 {
			t.Errorf("got %d polls and %d occurrences in a minute, want at most 70 and 1", polls, count)
		}
	})
}
