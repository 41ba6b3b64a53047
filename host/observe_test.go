package host_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// A recordingObserver records what it receives, and checks that each beginning has one end.
type recordingObserver struct {
	t    testing.TB
	meta mcp.Meta // for the requests that are sent

	mu       sync.Mutex // guards the fields below
	open     map[context.Context]*mcp.Request
	seen     []string // direction or server, method, target and outcome of each request that has ended
	began    []string // sessions
	sessions int      // open ones
}

type observedKey struct{}

func (o *recordingObserver) Begin(ctx context.Context, req *mcp.Request) context.Context {
	if req.Via().Sent {
		for key, value := range o.meta {
			req.SetMeta(key, fmt.Appendf(nil, "%q", value))
		}
	}
	ctx = context.WithValue(ctx, observedKey{}, req)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.open == nil {
		o.open = map[context.Context]*mcp.Request{}
	}
	o.open[ctx] = req
	return ctx
}

func (o *recordingObserver) End(ctx context.Context, req *mcp.Request, out mcp.Outcome) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.open[ctx] != req {
		o.t.Errorf("End of %s: its context is not that of a request which has begun and not ended", req.Method)
	}
	delete(o.open, ctx)
	direction := "served"
	if server := host.ServerFrom(ctx); server != "" {
		direction = "asked by " + server
		if req.Via().Sent {
			direction = "sent to " + server
		}
	}
	text := strings.TrimSpace(direction + " " + req.Method + " " + out.Target)
	switch {
	case out.ToolError:
		text += ": tool error"
	case out.InputRequired:
		text += ": input required"
	case out.Err != nil:
		text += ": error"
	}
	o.seen = append(o.seen, text)
}

func (o *recordingObserver) SessionBegan(ctx context.Context, v driver.Via) (ended func(cause error)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.began = append(o.began, fmt.Sprintf("%t %s", v.Sent, host.ServerFrom(ctx)))
	o.sessions++
	return func(error) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.sessions--
	}
}

// checkEnded reports the requests that have not ended.
func (o *recordingObserver) checkEnded() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, req := range o.open {
		o.t.Errorf("%s has begun and not ended", req.Method)
	}
}

// take returns the requests that have ended since the last call, without duplicates.
func (o *recordingObserver) take() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	seen := o.seen
	o.seen = nil
	slices.Sort(seen)
	return slices.Compact(seen)
}

// observedHost returns a host with an observer whose servers are in this process.
func observedHost(t *testing.T, servers map[string]mcp.Handler, up mcptest.Combination, o host.Options, settings string,
) *host.Host {
	t.Helper()
	entries := map[string]any{}
	for name := range servers {
		entries[name] = map[string]string{"command": name}
	}
	var h *host.Host
	o.Client.Revision = up.Revision
	o.Dial = func(_ context.Context, s *config.Server) (mcp.Transport, error) {
		transport := mcptest.Transport(t, servers[s.Command], up.Transport)
		t.Cleanup(func() { _ = h.Close() }) // before the end of the server, which waits for that
		return transport, nil
	}
	h = openFile(t, entries, settings, &o)
	return h
}

