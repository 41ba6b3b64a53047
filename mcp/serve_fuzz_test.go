package mcp_test

import (
	"bytes"
	"context"
	stdjson "encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// allMethods is a handler with one kind of behaviour per method.
var allMethods = methodTable{
	"tools/list": answerRevision,
	"tools/call": func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
		for range 3 {
			if err := req.Notify(ctx, "notifications/progress", stdjson.RawMessage(`{"progressToken":1,"progress":1}`)); err != nil {
				return nil, err
			}
		}
		return mcp.RawResult(`{"resultType":"complete","content":[]}`), nil
	},
	"prompts/get": func(context.Context, *mcp.Request) (mcp.Result, error) {
		return mcp.RawResult(`{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{"message":"?","requestedSchema":{}}},"b":{"method":"roots/list"}}}`), nil
	},
	"resources/read":       func(context.Context, *mcp.Request) (mcp.Result, error) { panic("oh") },
	"completion/complete":  untilDone,
	"subscriptions/listen": listenUntilShutdown,
}

// A lockedBuffer is a bytes.Buffer for concurrent writes.
type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

// expected counts how often each id must and may be answered.
type expected struct {
	atLeast, atMost map[jsonrpc.ID]int
	cancelled       map[jsonrpc.ID]bool
}

func (e *expected) add(m *jsonrpc.Message, err error, certain int) {
	var refused *jsonrpc.DecodeError
	if errors.As(err, &refused) {
		m = &jsonrpc.Message{Refused: refused}
	}
	switch m.Kind() {
	case jsonrpc.Request:
		e.atLeast[m.ID] += certain
		e.atMost[m.ID]++
	case jsonrpc.Invalid:
		if answer := m.Refused.Response(); answer != nil {
			e.atLeast[answer.ID] += certain
			e.atMost[answer.ID]++
		}
	case jsonrpc.Batch: // answered as a whole or each message of it
		e.atMost[jsonrpc.ID{}]++
		for _, m := range m.Batch {
			e.add(m, nil, 0)
		}
	case jsonrpc.Notification:
		var p struct {
			RequestID jsonrpc.ID `json:"requestId"`
		}
		if m.Method == "notifications/cancelled" && stdjson.Unmarshal(m.Params, &p) == nil {
			e.cancelled[p.RequestID] = true
		}
	}
}

// FuzzServe sends arbitrary lines. Every request whose id can be read is answered exactly once, unless it is cancelled;
// nothing panics, and nothing hangs, which the synctest bubble would detect.
func FuzzServe(f *testing.F) {
	seeds := []string{
		modernLine(`1`, "tools/list", "") + "\n" + modernLine(`1`, "tools/call", "") + "\n" + plainLine(`2`, "ping", `{}`),
		initializeLine(`0`, "2025-06-18") + "\n" + initializedLine + "\n" + plainLine(`1`, "tools/call", `{"name":"t"}`) + "\n" + plainLine(`2`, "prompts/get", `{"name":"p"}`),
		initializeLine(`0`, "2025-03-26") + "\n[" + plainLine(`1`, "ping", `{}`) + "," + initializedLine + ",5," + plainLine(`2`, "resources/read", `{}`) + "]\n[]",
		initializeLine(`0`, "2025-11-25") + "\n" + plainLine(`1`, "resources/subscribe", `{"uri":"x"}`) + "\n" + plainLine(`2`, "resources/unsubscribe", `{"uri":"x"}`) + "\n" + plainLine(`3`, "logging/setLevel", `{"level":"x"}`),
		initializeLine(`0`, "2024-11-05") + "\n" + plainLine(`1`, "completion/complete", `{}`) + "\n" + noteLine("notifications/cancelled", `{"requestId":1}`) + "\n" + plainLine(`1`, "ping", `{}`),
		modernLine(`"l"`, "subscriptions/listen", `"notifications":{},`) + "\n" + noteLine("notifications/cancelled", `{"requestId":"l"}`) + "\n" + resultLine(`9`, `{}`),
		"nonsense\n\n{}\n[]\n[1]\n" + `{"jsonrpc":"2.0","id":null,"method":"x"}` + "\n" + `{"jsonrpc":"2.0","id":1.5,"method":"x"}` + "\n" + plainLine(`1`, "x", `{"_meta":5}`),
		modernLine(`1`, "initialize", "") + "\n" + initializeLine(`2`, "x") + "\n" + initializeLine(`3`, "x") + "\n" + plainLine(`4`, "initialize", `{}`),
	}
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		want := expected{map[jsonrpc.ID]int{}, map[jsonrpc.ID]int{}, map[jsonrpc.ID]bool{}}
		for line := range bytes.SplitSeq(input, []byte{'\n'}) {
			if len(bytes.Trim(line, " \t\r")) > 0 {
				m, err := jsonrpc.Decode(line)
				want.add(m, err, 1)
			}
		}
		var out lockedBuffer
		synctest.Test(t, func(t *testing.T) {
			conn := mcp.NewStreamConn(bytes.NewReader(input), &out, nil)
			if err := mcp.Serve(t.Context(), allMethods, conn, &mcp.ServeOptions{Logger: discardLog}); err != nil {
				t.Errorf("Serve: %v", err)
			}
		})
		got := map[jsonrpc.ID]int{}
		count := func(m *jsonrpc.Message) {
			if m.Kind() == jsonrpc.Response {
				got[m.ID]++
			}
		}
		for line := range strings.Lines(out.String()) {
			m, err := jsonrpc.Decode([]byte(line))
			if err != nil {
				t.Fatalf("wrote %q: %v", line, err)
			}
			count(m)
			for _, m := range m.Batch {
				count(m)
			}
		}
		for id, n := range got {
			if n > want.atMost[id] {
				t.Errorf("request %s: got %d responses, want at most %d", id, n, want.atMost[id])
			}
		}
		for id, n := range want.atLeast {
			if got[id] < n && !want.cancelled[id] {
				t.Errorf("request %s: got %d responses, want at least %d", id, got[id], n)
			}
		}
	})
}
