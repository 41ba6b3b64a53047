package host_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// The tests of this file are named after defects of other gateways.

// A server of 2026-07-28 refuses callers whose capabilities a gateway removes.
func TestTrapCapabilitiesStripped(t *testing.T) {
	forEachPair(t, func(t *testing.T, up, down mcptest.Combination) {
		if !up.Modern() || !down.Since("2025-06-18") {
			return // older servers learn capabilities when a session begins; older clients have no elicitation
		}
		all := &recorded{Handler: newServer("all")}
		h := newHost(t, map[string]mcp.Handler{"all": all, "other": newServer("other")}, up, "{}")
		c := mcptest.Dial(t, h.For(&policy.Caller{}), down, &mcp.ClientOptions{Elicit: yes})
		if _, err := c.CallTool(t.Context(), "all__add", map[string]any{"A": 1, "B": 1}); err != nil {
			t.Fatal(err)
		}
		got := all.of("tools/call")[0].Capabilities()
		if got.Elicitation == nil || got.Sampling != nil || got.Roots != nil {
			t.Errorf("the server got the capabilities %+v, want elicitation only", got)
		}
	})
}

// What a caller sends to the gateway in HTTP headers is for the gateway.
//
// Requirement: HOST-08
func TestTrapAuthorizationLeaksUpstream(t *testing.T) {
	var mu sync.Mutex
	var seen []http.Header
	inner := mcphttp.NewHandler(newServer("remote"), nil)
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		seen = append(seen, r.Header.Clone())
		mu.Unlock()
		inner.ServeHTTP(w, r)
	}))
	defer upstream.Close()
	defer inner.Shutdown(t.Context())
	f, err := config.Parse([]byte(`{"mcpServers":{"remote":{"url":"` + upstream.URL + `","headers":{"X-Own":"configured"}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	h, err := host.Open(t.Context(), f, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	outer := mcphttp.NewHandler(h.For(&policy.Caller{}), nil)
	gateway := httptest.NewServer(outer)
	defer gateway.Close()
	defer outer.Shutdown(t.Context())
	for _, revision := range mcptest.Revisions() {
		secret := http.Header{"Authorization": {"Bearer secret"}, "Cookie": {"secret"}, "X-Api-Key": {"secret"}}
		c, err := mcp.Connect(t.Context(), mcphttp.NewTransport(gateway.URL, &mcphttp.TransportOptions{Header: secret}),
			&mcp.ClientOptions{Revision: revision})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.CallTool(t.Context(), "remote__add", map[string]any{"A": 1, "B": 1}); err != nil {
			t.Error(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for _, header := range seen {
		if strings.Contains(fmt.Sprint(header), "secret") || header.Get("X-Own") != "configured" {
			t.Errorf("the server got %v", header)
		}
	}
	if len(seen) == 0 {
		t.Error("no request reached the server")
	}
}

// What a policy has allowed is what the server receives.
//
// Requirement: HOST-39
func TestTrapForwardedIsNotWhatWasAuthorized(t *testing.T) {
	calc := &recorded{Handler: newServer("calc")}
	var decided []string
	f, err := config.Parse([]byte(`{"mcpServers":{"calc":{"command":"calc"}},"patchbay":{"tools":{"mode":"search"},` +
		`"servers":{"calc":{"rename":{"add":"sum"},"hideArgs":{"add":["C"]}}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	h, err := host.Open(t.Context(), f, &host.Options{
		Dial: func(context.Context, *config.Server) (mcp.Transport, error) { return mcp.InMemory(calc), nil },
		Policy: policyFunc(func(a *policy.Action) policy.Decision {
			if a.Kind == policy.ActionCall {
				decided = append(decided, a.Target+" "+string(a.Arguments))
			}
			return policy.Decision{Do: policy.OutcomeAllow}
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	on := mcptest.Combination{Transport: mcptest.InMemory, Revision: mcptest.Modern}
	c := mcptest.Dial(t, h.For(&policy.Caller{}), on, nil)
	arguments := map[string]any{"A": 1, "B": 2, "C": 3}
	for tool, args := range map[string]any{
		"calc__sum": arguments, "call_tool": map[string]any{"name": "calc__sum", "arguments": arguments},
	} {
		if _, err := c.CallTool(t.Context(), tool, args); err != nil {
			t.Fatal(err)
		}
	}
	for n, req := range calc.of("tools/call") {
		name, _ := req.Param("name")
		got, _ := req.Param("arguments")
		if sent := strings.Trim(string(name), `"`) + " " + string(got); sent != decided[n] || strings.Contains(sent, "C") {
			t.Errorf("the policy has allowed %s, the server got %s", decided[n], sent)
		}
	}
	if len(decided) != 2 {
		t.Errorf("%d decisions, want 2", len(decided))
	}
}

// Progress and the time that a user takes to answer do not count as silence of the server.
func TestTrapTimeoutFiresDespiteProgressOrWhileAUserDecides(t *testing.T) {
	forEachPair(t, func(t *testing.T, up, down mcptest.Combination) {
		s := mcp.NewServer("slow", "1.0.0", nil)
		mcp.AddTool(s, &mcp.Tool{Name: "work"}, func(ctx context.Context, _ struct{}) (string, error) {
			for n := range 10 {
				time.Sleep(3 * time.Second)
				mcp.Progress(ctx, float64(n), 10, "working")
			}
			return "done", nil
		})
		mcp.AddTool(s, &mcp.Tool{Name: "ask"}, func(ctx context.Context, _ struct{}) (string, error) {
			sure, err := mcp.Ask[bool](ctx, "sure", "Sure?", nil)
			return fmt.Sprint(sure), err
		})
		h := newHost(t, map[string]mcp.Handler{"slow": s}, up, `{"servers":{"slow":{"timeout":"5s"}}}`)
		c := mcptest.Dial(t, h.For(&policy.Caller{}), down, &mcp.ClientOptions{Timeout: time.Hour,
			Elicit: func(ctx context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
				time.Sleep(time.Minute)
				return yes(ctx, p)
			}})
		ctx := mcp.WithCallOptions(t.Context(), mcp.CallOptions{Progress: func(mcp.ProgressUpdate) {}})
		if r, err := c.CallTool(ctx, "slow__work", nil); err != nil || r.Text() != "done" {
			t.Errorf("progress: got %+v, %v", r, err)
		}
		if up.Since("2025-06-18") && down.Since("2025-06-18") {
			if r, err := c.CallTool(t.Context(), "slow__ask", nil); err != nil || r.Text() != "true" {
				t.Errorf("question: got %+v, %v", r, err)
			}
		}
	})
}

// Reads are routed with several servers, also if one of them cannot be reached.
func TestTrapReadsFailWithSeveralServers(t *testing.T) {
	forEachPair(t, func(t *testing.T, up, down mcptest.Combination) {
		h := newHost(t, map[string]mcp.Handler{"a": newServer("a"), "b": newServer("b"), "dead": nil}, up, "{}")
		c := mcptest.Dial(t, h.For(&policy.Caller{}), down, nil)
		for _, name := range []string{"a", "b"} {
			if r, err := c.ReadResource(t.Context(), "file:///"+name); err != nil || r.Contents[0].Text != "text of "+name {
				t.Errorf("%s: got %+v, %v", name, r, err)
			}
		}
		var missing *mcp.Error
		if _, err := c.ReadResource(t.Context(), "file:///c"); !errors.As(err, &missing) {
			t.Errorf("unknown resource: got %v, want an error of the protocol", err)
		}
	})
}

// A refused call is a result or a JSON-RPC error, and the caller's session continues.
func TestTrapClientErrorEndsTheSession(t *testing.T) {
	inner := mcphttp.NewHandler(newServer("remote"), nil)
	var refuse atomic.Bool
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if refuse.Load() && r.Method == http.MethodPost {
			http.Error(w, "no", http.StatusBadRequest)
			return
		}
		inner.ServeHTTP(w, r)
	}))
	defer upstream.Close()
	defer inner.Shutdown(t.Context())
	for _, revision := range mcptest.Revisions() {
		t.Run(revision, func(t *testing.T) {
			f, err := config.Parse([]byte(`{"mcpServers":{"remote":{"url":"` + upstream.URL + `"}}}`))
			if err != nil {
				t.Fatal(err)
			}
			h, err := host.Open(t.Context(), f, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close()
			c := mcptest.Dial(t, h.For(&policy.Caller{}), mcptest.Combination{Transport: mcptest.HTTP, Revision: revision}, nil)
			call := func() (*mcp.CallToolResult, error) {
				return c.CallTool(t.Context(), "remote__add", map[string]any{"A": 1, "B": 1})
			}
			if r, err := call(); err != nil || r.Text() != "remote2" {
				t.Fatalf("got %+v, %v", r, err)
			}
			refuse.Store(true)
			r, err := call()
			refuse.Store(false)
			if err != nil || !r.IsError || !strings.Contains(r.Text(), `server "remote"`) {
				t.Errorf("refused: got %+v, %v, want a failed call", r, err)
			}
			if r, err := call(); err != nil || r.Text() != "remote2" {
				t.Errorf("afterwards: got %+v, %v", r, err)
			}
		})
	}
}

// The order of the servers and of their tools does not depend on which one was faster.
//
// Requirement: HOST-40
func TestOrderIsStable(t *testing.T) {
	on := mcptest.Combination{Transport: mcptest.InMemory, Revision: mcptest.Modern}
	servers := map[string]mcp.Handler{}
	for n := range 20 {
		servers[fmt.Sprintf("s%02d", n)] = newServer(fmt.Sprint(n))
	}
	var first []string
	for range 5 {
		h := newHost(t, servers, on, "{}")
		c := mcptest.Dial(t, h.For(&policy.Caller{}), on, nil)
		tools, err := mcp.Collect(c.Tools(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, tool := range tools {
			names = append(names, tool.Name)
		}
		if first == nil {
			first = names
		}
		if len(names) != 40 || !slices.Equal(names, first) {
			t.Errorf("got %q, want %q", names, first)
		}
	}
}

// Credentials of the configuration or of callers are not sent to an http URL of another machine, unless a
// setting allows it.
func TestCredentialsAreNotSentInTheClear(t *testing.T) {
	for _, test := range []struct {
		entry, settings string
		refused         bool
	}{
		{`{"url":"http://192.0.2.1/mcp","headers":{"Authorization":"Bearer secret"}}`, `{}`, true},
		{`{"url":"http://192.0.2.1/mcp","headers":{"X-Api-Key":"secret"}}`, `{}`, true},
		{`{"url":"http://192.0.2.1/mcp"}`, `{"auth":"forward","forwardHeaders":["X-Auth-Token"]}`, true},
		{`{"url":"http://192.0.2.1/mcp"}`, `{"auth":"forward","insecureForwardAuthorization":true}`, true},
		{`{"url":"http://192.0.2.1/mcp","headers":{"Cookie":"secret"}}`, `{"insecureHTTP":true}`, false},
		{`{"url":"http://192.0.2.1/mcp","headers":{"X-Tenant":"a"}}`, `{}`, false},
		{`{"url":"http://127.0.0.1:9/mcp","headers":{"Authorization":"Bearer secret"}}`, `{}`, false},
		{`{"url":"https://192.0.2.1/mcp","headers":{"Authorization":"Bearer secret"}}`, `{}`, false},
	} {
		f, err := config.Parse([]byte(`{"mcpServers":{"r":` + test.entry + `},"patchbay":{"servers":{"r":` + test.settings + `}}}`))
		if err != nil {
			t.Fatal(err)
		}
		dialed := false
		h, err := host.Open(t.Context(), f, &host.Options{
			Dial: func(context.Context, *config.Server) (mcp.Transport, error) {
				dialed = true
				return mcp.InMemory(newServer("r")), nil
			}})
		if err != nil {
			t.Fatal(err)
		}
		c := mcptest.Dial(t, h.For(&policy.Caller{}), inMemory, nil)
		_, text := failureOf(t, c, "r__add")
		if dialed == test.refused || test.refused && !strings.Contains(text, `"insecureHTTP": true`) {
			t.Errorf("%s with %s: dialed %t, got %q, want refused %t", test.entry, test.settings, dialed, text, test.refused)
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}
}
