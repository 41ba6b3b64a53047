package legacy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/internal/legacy"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// rounds answers the first requests with the given results, and every later one with a complete
// result.
func rounds(results ...string) func(context.Context, *jsonrpc.Message, legacy.Stream) *jsonrpc.Message {
	var n atomic.Int32
	return func(_ context.Context, req *jsonrpc.Message, _ legacy.Stream) *jsonrpc.Message {
		if i := int(n.Add(1)); i <= len(results) {
			return &jsonrpc.Message{ID: req.ID, Result: json.RawMessage(results[i-1])}
		}
		return &jsonrpc.Message{ID: req.ID, Result: json.RawMessage(`{"resultType":"complete","content":[]}`)}
	}
}

func inputRequired(members string) string { return `{"resultType":"input_required",` + members + `}` }

const (
	elicit = `{"method":"elicitation/create","params":{"message":"Sure?","requestedSchema":{"type":"object","properties":{}}}}`
	sample = `{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}}`
	roots  = `{"method":"roots/list"}`
	visit  = `{"method":"elicitation/create","params":{"mode":"url","message":"Go","url":"https://s.example"}}`
)

// call starts a tools/call with id 1 and waits until the session is idle.
func (c *client) call() {
	go c.session.Handle(c.Context(), message(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":"p"}}}`), c.out.write)
	synctest.Wait()
}

// wantRequests returns the written messages, which must be requests of these methods.
func (c *client) wantRequests(methods ...string) []*jsonrpc.Message {
	c.Helper()
	messages := c.out.takeMessages()
	var got []string
	for _, m := range messages {
		if m.Kind() != jsonrpc.Request {
			c.Errorf("wrote %s, want a request", jsonrpc.Append(nil, m))
		}
		got = append(got, m.Method)
	}
	if diff := cmp.Diff(methods, got); diff != "" {
		c.Fatalf("input requests (-want +got):\n%s", diff)
	}
	return messages
}

func (c *client) reply(q *jsonrpc.Message, members string) {
	c.Helper()
	var back outbox // a separate one: the continued request may have written to the other
	c.session.Handle(c.Context(), message(`{"jsonrpc":"2.0","id":`+q.ID.String()+`,`+members+`}`), back.write)
	c.want(back.take())
	synctest.Wait()
}

func TestInputRequestsAndRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := &fakeCore{handle: rounds(
			inputRequired(`"inputRequests":{"a":`+elicit+`,"b\"c":`+sample+`},"requestState":"st\u0041te"`),
			inputRequired(`"inputRequests":{"r":`+roots+`}`),
		)}
		c := connect(t, "2025-06-18", core)
		c.call()
		q := c.wantRequests("elicitation/create", "sampling/createMessage")
		c.reply(q[1], `"result":{"role":"assistant","content":{"type":"text","text":"x"},"model":"m"}`)
		c.want(c.out.take())
		c.reply(q[0], `"result":{"action":"accept","content":{"n":1.50}}`)
		again := string(core.last().Params)
		want := `{"name":"t","inputResponses":{"a":{"action":"accept","content":{"n":1.50}},` +
			`"b\"c":{"role":"assistant","content":{"type":"text","text":"x"},"model":"m"}},"requestState":"st\u0041te","_meta":`
		if !strings.HasPrefix(again, want) || !strings.HasSuffix(again, `,"progressToken":"p"}}`) {
			t.Errorf("retried with %s\nwant         %s… with the progress token", again, want)
		}
		c.reply(c.wantRequests("roots/list")[0], `"result":{"roots":[]}`)
		again = string(core.last().Params)
		if want := `{"name":"t","inputResponses":{"r":{"roots":[]}},"_meta":`; !strings.HasPrefix(again, want) { // MRTR-08: no state given, none sent
			t.Errorf("retried with %s\nwant         %s…", again, want)
		}
		c.want(c.out.take(), `{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`)
	})
}

