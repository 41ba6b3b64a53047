package capture_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/capture"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// call records a call with a result of n bytes.
func call(take func(mcp.Frame), id int64, name string, n int) {
	params := json.RawMessage(fmt.Sprintf(`{"name":%q,"arguments":{}}`, name))
	take(mcp.Frame{Sent: true, Message: &jsonrpc.Message{ID: jsonrpc.IntID(id), Method: "tools/call", Params: params}})
	result := json.RawMessage(`{"content":"` + strings.Repeat("x", n) + `"}`)
	take(mcp.Frame{Message: &jsonrpc.Message{ID: jsonrpc.IntID(id), Result: result}})
}

func TestRingDropsTheOldest(t *testing.T) {
	const exchanges, size = 100, 50_000
	ring := capture.NewSmall(exchanges, size)
	take := ring.Frames("srv")
	for i := range int64(1000) {
		call(take, i, fmt.Sprint("t", i), int(i%7)*300)
		if held, _ := ring.Held(); held > size {
			t.Fatalf("after %d calls the frames need %d bytes, want at most %d", i, held, size)
		}
	}
	all := ring.Find(nil, 0, 10_000)
	if len(all) != exchanges || all[0].Target != "t999" || all[exchanges-1].Target != "t900" {
		t.Fatalf("got %d exchanges, the first %+v", len(all), all[0])
	}
	if _, frames, ok := ring.Get(all[0].ID); !ok || len(frames) != 2 {
		t.Errorf("newest: got %d frames, want 2", len(frames))
	}
	x, frames, ok := ring.Get(all[exchanges-1].ID)
	if !ok || len(frames) != 0 || x.Frames != 2 || x.Bytes == 0 || x.Status != "ok" {
		t.Errorf("oldest: got %+v with %d frames, want the summary without frames", x, len(frames))
	}
	if _, _, ok := ring.Get(all[exchanges-1].ID - 1); ok {
		t.Error("an exchange before the oldest is held")
	}
	if next := ring.Find(nil, all[9].ID, 5); len(next) != 5 || next[0].ID != all[10].ID {
		t.Errorf("next page: got %+v", next)
	}
}

// A ring of more exchanges than it allocates at once, most of which share their descriptions, holds the latest.
func TestRingHoldsTheLatest(t *testing.T) {
	const exchanges, calls = 1200, 5000
	ring := capture.NewSmall(exchanges, 10<<20)
	name := func(i uint64) string { return fmt.Sprint("t", i/3) }
	take := ring.Frames("srv")
	for i := range uint64(calls) {
		call(take, int64(i), name(i), 1)
	}
	all := ring.Find(nil, 0, calls)
	if len(all) != exchanges {
		t.Fatalf("got %d exchanges, want %d", len(all), exchanges)
	}
	for n, x := range all {
		want := uint64(calls - n)
		held, frames, ok := ring.Get(want)
		if !ok || x.ID != want || held != x || len(frames) != 2 || x.Target != name(want-1) || x.Server != "srv" ||
			x.Rounds != 1 || x.Frames != 2 || x.Status != "ok" {
			t.Fatalf("got %+v and %+v with %d frames, want %s with 2", x, held, len(frames), name(want-1))
		}
	}
	if size, frames := ring.Held(); frames != 2*exchanges || size == 0 {
		t.Errorf("got %d frames of %d bytes, want %d", frames, size, 2*exchanges)
	}
}

// Exchanges with the same target at the same time keep their own servers, callers, methods and revisions.
func TestInterleavedExchangesAreDistinct(t *testing.T) {
	ring := capture.NewSmall(1000, 10<<20)
	want := []string{""} // by id
	var respond []func()
	for _, server := range []string{"a", "b"} {
		for _, caller := range []string{"", "ann", "bob"} {
			for _, revision := range []string{"2025-11-25", "2026-07-28"} {
				take := ring.FramesFor(server, caller)
				for n, method := range []string{"tools/call", "prompts/get", "tools/call"} {
					id := jsonrpc.IntID(int64(n))
					params := fmt.Sprintf(
						`{"name":"t","_meta":{"io.modelcontextprotocol/protocolVersion":%q}}`, revision)
					take(mcp.Frame{Sent: true, Message: &jsonrpc.Message{ID: id, Method: method,
						Params: json.RawMessage(params)}})
					want = append(want, fmt.Sprint(server, caller, method, revision))
					respond = append(respond, func() {
						take(mcp.Frame{Message: &jsonrpc.Message{ID: id, Result: json.RawMessage("{}")}})
					})
				}
			}
		}
	}
	check := func(status string) {
		t.Helper()
		for _, x := range ring.Find(nil, 0, len(want)) {
			if got := fmt.Sprint(x.Server, x.Caller, x.Method, x.Revision); got != want[x.ID] || x.Target != "t" ||
				x.Status != status {
				t.Errorf("%d: got %+v, want %s", x.ID, x, want[x.ID])
			}
		}
	}
	if n := len(ring.Find(nil, 0, 1000)); n != len(want)-1 {
		t.Fatalf("got %d exchanges, want %d", n, len(want)-1)
	}
	check("")
	for _, r := range slices.Backward(respond) {
		r()
	}
	check("ok")
}

