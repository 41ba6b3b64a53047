package peer_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/internal/peer"
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

func TestRPC05_DuplicateIDInFlightIsRefused(t *testing.T) {
	var table peer.Table
	c := begin(t, &table, jsonrpc.IntID(1))
	begin(t, &table, jsonrpc.StringID("1")) // another id, RPC-06
	if _, err := table.Begin(t.Context(), jsonrpc.IntID(1)); err == nil || err.Code != jsonrpc.CodeInvalidRequest {
		t.Errorf("the same id again: %v, want code %d", err, jsonrpc.CodeInvalidRequest)
	}
	if !c.End() {
		t.Error("End says not to answer")
	}
	begin(t, &table, jsonrpc.IntID(1))
}

func TestCallsAreBounded(t *testing.T) {
	table := peer.Table{MaxCalls: 2}
	first := begin(t, &table, jsonrpc.IntID(1))
	begin(t, &table, jsonrpc.IntID(2))
	if _, err := table.Begin(t.Context(), jsonrpc.IntID(3)); err == nil || err.Code != -32000 || !strings.Contains(string(err.Data), "retryAfterMs") {
		t.Errorf("a third call: %v, want busy", err)
	}
	table.Cancel(jsonrpc.IntID(1), errStop)
	if _, err := table.Begin(t.Context(), jsonrpc.IntID(3)); err == nil {
		t.Error("a cancelled call does not count though it still runs")
	}
	first.End()
	begin(t, &table, jsonrpc.IntID(3))
}

func TestCAN04_CancelledCallIsNotAnswered(t *testing.T) {
	var table peer.Table
	c := begin(t, &table, jsonrpc.IntID(1))
	if !table.Cancel(jsonrpc.IntID(1), errStop) {
		t.Error("Cancel finds no call")
	}
	if table.Cancel(jsonrpc.IntID(1), errStop) {
		t.Error("a call was cancelled twice")
	}
	if got := context.Cause(c.Context()); got != errStop {
		t.Errorf("cause %v, want %v", got, errStop)
	}
	again := begin(t, &table, jsonrpc.IntID(1)) // nothing is said of the first any more, so its id is free
	if !c.Over() || c.End() {
		t.Error("a cancelled call is to be answered")
	}
	if again.Over() || !again.End() {
		t.Error("the end of the first call ended the second one of that id")
	}
	if table.Cancel(jsonrpc.IntID(1), errStop) { // CAN-05
		t.Error("a call was cancelled after its end")
	}
}

func TestCloseEndsContextsAndAnswersStay(t *testing.T) {
	var table peer.Table
	c := begin(t, &table, jsonrpc.IntID(1))
	table.Close(errStop)
	table.Close(errors.New("too late"))
	if got := context.Cause(c.Context()); got != errStop {
		t.Errorf("cause %v, want %v", got, errStop)
	}
	if !c.End() {
		t.Error("a call that was not cancelled by the peer is not to be answered")
	}
	if _, err := table.Begin(t.Context(), jsonrpc.IntID(2)); err == nil {
		t.Error("a call began after Close")
	}
}

