package peer_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/internal/peer"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

var errStop = errors.New("stop")

func begin(t *testing.T, table *peer.Table, id jsonrpc.ID) *peer.Call {
	t.Helper()
	c, err := table.Begin(t.Context(), id)
	if err != nil {
		t.Fatalf("Begin(%s): %v", id, err)
	}
	return c
}

// Requirement: RPC-05, RPC-06
func TestDuplicateIDInFlightIsRefused(t *testing.T) {
	var table peer.Table
	c := begin(t, &table, jsonrpc.IntID(1))
	begin(t, &table, jsonrpc.StringID("1")) // another id: the type counts
	if _, err := table.Begin(t.Context(), jsonrpc.IntID(1)); err == nil || err.Code != jsonrpc.CodeInvalidRequest {
		t.Errorf("the same id again: %v, want code %d", err, jsonrpc.CodeInvalidRequest)
	}
	if !c.End() {
		t.Error("End() = false, want true: the call is to be answered")
	}
	begin(t, &table, jsonrpc.IntID(1))
}

// Calls that last do not count, and have a limit of their own.
func TestCallsThatLastDoNotCount(t *testing.T) {
	table := peer.Table{MaxCalls: 1}
	last := &peer.Call{Lasts: true}
	if err := table.Enter(t.Context(), last, jsonrpc.IntID(1)); err != nil {
		t.Fatal(err)
	}
	first := begin(t, &table, jsonrpc.IntID(2))
	for i := range int64(10_000) {
		err := table.Enter(t.Context(), &peer.Call{Lasts: true}, jsonrpc.IntID(10+i))
		if err != nil && i > 500 && err.Code == wire.CodeBusy {
			break
		}
		if err != nil || i == 9999 {
			t.Fatalf("call %d: %v", i, err)
		}
	}
	first.End()
	begin(t, &table, jsonrpc.IntID(3))
	last.End()
	if err := table.Enter(t.Context(), &peer.Call{Lasts: true}, jsonrpc.IntID(1)); err != nil {
		t.Error(err)
	}
}

func TestCallsAreBounded(t *testing.T) {
	table := peer.Table{MaxCalls: 2}
	first := begin(t, &table, jsonrpc.IntID(1))
	begin(t, &table, jsonrpc.IntID(2))
	if _, err := table.Begin(t.Context(), jsonrpc.IntID(3)); err == nil || err.Code != wire.CodeBusy ||
		!strings.Contains(string(err.Data), "retryAfterMs") {
		t.Errorf("Begin of a third call: %v, want code %d with retryAfterMs", err, wire.CodeBusy)
	}
	table.Cancel(jsonrpc.IntID(1), errStop)
	if _, err := table.Begin(t.Context(), jsonrpc.IntID(3)); err == nil {
		t.Error("Begin while a cancelled call is running: no error, want one")
	}
	first.End()
	begin(t, &table, jsonrpc.IntID(3))
}

// Requirement: CAN-04, CAN-05
func TestCancelledCallIsNotAnswered(t *testing.T) {
	var table peer.Table
	c := begin(t, &table, jsonrpc.IntID(1))
	if !table.Cancel(jsonrpc.IntID(1), errStop) {
		t.Error("Cancel() = false, want true")
	}
	if table.Cancel(jsonrpc.IntID(1), errStop) {
		t.Error("second Cancel() = true, want false")
	}
	if got := context.Cause(c.Context()); got != errStop {
		t.Errorf("cause %v, want %v", got, errStop)
	}
	again := begin(t, &table, jsonrpc.IntID(1)) // the first one gets no response, so its id is free
	if !c.Over() || c.End() {
		t.Error("Over() = false or End() = true for a cancelled call, want true and false")
	}
	if again.Over() || !again.End() {
		t.Error("Over() = true or End() = false for the second call of the id, want false and true")
	}
	if table.Cancel(jsonrpc.IntID(1), errStop) {
		t.Error("Cancel() of a finished call = true, want false")
	}
	if table.Cancel(jsonrpc.IntID(2), errStop) {
		t.Error("Cancel() of an unknown call = true, want false")
	}
}

func TestCloseEndsContextsAndKeepsResponses(t *testing.T) {
	var table peer.Table
	c := begin(t, &table, jsonrpc.IntID(1))
	table.Close(errStop)
	table.Close(errors.New("too late"))
	if got := context.Cause(c.Context()); got != errStop {
		t.Errorf("cause %v, want %v", got, errStop)
	}
	if !c.End() {
		t.Error("End() = false after Close, want true: the peer did not cancel the call")
	}
	if _, err := table.Begin(t.Context(), jsonrpc.IntID(2)); err == nil {
		t.Error("Begin after Close: no error, want one")
	}
}