// The revision that a response names is the revision of its own exchange only.
func TestRevisionsOfInterleavedExchanges(t *testing.T) {
	ring := capture.NewSmall(10, 1<<20)
	connections := []func(mcp.Frame){ring.Frames("srv"), ring.Frames("srv"), ring.Frames("srv")}
	for _, take := range connections {
		take(mcp.Frame{Sent: true, Message: &jsonrpc.Message{ID: jsonrpc.IntID(1), Method: "initialize",
			Params: json.RawMessage("{}")}})
	}
	revisions := []string{"", "", ""}
	for _, n := range []int{1, 0} { // the third waits
		revisions[n] = fmt.Sprint("2025-06-1", n)
		result := fmt.Sprintf(`{"protocolVersion":%q}`, revisions[n])
		connections[n](mcp.Frame{Message: &jsonrpc.Message{ID: jsonrpc.IntID(1), Result: json.RawMessage(result)}})
		for i, revision := range revisions {
			if x, _, ok := ring.Get(uint64(i + 1)); !ok || x.Revision != revision || x.Method != "initialize" {
				t.Errorf("after %s: exchange %d is %+v, want the revision %q", revisions[n], i+1, x, revision)
			}
		}
	}
}

func TestFramesAreCut(t *testing.T) {
	ring := capture.NewSmall(10, 10<<20)
	call(ring.Frames("srv"), 1, "large", 3*capture.MaxFrame)
	_, frames := find(t, ring, "large")
	if f := frames[1]; len(f.Text) > capture.MaxFrame || f.Size < 3*capture.MaxFrame || !f.IsCut() ||
		!strings.HasSuffix(f.Text, "x…") {
		t.Errorf("got a frame of %d bytes, %d before the cut", len(f.Text), f.Size)
	}
	var out strings.Builder
	if err := ring.WriteRecording(&out, ids(ring)); err != nil || !strings.Contains(out.String(), `"id":1,"result":{}},"cut":786`) {
		t.Errorf("got %.900s, %v, want a mark of the cut", out.String(), err)
	}
}

func TestBodiesAreKeptOnlyForReaders(t *testing.T) {
	ring := capture.New(nil)
	take := ring.Frames("srv")
	call(take, 1, "before", 1)
	w := ring.Watch()
	call(take, 2, "during", 1)
	w.Close()
	w.Close() // the second has no effect
	call(take, 3, "after", 1)
	for name, want := range map[string]int{"before": 0, "during": 2, "after": 0} {
		if x, frames := find(t, ring, name); len(frames) != want || x.Frames != 2 || x.Bytes == 0 {
			t.Errorf("%s: got %d frames of %+v, want %d", name, len(frames), x, want)
		}
	}
	if err := ring.WriteRecording(&strings.Builder{}, []uint64{1}); err == nil || !strings.Contains(err.Error(), "while a console") {
		t.Errorf("got %v, want an error for an export without messages", err)
	}
}

func TestWatchers(t *testing.T) {
	ring := capture.New(nil)
	take := ring.Frames("srv")
	fast, slow := ring.Watch(), ring.Watch()
	defer fast.Close()
	defer slow.Close()
	call(take, 1, "a", 1)
	if changed, reload, err := fast.Next(t.Context()); fmt.Sprint(changed) != "[1]" || reload || err != nil {
		t.Errorf("got %v, %t, %v", changed, reload, err)
	}
	for i := range int64(capture.MaxChanged + 1) {
		call(take, i, "a", 1)
	}
	if changed, reload, err := slow.Next(t.Context()); len(changed) > capture.MaxChanged || !reload || err != nil {
		t.Errorf("got %d ids, %t, %v, want to reload", len(changed), reload, err)
	}
	call(take, 1, "a", 1)
	if changed, reload, _ := slow.Next(t.Context()); len(changed) != 1 || reload {
		t.Errorf("got %v, %t, want a change after the reload", changed, reload)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("over"))
	if _, _, err := slow.Next(ctx); err == nil || err.Error() != "over" {
		t.Errorf("got %v, want the cause", err)
	}
}

func TestConcurrentUse(t *testing.T) {
	ring := capture.NewSmall(50, 100_000)
	ctx, cancel := context.WithCancel(t.Context())
	var readers, writers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			w := ring.Watch()
			defer w.Close()
			for {
				changed, _, err := w.Next(ctx)
				if err != nil {
					return
				}
				for _, id := range changed {
					ring.Get(id)
				}
				q, _ := capture.ParseQuery("text:x -method:tools/list")
				ring.Find(q, 0, 10)
			}
		})
	}
	for n := range 4 {
		writers.Go(func() {
			take := ring.Frames(fmt.Sprint("srv", n))
			for i := range int64(300) {
				call(take, i, "t", int(i))
			}
		})
	}
	writers.Wait()
	cancel()
	readers.Wait()
	if held, frames := ring.Held(); held > 100_000 || frames > 100 {
		t.Errorf("%d frames need %d bytes", frames, held)
	}
}