// The observer of a host receives the requests of callers and those to servers once each, with names that
// the caller knows as targets.
func TestObserverReceivesRequestsOfCallersAndToServers(t *testing.T) {
	forEachPair(t, func(t *testing.T, up, down mcptest.Combination) {
		if up.Transport != mcptest.Stdio && up.Transport != down.Transport {
			return // each transport of callers with commands and with itself
		}
		o := &recordingObserver{t: t}
		h := observedHost(t, map[string]mcp.Handler{"all": featureServer(), "other": newServer("other")}, up,
			host.Options{Observer: o}, "{}")
		c := mcptest.Dial(t, h.For(&policy.Caller{}), down, (&seen{}).options())
		if _, err := mcp.Collect(c.Tools(t.Context())); err != nil {
			t.Error(err)
		}
		o.take()
		for _, call := range []string{"all__add", "all__fail", "all__refuse", "all__sample", "all__invented"} {
			args := map[string]int{}
			if call == "all__add" {
				args["A"], args["B"] = 1, 2
			}
			_, _ = c.CallTool(t.Context(), call, args) // the observer has the outcome
		}
		if _, err := c.GetPrompt(t.Context(), "other__greet", nil); err != nil {
			t.Error(err)
		}
		want := []string{
			"sent to all tools/call add", "sent to all tools/call fail: tool error", "sent to all tools/call sample",
			"sent to all tools/call: error", "sent to other prompts/get greet",
			"served prompts/get other__greet", "served tools/call all__add", "served tools/call all__fail: tool error",
			"served tools/call all__refuse: error", "served tools/call all__sample",
			"served tools/call all__sample: input required", "served tools/call: error",
		}
		if up.Since(mcptest.Modern) {
			want = append(want, "sent to all tools/call sample: input required")
		} else {
			want = append(want, "asked by all sampling/createMessage")
		}
		slices.Sort(want)
		lists := func(seen string) bool { return strings.HasSuffix(seen, "/list") } // how often is not of interest
		if got := slices.DeleteFunc(o.take(), lists); !slices.Equal(got, want) {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		_, _ = c.Close(), h.Close()
		synctest.Wait()
		o.checkEnded()
		sessions := 0
		if !up.Since(mcptest.Modern) {
			sessions += 2
		}
		if !down.Since(mcptest.Modern) {
			sessions++
		}
		if len(o.began) != sessions || down.Transport != mcptest.HTTP && o.sessions != 0 {
			t.Errorf("sessions %q, open %d, want %d", o.began, o.sessions, sessions)
		}
	})
}

// What callers and their approvers see does not depend on the observer.
func TestObserverChangesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for _, up := range []mcptest.Combination{{Transport: mcptest.Stdio, Revision: "2025-11-25"}, inMemory} {
		for _, down := range oneProcess(mcptest.Combinations()) {
			t.Run(up.String()+" "+down.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					o := &recordingObserver{t: t}
					h := observedHost(t, map[string]mcp.Handler{"all": featureServer(), "other": newServer("other")}, up,
						host.Options{Observer: o}, "{}")
					for _, f := range features() {
						if f.since != "" && (!up.Since(f.since) || !down.Since(f.since)) {
							continue
						}
						s := &seen{}
						c := mcptest.Dial(t, h.For(&policy.Caller{}), down, s.options())
						f.run(t, c, s)
						_ = c.Close()
						synctest.Wait()
						if got := o.take(); len(got) == 0 {
							t.Errorf("%s: nothing was observed", f.name)
						}
					}
					_ = h.Close()
					synctest.Wait()
					o.checkEnded()
				})
			})
		}
	}
}

// Names that callers invent, and tools that a policy hides from them, are unknown.
func TestObserverKnowsOnlyWhatTheCallerHas(t *testing.T) {
	o := &recordingObserver{t: t}
	hide := policyFunc(func(a *policy.Action) policy.Decision {
		if a.Server == "db" && a.Caller.Principal == nil {
			return policy.Decision{Do: policy.OutcomeHide}
		}
		return policy.Decision{Do: policy.OutcomeAllow}
	})
	h := observedHost(t, map[string]mcp.Handler{"web": serverOf("web", "w"), "db": serverOf("db", "d")}, inMemory,
		host.Options{Observer: o, Policy: hide}, "{}")
	boss := client(t, h, &policy.Caller{Principal: &mcp.Principal{Subject: "boss"}})
	guest := client(t, h, &policy.Caller{})
	o.take()
	if _, err := boss.CallTool(t.Context(), "db__get", nil); err != nil {
		t.Error(err)
	}
	if got := o.take(); !slices.Contains(got, "served tools/call db__get") {
		t.Errorf("got %q, want the tool of the caller that has it", got)
	}
	for n := range 1000 {
		if _, err := guest.CallTool(t.Context(), fmt.Sprint("web__", n), nil); err == nil {
			t.Error("no error")
		}
	}
	if _, err := guest.CallTool(t.Context(), "db__get", nil); err == nil {
		t.Error("the hidden tool was called")
	}
	for _, seen := range o.take() {
		if strings.HasPrefix(seen, "served tools/call ") {
			t.Errorf("got %q, want no target", seen)
		}
	}
}

// traceMeta is the trace context of a caller.
var traceMeta = mcp.Meta{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	"tracestate": "vendor=1", "baggage": "tenant=acme"}