func TestQuestionsAreAnsweredById(t *testing.T) {
	var table peer.Table
	q, err := table.Ask(jsonrpc.StringID("q"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := table.Ask(q.ID); err == nil {
		t.Error("two questions have one id")
	}
	if table.Answer(jsonrpc.NewResponse(jsonrpc.StringID("x"), nil)) {
		t.Error("an answer to nothing was taken")
	}
	if !table.Answer(jsonrpc.NewResponse(q.ID, []byte(`{"a":1}`))) {
		t.Error("the answer was not taken")
	}
	if table.Answer(jsonrpc.NewResponse(q.ID, nil)) {
		t.Error("a question was answered twice")
	}
	m, err := q.Wait(t.Context())
	if err != nil || string(m.Result) != `{"a":1}` {
		t.Errorf("Wait: %v, %v", m, err)
	}
}

func TestQuestionsAreBounded(t *testing.T) {
	table := peer.Table{MaxQuestions: 1}
	q, _ := table.Ask(jsonrpc.IntID(1))
	if _, err := table.Ask(jsonrpc.IntID(2)); !errors.Is(err, peer.ErrTooManyQuestions) {
		t.Errorf("a second question: %v", err)
	}
	q.Withdraw()
	if _, err := table.Ask(jsonrpc.IntID(2)); err != nil {
		t.Error(err)
	}
}

func TestOfferedQuestionsLeaveRoomAndWaitForTheirTurn(t *testing.T) {
	table := peer.Table{MaxQuestions: 4}
	var last *peer.Question
	for i := range 3 {
		q, freed, err := table.Offer(jsonrpc.IntID(int64(i)))
		if err != nil || freed != nil {
			t.Fatalf("question %d: %v", i, err)
		}
		last = q
	}
	_, freed, err := table.Offer(jsonrpc.IntID(3))
	if !errors.Is(err, peer.ErrTooManyQuestions) {
		t.Fatalf("a fourth one: %v", err)
	}
	if _, err := table.Ask(jsonrpc.IntID(4)); err != nil {
		t.Errorf("one that cannot wait: %v", err)
	}
	select {
	case <-freed:
		t.Error("nothing has gone")
	default:
	}
	table.Answer(jsonrpc.NewResponse(last.ID, nil))
	<-freed
	table.Hangup(errStop)
	if _, freed, err := table.Offer(jsonrpc.IntID(5)); err != errStop || freed != nil {
		t.Errorf("after the end: %v", err)
	}
}

func TestWaitEndsWithItsContextAndWithTheTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var table peer.Table
		ctx, cancel := context.WithCancelCause(t.Context())
		one, _ := table.Ask(jsonrpc.IntID(1))
		two, _ := table.Ask(jsonrpc.IntID(2))
		go cancel(errStop)
		if _, err := one.Wait(ctx); err != errStop {
			t.Errorf("context ended: %v", err)
		}
		if table.Answer(jsonrpc.NewResponse(one.ID, nil)) {
			t.Error("an answer came to a question that nobody waits for")
		}
		gone := errors.New("gone")
		go table.Hangup(gone)
		if _, err := two.Wait(t.Context()); err != gone {
			t.Errorf("table hung up: %v", err)
		}
		if _, err := table.Ask(jsonrpc.IntID(3)); err != gone {
			t.Errorf("Ask after the end: %v", err)
		}
	})
}

func TestCAN09_MalformedCancellationsNameNothing(t *testing.T) {
	for _, params := range []string{``, `[]`, `{}`, `{"requestId":null}`, `{"requestId":1.5}`, `{"requestId":{}}`} {
		if id, _, ok := peer.ParseCancelled([]byte(params)); ok {
			t.Errorf("%s names %s", params, id)
		}
	}
	id, reason, ok := peer.ParseCancelled([]byte(`{"reason":"no\nneed","requestId":"7"}`))
	if !ok || id != jsonrpc.StringID("7") || reason != "no\nneed" {
		t.Errorf("got %s, %q, %v", id, reason, ok)
	}
	if _, reason, ok = peer.ParseCancelled([]byte(`{"requestId":7,"reason":["?"]}`)); !ok || reason != "" {
		t.Errorf("got %q, %v", reason, ok)
	}
	if _, reason, _ = peer.ParseCancelled([]byte(`{"requestId":7,"reason":"` + strings.Repeat("x", 1<<20) + `"}`)); len(reason) > 1<<10 {
		t.Errorf("a reason of %d bytes is kept", len(reason))
	}
	_, reason, _ = peer.ParseCancelled([]byte(`{"requestId":7,"reason":"x` + strings.Repeat("é", 1<<10) + `"}`))
	if want := "x" + strings.Repeat("é", 511); reason != want {
		t.Errorf("a long reason is cut to %q", reason)
	}
}