func TestQueries(t *testing.T) { synctest.Test(t, testQueries) }

func testQueries(t *testing.T) {
	ring := capture.NewSmall(10, 1<<20)
	call(ring.Frames("github"), 1, "create issue", 1)
	slow := ring.Frames("db")
	slow(mcp.Frame{Sent: true, Message: &jsonrpc.Message{ID: jsonrpc.IntID(1), Method: "resources/read", Params: []byte(`{"uri":"x://a"}`)}})
	time.Sleep(2 * time.Millisecond)
	slow(mcp.Frame{Message: &jsonrpc.Message{ID: jsonrpc.IntID(1), Error: &mcp.Error{Code: -32602, Message: "bad uri"}}})
	for query, want := range map[string]string{
		"":                         "[2 1]",
		"method:tools/call":        "[1]",
		"-method:tools/call":       "[2]",
		"server:GIT":               "[1]",
		"status:error":             "[2]",
		"status:>-40000":           "[2]",
		"status:<-40000":           "[]",
		"dur:>1ms":                 "[2]",
		"dur:<1h":                  "[2 1]",
		"hop:upstream -hop:http":   "[2 1]",
		`"create issue"`:           "[1]",
		`text:"bad uri" server:db`: "[2]",
		"server:db server:github":  "[]",
		"x://a":                    "unknown field",
		`"x://a"`:                  "[2]",
		"foo:1": `position 1: unknown field "foo": must be method, server, caller, status, dur, hop, ` +
			`trace, from, to, text`,
		"to:2000-01-02T00:00:00Z":       "[2 1]",
		"from:2000-01-01T00:00:00.001Z": "[2]",
		"to:1999-12-31T23:59:59Z":       "[]",
		"-to:1999-12-31T23:59:59Z":      "[2 1]",
		"from:noon":                     `position 6: invalid time "noon"`,
		"to:>12:00":                     "to cannot be compared with >",
		"server:db  -dur:1":             `position 17: invalid duration "1": want such as dur:>500ms`,
		"dur:5ms":                       "position 5: invalid duration",
		"hop:up":                        `unknown hop "up": must be one of [downstream upstream http oauth process]`,
		"status:>bad":                   "position 9: invalid code",
		"method:>a":                     "method cannot be compared with >",
		`ä text:"a`:                     "position 8: the quote is not closed",
		"method:":                       "position 8: want a value for method",
		"-":                             "position 2: want a value for text",
		strings.Repeat("a ", 30):        "at most 20 terms",
		strings.Repeat("a", 2000):       "at most 1000 bytes",
		strings.Repeat("é", 64) + "é:1": "unknown field",
	} {
		q, err := capture.ParseQuery(query)
		got := fmt.Sprint(err)
		if err == nil {
			found := []uint64{}
			for _, x := range ring.Find(q, 0, 10) {
				found = append(found, x.ID)
			}
			got = fmt.Sprint(found)
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want %s", query, got, want)
		}
	}
}

func FuzzParseQuery(f *testing.F) {
	f.Add(`method:tools/call -status:error dur:>500ms "two words" text:"a b`)
	f.Add("dur:<1h status:>-1 hop:http x:\xff")
	ring := capture.NewSmall(10, 1<<20)
	call(ring.Frames("srv"), 1, "tool", 1)
	f.Fuzz(func(t *testing.T, text string) {
		q, err := capture.ParseQuery(text)
		if err == nil {
			ring.Find(q, 0, 10)
			return
		}
		wrong, ok := errors.AsType[*capture.QueryError](err)
		if !ok || wrong.Position < 1 || wrong.Position > len([]rune(text))+1 || wrong.Problem == "" {
			t.Errorf("%q: got %v, want a position within the text", text, err)
		}
	})
}

// A request is sent again only from its first message: a later message contains answers of a person.
func TestAnswersAreNotSentAgain(t *testing.T) {
	for _, o := range []struct {
		params, want string
		late         bool // the first frame is not held
	}{
		{`{"name":"t"}`, "", false},
		{`{"name":"t"}`, "without its complete request", true},
		{`{"name":"t","inputResponses":{}}`, "begins with answers", false},
		{`{"name":"t","requestState":"x"}`, "begins with answers", false},
	} {
		ring := capture.New(nil)
		take := ring.Frames("srv")
		send := func(params string) {
			take(mcp.Frame{Sent: true, Message: &jsonrpc.Message{ID: jsonrpc.IntID(1), Method: "tools/call",
				Params: json.RawMessage(params)}})
		}
		if o.late {
			send(o.params)
			question := json.RawMessage(`{"resultType":"input_required","inputRequests":{}}`)
			take(mcp.Frame{Message: &jsonrpc.Message{ID: jsonrpc.IntID(1), Result: question}})
		}
		w := ring.Watch()
		send(o.params)
		w.Close()
		if _, err := ring.Request(1); (err != nil) != (o.want != "") ||
			err != nil && !strings.Contains(err.Error(), o.want) {
			t.Errorf("%+v: got the error %v", o, err)
		}
	}
}
