package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// request returns a request of a client of 2026-07-28 that can be asked. The params are members of an
// object.
func request(t *testing.T, method, params string) *mcp.Request {
	t.Helper()
	meta, err := json.Marshal(map[string]any{wire.MetaProtocolVersion: "2026-07-28",
		wire.MetaClientCapabilities: json.RawMessage(`{"elicitation":{"form":{}}}`),
		wire.MetaClientInfo:         json.RawMessage(`{"name":"c","version":"1"}`)})
	if err != nil {
		t.Fatal(err)
	}
	text := `{"_meta":` + string(meta)
	if params != "" {
		text += "," + params
	}
	m, err := jsonrpc.Decode([]byte(`{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":` + text + "}}"))
	if err != nil {
		t.Fatal(err)
	}
	req, err := mcp.NewRequest(m)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// serve returns the result of a view, and the error.
func serve(t *testing.T, v *host.View, method, params string) (string, *mcp.Error) {
	t.Helper()
	res, err := v.ServeMCP(t.Context(), request(t, method, params))
	if err == nil {
		return fmt.Sprintf("%s", res), nil
	}
	var refused *mcp.Error
	if !errors.As(err, &refused) {
		t.Fatalf("%s: got %v, want an error of the protocol", method, err)
	}
	return "", refused
}

// stateOf calls a tool that asks, and returns the state of the question.
func stateOf(t *testing.T, v *host.View, params string) string {
	t.Helper()
	res, err := serve(t, v, "tools/call", params)
	raw, _ := jsonscan.Get([]byte(res), "requestState")
	state, _ := jsonscan.Unquote(raw)
	if err != nil || state == "" {
		t.Fatalf("got %s, %v, want a question", res, err)
	}
	return state
}

// States that a host did not issue for exactly this request are refused with one text, and do not reach
// the server.
func TestHostileStates(t *testing.T) {
	for _, up := range oneProcess(mcptest.Combinations()) {
		if !up.Since("2025-06-18") {
			continue
		}
		t.Run(up.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { useForeignStates(t, up) })
		})
	}
}

func useForeignStates(t *testing.T, up mcptest.Combination) {
	all := &recorded{Handler: newServer("all")}
	settings := `{"profiles":{"p":{}}}`
	h := hostileHost(t, map[string]mcp.Handler{"all": all, "other": newServer("other")}, up, settings)
	foreign := hostileHost(t, map[string]mcp.Handler{"all": newServer("all"), "other": newServer("other")}, up, settings)
	ann, bob := principal("ann"), principal("bob")
	const call = `"name":"all__ask","arguments":{}`
	own := h.For(&policy.Caller{Principal: ann})
	state := stateOf(t, own, call)
	before := len(all.of("tools/call"))
	long := strings.Repeat("A", 1<<20)
	flipped := []byte(state)
	flipped[len(flipped)/2] ^= 1
	answer := `,"inputResponses":{"sure":{"action":"accept","content":{"value":true}},"q1":{"action":"accept","content":{"value":true}}}`
	for _, test := range []struct {
		name   string
		caller *policy.Caller
		call   string
		state  string
	}{
		{"other principal", &policy.Caller{Principal: bob}, call, state},
		{"local user", &policy.Caller{}, call, state},
		{"profile", &policy.Caller{Principal: ann, Profile: "p"}, call, state},
		{"one server", &policy.Caller{Principal: ann, Server: "all"}, `"name":"ask","arguments":{}`, state},
		{"other tool", &policy.Caller{Principal: ann}, `"name":"other__ask","arguments":{}`, state},
		{"other arguments", &policy.Caller{Principal: ann}, `"name":"all__ask","arguments":{"a":1}`, state},
		{"extra member", &policy.Caller{Principal: ann}, call + `,"task":{"ttl":1}`, state},
		{"truncated", &policy.Caller{Principal: ann}, call, state[:len(state)-1]},
		{"flipped", &policy.Caller{Principal: ann}, call, string(flipped)},
		{"empty", &policy.Caller{Principal: ann}, call, ""},
		{"long", &policy.Caller{Principal: ann}, call, long},
		{"other host", &policy.Caller{Principal: ann}, call, stateOf(t, foreign.For(&policy.Caller{Principal: ann}), call)},
	} {
		_, err := serve(t, h.For(test.caller), "tools/call", test.call+`,"requestState":"`+test.state+`"`+answer)
		if err == nil || err.Code != mcp.CodeInvalidParams ||
			err.Message != "invalid params.requestState: unknown, expired, or of another request" {
			t.Errorf("%s: got %v, want -32602 with the usual text", test.name, err)
		}
	}
	if n := len(all.of("tools/call")); n != before {
		t.Errorf("%d calls reached the server, want none", n-before)
	}
	time.Sleep(61 * time.Minute)
	if _, err := serve(t, own, "tools/call", call+`,"requestState":"`+state+`"`+answer); err == nil ||
		err.Code != mcp.CodeInvalidParams {
		t.Errorf("expired: got %v", err)
	}
	useStateTwice(t, own, call)
}