func TestQuestionsAreAnsweredByID(t *testing.T) {
	var table peer.Table
	q, err := table.Ask(jsonrpc.StringID("q"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := table.Ask(q.ID); err == nil {
		t.Error("Ask with the id of an open question: no error, want one")
	}
	if table.Answer(&jsonrpc.Message{ID: jsonrpc.StringID("x"), Result: json.RawMessage("{}")}) {
		t.Error("Answer() with an unknown id = true, want false")
	}
	if !table.Answer(&jsonrpc.Message{ID: q.ID, Result: []byte(`{"a":1}`)}) {
		t.Error("Answer() = false, want true")
	}
	if table.Answer(&jsonrpc.Message{ID: q.ID, Result: json.RawMessage("{}")}) {
		t.Error("second Answer() = true, want false")
	}
	m, err := q.Wait(t.Context())
	if err != nil || string(m.Result) != `{"a":1}` {
		t.Errorf("Wait: got %v, %v, want the result", m, err)
	}
}

func TestQuestionsAreBounded(t *testing.T) {
	table := peer.Table{MaxQuestions: 1}
	q, _ := table.Ask(jsonrpc.IntID(1))
	if _, err := table.Ask(jsonrpc.IntID(2)); !errors.Is(err, peer.ErrTooManyQuestions) {
		t.Errorf("a second question: %v, want %v", err, peer.ErrTooManyQuestions)
	}
	q.Withdraw()
	if _, err := table.Ask(jsonrpc.IntID(2)); err != nil {
		t.Error(err)
	}
}

func TestOfferReservesQuestionsAndWaitsForFreeOnes(t *testing.T) {
	table := peer.Table{MaxQuestions: 4}
	var last *peer.Question
	for i := range 3 {
		q, freed, err := table.Offer(jsonrpc.IntID(int64(i)))
		if err != nil || freed != nil {
			t.Fatalf("Offer of question %d: %v, freed %v, want no error", i, err, freed)
		}
		last = q
	}
	_, freed, err := table.Offer(jsonrpc.IntID(3))
	if !errors.Is(err, peer.ErrTooManyQuestions) {
		t.Fatalf("Offer of a fourth question: %v, want %v", err, peer.ErrTooManyQuestions)
	}
	if _, err := table.Ask(jsonrpc.IntID(4)); err != nil {
		t.Errorf("Ask of a fourth question: %v, want no error", err)
	}
	select {
	case <-freed:
		t.Error("freed is closed before a question was answered")
	default:
	}
	table.Answer(&jsonrpc.Message{ID: last.ID, Result: json.RawMessage("{}")})
	<-freed
	table.Hangup(errStop)
	if _, freed, err := table.Offer(jsonrpc.IntID(5)); err != errStop || freed != nil {
		t.Errorf("Offer after Hangup: %v, freed %v, want %v", err, freed, errStop)
	}
}

// Requirement: CAN-06
func TestWaitEndsWithItsContextAndWithTheTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table peer.Table
		ctx, cancel := context.WithCancelCause(t.Context())
		one, _ := table.Ask(jsonrpc.IntID(1))
		two, _ := table.Ask(jsonrpc.IntID(2))
		go cancel(errStop)
		if _, err := one.Wait(ctx); err != errStop {
			t.Errorf("Wait after the context ended: %v, want %v", err, errStop)
		}
		if table.Answer(&jsonrpc.Message{ID: one.ID, Result: json.RawMessage("{}")}) {
			t.Error("Answer() after the wait ended = true, want false: a late response is ignored")
		}
		gone := errors.New("gone")
		go table.Hangup(gone)
		if _, err := two.Wait(t.Context()); err != gone {
			t.Errorf("Wait after Hangup: %v, want %v", err, gone)
		}
		if _, err := table.Ask(jsonrpc.IntID(3)); err != gone {
			t.Errorf("Ask after Hangup: %v, want %v", err, gone)
		}
	})
}

// Requirement: CAN-09
func TestMalformedCancellationsAreIgnored(t *testing.T) {
	for _, params := range []string{``, `[]`, `{}`, `{"requestId":null}`, `{"requestId":1.5}`, `{"requestId":{}}`} {
		if id, _, ok := peer.ParseCancelled([]byte(params)); ok {
			t.Errorf("ParseCancelled(%s) = %s, want false", params, id)
		}
	}
	id, reason, ok := peer.ParseCancelled([]byte(`{"reason":"no\nneed","requestId":"7"}`))
	if !ok || id != jsonrpc.StringID("7") || reason != "no\nneed" {
		t.Errorf("got %s, %q, %v, want 7 and the reason", id, reason, ok)
	}
	if _, reason, ok = peer.ParseCancelled([]byte(`{"requestId":7,"reason":["?"]}`)); !ok || reason != "" {
		t.Errorf("a reason of another type: got %q, %v, want an empty reason", reason, ok)
	}
	if _, reason, _ = peer.ParseCancelled([]byte(`{"requestId":7,"reason":"` + strings.Repeat("x", 1<<20) +
		`"}`)); len(reason) > 1<<10 {
		t.Errorf("a reason of %d bytes, want at most %d", len(reason), 1<<10)
	}
	_, reason, _ = peer.ParseCancelled([]byte(`{"requestId":7,"reason":"x` + strings.Repeat("é", 1<<10) + `"}`))
	if want := "x" + strings.Repeat("é", 511); reason != want {
		t.Errorf("a long reason: got %q, want %q", reason, want)
	}
}