func TestRequestStateAloneIsRetriedAtOnce(t *testing.T) {
	core := &fakeCore{handle: rounds(inputRequired(`"requestState":"later"`))}
	c := connect(t, "2024-11-05", core)
	c.want(c.handle(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}`), `{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`)
	if got := member(core.last().Params, "requestState"); got != `"later"` {
		t.Errorf("request state %s, want \"later\"", got)
	}
}

// Requirement: ELI-27
func TestURLElicitationHasAnID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := connect(t, "2025-11-25", &fakeCore{handle: rounds(inputRequired(`"inputRequests":{"a":` + visit + `}`))})
		c.call()
		q := c.wantRequests("elicitation/create")[0]
		if id := member(q.Params, "elicitationId"); len(id) < 20 {
			t.Errorf("elicitationId %s, want at least 20 characters", id)
		}
		c.reply(q, `"result":{"action":"accept"}`)
		completed := `{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{"elicitationId":` +
			member(q.Params, "elicitationId") + `}}`
		c.want(c.out.take(), completed, `{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`)
	})
}

func TestUnsupportedInputRequestFailsTheRequest(t *testing.T) {
	c := connect(t, "2025-06-18", &fakeCore{handle: rounds(inputRequired(`"inputRequests":{"a":` + elicit + `,"b":` + visit + `}`))})
	got := c.handle(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}`)
	if len(got) != 1 || !strings.Contains(got[0], `"id":1,"error":{"code":-32600,`) { // neither input request was sent
		t.Errorf("wrote %q", got)
	}
}

// Requirement: ELI-10
func TestFailedElicitationIsCancelled(t *testing.T) {
	for _, answer := range []string{`"error":{"code":-32603,"message":"no screen"}`, `"result":[]`} {
		synctest.Test(t, func(t *testing.T) {
			core := &fakeCore{handle: rounds(inputRequired(`"inputRequests":{"a":` + elicit + `}`))}
			c := connect(t, "2025-06-18", core)
			c.call()
			c.reply(c.wantRequests("elicitation/create")[0], answer)
			if got := member(core.last().Params, "inputResponses"); got != `{"a":{"action":"cancel"}}` {
				t.Errorf("input responses %s, want a cancelled elicitation", got)
			}
		})
	}
}

// Requirement: SAMP-09
func TestRejectionEndsTheRequest(t *testing.T) {
	for _, tc := range []struct{ method, request, answer, want string }{
		{"sampling/createMessage", sample, `"error":{"code":-1,"message":"User rejected"}`, "the client refused sampling/createMessage: User rejected"},
		{"sampling/createMessage", sample, `"error":{"code":-32603,"message":"broken"}`, "the client refused sampling/createMessage: broken"},
		{"roots/list", roots, `"error":{"code":-32601,"message":"no such method"}`, "the client refused roots/list: no such method"},
		{"roots/list", roots, `"result":[]`, "the client refused roots/list: its result is not an object"},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := connect(t, "2025-06-18", &fakeCore{handle: rounds(inputRequired(`"inputRequests":{"a":` + tc.request + `,"b":` + elicit + `}`))})
			c.call()
			q := c.wantRequests(tc.method, "elicitation/create")
			c.session.Handle(t.Context(), message(`{"jsonrpc":"2.0","id":`+q[0].ID.String()+`,`+tc.answer+`}`), c.out.write)
			synctest.Wait()
			c.want(c.out.take(),
				`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+q[1].ID.String()+`}}`,
				`{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"`+tc.want+`"}}`)
			c.reply(q[1], `"result":{"action":"accept"}`) // a response that loses the race is ignored
			c.want(c.out.take())
		})
	}
}

func TestNothingFollowsACancelDuringInput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := &fakeCore{handle: rounds(inputRequired(`"inputRequests":{"a":` + elicit + `}`))}
		c := connect(t, "2025-06-18", core)
		c.call()
		q := c.wantRequests("elicitation/create")[0]
		c.handle(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		synctest.Wait()
		c.reply(q, `"result":{"action":"accept"}`)
		c.want(c.out.take())
		if len(core.requests) != 1 {
			t.Error("the handler went on after the cancel")
		}
	})
}

func TestCloseEndsInputRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := connect(t, "2025-06-18", &fakeCore{handle: rounds(inputRequired(`"inputRequests":{"a":` + elicit + `}`))})
		c.call()
		c.wantRequests("elicitation/create")
		c.session.Close(errors.New("over"))
		synctest.Wait()
		c.want(c.out.take(), `{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"the session ended before the response to elicitation/create"}}`)
	})
}

func TestUnansweredInputRequestsAreCancelled(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{0: legacy.DefaultAnswerTimeout, time.Minute: time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			core := &fakeCore{discovered: discovered, handle: rounds(inputRequired(`"inputRequests":{"a":` + elicit + `,"b":` + roots + `,"c":` + sample + `}`))}
			cfg := config(core)
			cfg.AnswerTimeout = timeout
			c := &client{T: t, core: core}
			c.session, _ = legacy.Initialize(t.Context(), cfg, initialize("2025-06-18"))
			c.call()
			q := c.wantRequests("elicitation/create", "roots/list", "sampling/createMessage")
			time.Sleep(want - time.Second)
			c.reply(q[0], `"result":{"action":"accept"}`) // does not extend the time for the others
			c.want(c.out.take())
			time.Sleep(time.Second)
			synctest.Wait()
			c.want(c.out.take(),
				`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+q[1].ID.String()+`}}`,
				`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+q[2].ID.String()+`}}`,
				`{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"the client did not answer roots/list in time"}}`)
			c.reply(q[1], `"result":{"roots":[]}`) // too late, and ignored
			c.want(c.out.take())
			if len(core.requests) != 1 {
				t.Error("the handler went on without the answers")
			}
		})
	}
}

func TestRefusalIsCutBetweenRunes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := connect(t, "2025-06-18", &fakeCore{handle: rounds(inputRequired(`"inputRequests":{"a":` + sample + `}`))})
		c.call()
		q := c.wantRequests("sampling/createMessage")[0]
		c.session.Handle(t.Context(), message(`{"jsonrpc":"2.0","id":`+q.ID.String()+`,"error":{"code":-1,"message":"x`+strings.Repeat("é", 200)+`"}}`), c.out.write)
		synctest.Wait()
		got := c.out.takeMessages()
		if len(got) != 1 || got[0].Error == nil {
			t.Fatalf("wrote %+v", got)
		}
		if text := got[0].Error.Message; !utf8.ValidString(text) || !strings.HasSuffix(text, ": x"+strings.Repeat("é", 127)) {
			t.Errorf("got %q", text)
		}
	})
}

func TestResponsesBelongToOneSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ask := inputRequired(`"inputRequests":{"a":` + elicit + `}`)
		session := connect(t, "2025-06-18", &fakeCore{handle: rounds(ask)})
		other := connect(t, "2025-06-18", &fakeCore{handle: rounds(ask)})
		session.call()
		other.call()
		q, otherRequest := session.wantRequests("elicitation/create")[0], other.wantRequests("elicitation/create")[0]
		if q.ID == otherRequest.ID || len(q.ID.String()) < 26 {
			t.Errorf("ids %s and %s are equal or short", q.ID, otherRequest.ID)
		}
		other.reply(q, `"result":{"action":"accept"}`)
		session.want(session.out.take())
		other.want(other.out.take())
		session.reply(q, `"result":{"action":"accept"}`)
		session.want(session.out.take(), `{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`)
		other.session.Close(errors.New("over"))
	})
}

func TestRoundsAreLimited(t *testing.T) {
	core := &fakeCore{handle: func(_ context.Context, req *jsonrpc.Message, _ legacy.Stream) *jsonrpc.Message {
		return &jsonrpc.Message{ID: req.ID, Result: json.RawMessage(inputRequired(`"requestState":"more"`))}
	}}
	c := connect(t, "2025-06-18", core)
	c.want(c.handle(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}`),
		`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"internal error"}}`)
	if len(core.requests) != 32 {
		t.Errorf("%d rounds, want 32", len(core.requests))
	}
}