// useStateTwice answers with wrong shapes, with extra keys, and then once more with the same state.
func useStateTwice(t *testing.T, v *host.View, call string) {
	t.Helper()
	state := stateOf(t, v, call)
	params := func(answers string) string {
		return call + `,"requestState":"` + state + `","inputResponses":` + answers
	}
	for _, wrong := range []string{`[]`, `7`, `{"sure":7,"q1":7}`, `{"sure":{"action":"yes"},"q1":{"action":"yes"}}`} {
		if res, err := serve(t, v, "tools/call", params(wrong)); err == nil && strings.Contains(res, "alltrue") {
			t.Errorf("answer %s: got %s", wrong, res)
		}
	}
	good := `{"extra":{"action":"accept"},"sure":{"action":"accept","content":{"value":true}},` +
		`"q1":{"action":"accept","content":{"value":true}}}`
	res, err := serve(t, v, "tools/call", params(good))
	if err != nil && err.Code != mcp.CodeInvalidParams || err == nil && !strings.Contains(res, "all") {
		t.Errorf("got %s, %v", res, err)
	}
}

// Cursors of others are refused with one text.
func TestHostileCursors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var many []string
		for n := range 600 {
			many = append(many, tool(fmt.Sprintf("t%03d", n)))
		}
		evil := &hostile{answer: on("tools/list", func(*mcp.Request) string { return listOf(many...) })}
		const settings = `{"tools":{"mode":"list"},"profiles":{"p":{}}}`
		servers := map[string]mcp.Handler{"evil": evil, "good": newServer("good")}
		h, other := newHost(t, servers, inMemory, settings), newHost(t, servers, inMemory, settings)
		cursor := func(h *host.Host) string {
			res, err := serve(t, h.For(&policy.Caller{Principal: principal("ann")}), "tools/list", "")
			raw, _ := jsonscan.Get([]byte(res), "nextCursor")
			if err != nil || len(raw) == 0 {
				t.Fatalf("got %.100s, %v, want a cursor", res, err)
			}
			return string(raw)
		}
		ours := cursor(h)
		for name, test := range map[string]struct {
			caller         *policy.Caller
			method, cursor string
		}{
			"principal": {&policy.Caller{Principal: principal("bob")}, "tools/list", ours},
			"profile":   {&policy.Caller{Principal: principal("ann"), Profile: "p"}, "tools/list", ours},
			"server":    {&policy.Caller{Principal: principal("ann"), Server: "evil"}, "tools/list", ours},
			"kind":      {&policy.Caller{Principal: principal("ann")}, "prompts/list", ours},
			"host":      {&policy.Caller{Principal: principal("ann")}, "tools/list", cursor(other)},
			"cut":       {&policy.Caller{Principal: principal("ann")}, "tools/list", ours[:len(ours)-3] + `"`},
			"type":      {&policy.Caller{Principal: principal("ann")}, "tools/list", "7"},
		} {
			_, err := serve(t, h.For(test.caller), test.method, `"cursor":`+test.cursor)
			if err == nil || err.Code != mcp.CodeInvalidParams || !strings.HasSuffix(err.Message, "unknown or of another list") {
				t.Errorf("%s: got %v", name, err)
			}
		}
	})
}

// Calls of one principal that wait for answers are limited, and others can still be asked.
func TestHostileSuspendedCalls(t *testing.T) {
	up := mcptest.Combination{Transport: mcptest.HTTP, Revision: "2025-11-25"}
	for _, share := range []string{"shared", "caller"} {
		t.Run(share, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(t, map[string]mcp.Handler{"all": newServer("all"), "other": newServer("other")}, up,
					`{"servers":{"all":{"share":"`+share+`"}}}`)
				ann := h.For(&policy.Caller{Principal: principal("ann")})
				asked := 0
				var mu sync.Mutex
				var wait sync.WaitGroup
				for range 1000 {
					wait.Go(func() {
						res, _ := serve(t, ann, "tools/call", `"name":"all__ask","arguments":{}`)
						mu.Lock()
						defer mu.Unlock()
						if strings.Contains(res, "input_required") {
							asked++
						}
					})
				}
				wait.Wait()
				if asked < 1 || asked > 16 {
					t.Errorf("%d calls of one principal wait for it, want at most 16", asked)
				}
				stateOf(t, h.For(&policy.Caller{Principal: principal("bob")}), `"name":"all__ask","arguments":{}`)
				stateOf(t, ann, `"name":"other__ask","arguments":{}`)
			})
		})
	}
}

