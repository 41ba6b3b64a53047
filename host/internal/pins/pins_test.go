package pins_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/pins"
	"github.com/patchbay-mcp/patchbay/host/pin"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/host/state"
)

// lists are the reviewed tools of a server.
type lists struct {
	server *pins.Server
	tools  *catalogue.List
	failed error // of reading them again
}

func (l *lists) Verify(context.Context, ...catalogue.Kind) error { return l.failed }

func (l *lists) Reviewed(kind catalogue.Kind) (*catalogue.List, *pins.Server) {
	if kind == catalogue.Tools {
		return l.tools, l.server
	}
	return nil, l.server
}

func tools(text string) *catalogue.List {
	return catalogue.Parse(catalogue.Tools, []byte(`{"tools":[`+text+`]}`))
}

// code returns the code of an error, empty without an error.
func code(t *testing.T, err error) hosterr.Code {
	t.Helper()
	e, ok := errors.AsType[*hosterr.Error](err)
	if err != nil && !ok {
		t.Fatalf("%v is not an Error", err)
	}
	if err == nil {
		return ""
	}
	return e.Code
}

func TestCheckRefusesChangedDefinitionsUntilTheyAreApproved(t *testing.T) {
	ctx, store := t.Context(), &state.Memory{}
	var reported []*pin.Pin
	s := pins.New(pins.Options{Server: "shop", Identity: "id", State: store, Logger: slog.New(slog.DiscardHandler),
		First: true, Quarantined: func(err error, found []*pin.Pin) {
			if code(t, err) != hosterr.CodeQuarantined {
				t.Errorf("reported: %v", err)
			}
			reported = append(reported, found...)
		}})
	const first, changed = `{"name":"buy","inputSchema":{}}`, `{"name":"buy","description":"x","inputSchema":{}}`
	l := &lists{server: s, tools: s.Review(ctx, pins.Caller{}, catalogue.Tools, tools(first))}
	target := pins.TargetOf(policy.ActionCall, "buy")
	if err := pins.Check(ctx, l, target); err != nil || len(reported) != 0 {
		t.Fatalf("the first definition: %v, %d reported", err, len(reported))
	}
	l.tools = s.Review(ctx, pins.Caller{}, catalogue.Tools, tools(changed))
	if err := pins.Check(ctx, l, target); code(t, err) != hosterr.CodeQuarantined {
		t.Fatalf("a changed definition: %v", err)
	}
	if len(reported) != 1 || reported[0].Name != "buy" || reported[0].Status() != "changed" {
		t.Fatalf("reported %+v", reported)
	}
	s.Refresh(ctx) // the record has changed by the reviews
	l.tools = s.Review(ctx, pins.Caller{}, catalogue.Tools, tools(changed))
	if len(reported) != 1 {
		t.Errorf("reported again: %+v", reported)
	}
	if s.Refresh(ctx) {
		t.Error("Refresh without a change of the record")
	}
	if err := pin.Approve(ctx, store, reported...); err != nil {
		t.Fatal(err)
	}
	if !s.Refresh(ctx) {
		t.Fatal("Refresh after an approval: false")
	}
	l.tools = s.Review(ctx, pins.Caller{}, catalogue.Tools, tools(changed))
	if err := pins.Check(ctx, l, target); err != nil {
		t.Errorf("an approved definition: %v", err)
	}
}

func TestCheckReturnsTheErrorOfReadingLists(t *testing.T) {
	s := pins.New(pins.Options{Server: "shop", Identity: "id", State: &state.Memory{}})
	failed := errors.New("unreachable")
	err := pins.Check(t.Context(), &lists{server: s, failed: failed}, pins.TargetOf(policy.ActionCall, "buy"))
	if !errors.Is(err, failed) {
		t.Errorf("Check: %v, want %v", err, failed)
	}
}

// A busy state takes long to read until the read of a failing context, which fails.
type busy struct {
	state.Memory
	ended atomic.Bool
}

type failing struct{}

func (b *busy) Get(ctx context.Context, kind, key string) ([]byte, uint64, error) {
	const long = 2 * time.Millisecond // from which a sync.Mutex passes to the goroutine that waits longest
	if b.ended.Load() {
		return b.Memory.Get(ctx, kind, key)
	}
	for began := time.Now(); time.Since(began) < long; {
		runtime.Gosched()
	}
	if ctx.Value(failing{}) != nil && !b.ended.Swap(true) {
		return nil, 0, errors.New("disk is busy")
	}
	return b.Memory.Get(ctx, kind, key)
}