// A host without an observer passes on the trace context of its callers. One with an observer that sets it
// sends that in place of it. Baggage needs a setting.
func TestTraceContextOfCallers(t *testing.T) {
	own := mcp.Meta{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01", "tracestate": ""}
	for name, test := range map[string]struct {
		observed mcp.Meta
		settings string
		want     [3]string
	}{
		"no observer":      {nil, `{}`, [3]string{traceMeta["traceparent"].(string), "vendor=1", ""}},
		"an observer":      {own, `{}`, [3]string{own["traceparent"].(string), "", ""}},
		"baggage":          {nil, `{"servers":{"calc":{"forwardBaggage":true}}}`, [3]string{traceMeta["traceparent"].(string), "vendor=1", "tenant=acme"}},
		"baggage observed": {own, `{"servers":{"calc":{"forwardBaggage":true}}}`, [3]string{own["traceparent"].(string), "", "tenant=acme"}},
	} {
		t.Run(name, func(t *testing.T) {
			forEachPair(t, func(t *testing.T, up, down mcptest.Combination) {
				if up.Transport != mcptest.InMemory || down.Transport == mcptest.HTTP {
					return // the members are the same
				}
				calc := &recorded{Handler: newServer("calc")}
				opts := host.Options{}
				if test.observed != nil {
					opts.Observer = &recordingObserver{t: t, meta: test.observed}
				}
				h := observedHost(t, map[string]mcp.Handler{"calc": calc}, up, opts, test.settings)
				c := mcptest.Dial(t, h.For(&policy.Caller{}), down, nil)
				ctx := mcp.WithCallOptions(t.Context(), mcp.CallOptions{Meta: traceMeta})
				if _, err := c.CallTool(ctx, "calc__add", map[string]int{"A": 1, "B": 2}); err != nil {
					t.Fatal(err)
				}
				for _, req := range calc.of("tools/call") {
					for n, key := range []string{"traceparent", "tracestate", "baggage"} {
						got, _ := req.Meta(key)
						if string(got) != fmt.Sprintf("%q", test.want[n]) && (len(got) > 0 || test.want[n] != "") {
							t.Errorf("%s: got %s, want %q", key, got, test.want[n])
						}
					}
				}
			})
		})
	}
}

// idleObserver does nothing.
type idleObserver struct{}

func (idleObserver) Begin(ctx context.Context, _ *mcp.Request) context.Context { return ctx }
func (idleObserver) End(context.Context, *mcp.Request, mcp.Outcome)            {}

// With an observer, pages of lists are the same.
func TestObserverLeavesListsAsTheyAre(t *testing.T) {
	msg := &jsonrpc.Message{ID: jsonrpc.IntID(1), Method: "tools/list", Params: []byte(`{"_meta":{` +
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}`)}

	list := func(o mcp.Observer) string {
		h := newHostWith(t, map[string]mcp.Handler{"all": featureServer(), "other": newServer("other")},
			host.Options{Observer: o})
		req, err := mcp.NewRequest(msg)
		if err != nil {
			t.Fatal(err)
		}
		return string(mcp.Driver(h.For(&policy.Caller{})).Respond(t.Context(), req).Result)
	}
	plain := list(nil)
	if observed := list(idleObserver{}); observed != plain || !strings.Contains(plain, "other__add") {
		t.Errorf("got %s with an observer, %s without one", observed, plain)
	}
}

// A subscription of a caller is observed until its end, also after its handler has returned.
func TestObserverReceivesSubscriptionsOfCallersAtTheirEnd(t *testing.T) {
	for _, transport := range mcptest.Transports() {
		t.Run(transport, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := &recordingObserver{t: t}
				h := observedHost(t, map[string]mcp.Handler{"calc": newServer("calc")}, inMemory, host.Options{Observer: o}, "{}")
				c := mcptest.Dial(t, h.For(&policy.Caller{}), mcptest.Combination{Transport: transport, Revision: mcptest.Modern}, nil)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				for e, err := range c.Listen(ctx, mcp.SubscriptionFilter{ToolsListChanged: true}) {
					if err != nil || e.Kind != mcp.EventListening {
						t.Errorf("got %v, %v", e, err)
					}
					synctest.Wait()
					if seen := o.take(); slices.Contains(seen, "served subscriptions/listen") {
						t.Errorf("got %q before the end of the subscription", seen)
					}
					break
				}
				cancel()
				synctest.Wait()
				if seen := strings.Join(o.take(), "\n"); !strings.Contains(seen, "served subscriptions/listen") {
					t.Errorf("got %q after the end of the subscription", seen)
				}
			})
		})
	}
}

// Callers cannot fill the log with trace contexts that are not valid.
func TestInvalidTraceContextIsNotForwardedOrLogged(t *testing.T) {
	var log strings.Builder
	calc := &recorded{Handler: newServer("calc")}
	f, err := config.Parse([]byte(`{"mcpServers": {"calc": {"command": "calc"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	h, err := host.Open(t.Context(), f, &host.Options{Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Dial: func(context.Context, *config.Server) (mcp.Transport, error) { return mcp.InMemory(calc), nil }})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	req, err := mcp.NewRequest(&jsonrpc.Message{ID: jsonrpc.IntID(1), Method: "tools/call", Params: []byte(`{"name":"calc__add",` +
		`"arguments":{"A":1,"B":2},"_meta":{"traceparent":"00-x","tracestate":[1],"com.example/own":"x",` +
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":` +
		`{"extensions":{"com.example/x":{}}}}}`)})
	if err != nil {
		t.Fatal(err)
	}
	if m := mcp.Driver(h.For(&policy.Caller{})).Respond(t.Context(), req); m.Error != nil {
		t.Fatal(m.Error)
	}
	sent := calc.of("tools/call")
	if len(sent) != 1 || strings.Contains(string(sent[0].Params), "trace") ||
		!strings.Contains(string(sent[0].Params), `"com.example/own":"x"`) || log.Len() > 0 {
		t.Errorf("sent %s, logged %q", sent[0].Params, log.String())
	}
}