func TestInputRequestsAreLimited(t *testing.T) {
	var many []string
	for i := range 65 {
		many = append(many, fmt.Sprintf(`"%d":%s`, i, roots))
	}
	c := connect(t, "2025-06-18", &fakeCore{handle: rounds(inputRequired(`"inputRequests":{` + strings.Join(many, ",") + `}`))})
	c.want(c.handle(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}`),
		`{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"too many input requests are waiting for the client"}}`)
}

// Requirement: PROG-03
func TestProgressIncreasesOverAllRounds(t *testing.T) {
	round := 0
	core := &fakeCore{handle: func(ctx context.Context, req *jsonrpc.Message, out legacy.Stream) *jsonrpc.Message {
		round++
		for i := range round + 1 {
			_ = out(ctx, &jsonrpc.Message{Method: "notifications/progress", Params: fmt.Appendf(nil, `{"progressToken":"p","progress":%d}`, i)})
		}
		if round < 3 {
			return &jsonrpc.Message{ID: req.ID, Result: json.RawMessage(inputRequired(`"requestState":"s"`))}
		}
		return &jsonrpc.Message{ID: req.ID, Result: json.RawMessage("{}")}
	}}
	c := connect(t, "2025-06-18", core)
	c.want(c.handle(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":"p"}}}`),
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":0}}`,
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1}}`,
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":2}}`,
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":3}}`,
		`{"jsonrpc":"2.0","id":1,"result":{}}`)
}