// The empty record of a failed read is not kept, also if another read succeeds before the failed call ends.
func TestFailedReadIsNotKept(t *testing.T) {
	const attempts, readers = 10, 4 // the calls must end in an order that is rare
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for range attempts {
		store := &busy{}
		store.ended.Store(true)
		s := func() *pins.Server {
			return pins.New(pins.Options{Server: "shop", Identity: "id", State: store, First: true,
				Logger: slog.New(slog.DiscardHandler), Quarantined: func(error, []*pin.Pin) {}})
		}
		s().ReviewAbout(t.Context(), pins.Caller{}, &pins.Start{About: pins.NewAbout("sells", "shop")})
		store.ended.Store(false)
		shop := s()
		var all sync.WaitGroup
		read := func() {
			for range readers {
				if found, err := shop.Pins(t.Context()); err != nil || len(found) != 2 {
					t.Errorf("got %d pins, %v, want 2", len(found), err)
				}
			}
		}
		all.Go(read)
		all.Go(func() { shop.Approved(context.WithValue(t.Context(), failing{}, true)) })
		for range readers {
			all.Go(read)
		}
		all.Wait()
		if got := shop.Approved(t.Context()).Instructions; got != "sells" {
			t.Fatalf("got instructions %q, want those of the record", got)
		}
	}
}

// source counts how often a list is read.
type source struct {
	text string
	read int
}

func (s *source) ReadList(context.Context, catalogue.Kind) (*catalogue.List, error) {
	s.read++
	return tools(s.text), nil
}

func TestConnectionReadsItsListsOnce(t *testing.T) {
	ctx := t.Context()
	s := pins.New(pins.Options{Server: "shop", Identity: "id", State: &state.Memory{}, First: true,
		Quarantined: func(error, []*pin.Pin) {}, Logger: slog.New(slog.DiscardHandler)})
	s.Review(ctx, pins.Caller{}, catalogue.Tools, tools(`{"name":"buy","inputSchema":{}}`))
	from := &source{text: `{"name":"buy","inputSchema":{}},{"name":"sell","inputSchema":{}}`}
	r := &pins.Reviewer{Server: s, Source: from}
	var c pins.Connection
	for range 2 {
		if err := c.Check(ctx, r, pins.TargetOf(policy.ActionCall, "buy")); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Check(ctx, r, pins.TargetOf(policy.ActionCall, "sell")); code(t, err) != hosterr.CodeQuarantined {
		t.Errorf("a definition of this connection only: %v", err)
	}
	if from.read != 1 {
		t.Errorf("the list was read %d times, want once", from.read)
	}
}

// writes counts changes of a state.
type writes struct {
	state.Memory
	n int
}

func (w *writes) CompareAndSet(ctx context.Context, kind, key string, version uint64, value []byte) error {
	w.n++
	return w.Memory.CompareAndSet(ctx, kind, key, version, value)
}

// A connection to a server writes its description, its capabilities and the lists that it does not have at
// once. The lists can then be restored without the server.
func TestConnectionIsRecordedWithOneWrite(t *testing.T) {
	ctx, store := t.Context(), &writes{}
	s := pins.New(pins.Options{Server: "shop", Identity: "id", State: store, Logger: slog.New(slog.DiscardHandler),
		First: true, Quarantined: func(error, []*pin.Pin) {}})
	found := &pins.Start{About: pins.NewAbout("sells", "shop"), Capabilities: []byte("{}"),
		Lacks: []catalogue.Kind{catalogue.Prompts, catalogue.Resources, catalogue.Templates, catalogue.Events}}
	for range 2 {
		if a := s.ReviewAbout(ctx, pins.Caller{}, found); a.Instructions != "sells" || store.n != 1 {
			t.Fatalf("got %+v after %d writes, want 1", a, store.n)
		}
	}
	s.Review(ctx, pins.Caller{}, catalogue.Tools, tools(`{"name":"buy","inputSchema":{}}`))
	keep := func(_ catalogue.Kind, l *catalogue.List) *catalogue.List { return l }
	r, ok := s.Restore(ctx, pins.Caller{}, keep)
	if !ok || r.Lists[catalogue.Tools].Len() != 1 || r.Lists[catalogue.Prompts] == nil || store.n != 2 {
		t.Errorf("restored %+v (%t) after %d writes, want 2", r, ok, store.n)
	}
	prompt := catalogue.Parse(catalogue.Prompts, []byte(`{"prompts":[{"name":"p"}]}`))
	if l := s.Review(ctx, pins.Caller{}, catalogue.Prompts, prompt); !l.Hides("p") {
		t.Error("a prompt of a server that had no prompts is approved")
	}
}