// Unknown names, URIs and methods cost no requests at servers, and little memory.
func TestHostileUnknownNames(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	synctest.Test(t, func(t *testing.T) {
		evil := &hostile{answer: usual}
		h := newHost(t, map[string]mcp.Handler{"evil": evil, "good": newServer("good")}, inMemory, "{}")
		v := h.For(&policy.Caller{Principal: principal("ann")})
		for n := range 10_000 {
			for _, r := range []struct{ method, params string }{
				{"tools/call", fmt.Sprintf(`"name":"evil__%d"`, n)},
				{"resources/read", fmt.Sprintf(`"uri":"file:///none/%d"`, n)},
				{"acme/none", fmt.Sprintf(`"name":"%d"`, n)},
			} {
				if _, err := serve(t, v, r.method, r.params); err == nil {
					t.Fatalf("%s with %s: got no error", r.method, r.params)
				}
			}
		}
		if n := evil.requests.Load(); n > 20 {
			t.Errorf("30,000 requests with unknown names read %d lists", n)
		}
	})
}

// One principal with many sessions removes neither the views nor the processes of another one.
func TestHostileSessions(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	synctest.Test(t, func(t *testing.T) {
		p := &fakeProcess{handler: simpleServer("calc")}
		h := openFakes(t, map[string]*fakeProcess{"calc": p}, `{"servers":{"calc":{"share":"session"}}}`)
		bob := &policy.Caller{Principal: principal("bob"), Session: "bob"}
		view := h.For(bob)
		c := client(t, h, bob)
		if f, text := failureOf(t, c, "calc__name"); f != nil {
			t.Fatalf("got %+v, %q", f, text)
		}
		for n := range 3000 {
			h.For(&policy.Caller{Principal: principal("ann"), Session: fmt.Sprint(n)})
			time.Sleep(time.Millisecond)
		}
		if h.For(bob) != view {
			t.Error("the view of another principal was removed")
		}
		if views, pools := host.Sizes(h); views > 1001 || pools > 1001 {
			t.Errorf("%d views and %d pools are kept", views, pools)
		}
		for n := range 30 {
			client(t, h, &policy.Caller{Principal: principal("ann"), Session: fmt.Sprint(n)})
			time.Sleep(time.Second)
		}
		own := 0
		for _, in := range upstream(t, h, "calc").Status().Instances {
			if in.Caller.Principal.Subject == "ann" {
				own++
			}
		}
		if own > 4 || len(p.started()) > 32 {
			t.Errorf("one principal has %d processes after %d starts, want at most 4", own, len(p.started()))
		}
		if f, text := failureOf(t, c, "calc__name"); f != nil {
			t.Errorf("got %+v, %q", f, text)
		}
	})
}

// A subscription to many resources is one request at the server; too many are refused.
func TestHostileSubscriptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer("calc")
		mcp.AddResourceTemplate(s, &mcp.ResourceTemplate{URITemplate: "x:///{N}", Name: "x"},
			func(context.Context, struct{ N string }) (string, error) { return "", nil })
		all := &recorded{Handler: s}
		p := &fakeProcess{handler: all}
		h := openFakes(t, map[string]*fakeProcess{"calc": p}, "{}")
		c := client(t, h, &policy.Caller{})
		uris := func(n int) (all []string) {
			for i := range n {
				all = append(all, fmt.Sprintf("x:///%d", i))
			}
			return all
		}
		begin := time.Now()
		for e, err := range c.Listen(t.Context(), mcp.SubscriptionFilter{ResourceSubscriptions: uris(1000)}) {
			if err != nil {
				t.Fatal(err)
			}
			if n := len(e.Filter.ResourceSubscriptions); e.Kind == mcp.EventListening && n != 1000 {
				t.Errorf("%d resources were agreed, want 1000", n)
			}
			break
		}
		if n := len(all.of("subscriptions/listen")); n > 3 {
			t.Errorf("%d subscriptions at the server, want one", n)
		}
		if took := time.Since(begin); took > 10*time.Second {
			t.Errorf("the subscription took %v", took)
		}
		for _, err := range c.Listen(t.Context(), mcp.SubscriptionFilter{ResourceSubscriptions: uris(100_000)}) {
			if err == nil {
				t.Error("100,000 resources were accepted")
			}
			break
		}
	})
}

// Requests that are cancelled at once leave nothing.
func TestHostileCancellations(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	forEachPair(t, func(t *testing.T, up, down mcptest.Combination) {
		h := newHost(t, map[string]mcp.Handler{"all": featureServer(), "other": newServer("other")}, up, "{}")
		c := mcptest.Dial(t, h.For(&policy.Caller{}), down, &mcp.ClientOptions{Elicit: yes})
		wantTool(t, c, "other__add")
		var wait sync.WaitGroup
		for n := range 50 {
			wait.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(n)*time.Millisecond)
				defer cancel()
				_, _ = c.CallTool(ctx, []string{"all__wait", "all__ask", "all__none"}[n%3], nil)
			})
		}
		wait.Wait()
		time.Sleep(5 * time.Second)
		for _, u := range h.Upstreams() {
			for _, in := range u.Status().Instances {
				if in.Requests != 0 {
					t.Errorf("%s has %d requests", u.Name(), in.Requests)
				}
			}
		}
		if r, err := c.CallTool(t.Context(), "other__add", map[string]any{"A": 1, "B": 1}); err != nil || r.Text() != "other2" {
			t.Errorf("got %+v, %v", r, err)
		}
	})
}
