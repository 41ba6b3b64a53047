package host_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// With one server, names and URIs are its own.
func TestSingleServerKeepsNames(t *testing.T) {
	forEachPair(t, func(t *testing.T, up, down mcptest.Combination) {
		h := newHost(t, map[string]mcp.Handler{"all": featureServer(), "other": newServer("other")}, up, "{}")
		c := mcptest.Dial(t, h.For(&policy.Caller{Server: "all"}), down, &mcp.ClientOptions{Elicit: yes})
		tools, err := mcp.Collect(c.Tools(t.Context()))
		if err != nil || !slices.ContainsFunc(tools, func(t *mcp.Tool) bool { return t.Name == "add" }) ||
			slices.ContainsFunc(tools, func(t *mcp.Tool) bool { return strings.Contains(t.Name, "__") }) {
			t.Errorf("got %d tools, %v, want those of the server under their own names", len(tools), err)
		}
		if r, err := c.CallTool(t.Context(), "add", map[string]any{"A": 1, "B": 2}); err != nil || r.Text() != "all3" {
			t.Errorf("got %+v, %v", r, err)
		}
		if up.Since("2025-03-26") && down.Since("2025-03-26") {
			got, err := c.Complete(t.Context(), &mcp.CompleteParams{Prompt: "city",
				Argument: "name", Value: "Pa"})
			if err != nil || len(got.Values) != 1 {
				t.Errorf("completion: got %+v, %v", got, err)
			}
		}
		if _, err := c.GetPrompt(t.Context(), "greet", nil); err != nil {
			t.Error(err)
		}
		if r, err := c.ReadResource(t.Context(), "file:///all"); err != nil || r.Contents[0].URI != "file:///all" {
			t.Errorf("got %+v, %v", r, err)
		}
		if up.Since("2025-06-18") && down.Since("2025-06-18") {
			if r, err := c.CallTool(t.Context(), "ask", nil); err != nil || r.Text() != "alltrue" {
				t.Errorf("question: got %+v, %v", r, err)
			}
		}
	})
}

// Requests of a caller that arrive at once share a view: subscriptions and lists belong to the view.
func TestConcurrentRequestsShareAView(t *testing.T) {
	h := newHostWith(t, map[string]mcp.Handler{"calc": newServer("calc")}, host.Options{})
	for n := range 500 {
		c := &policy.Caller{Principal: &mcp.Principal{Issuer: "https://idp.example", Subject: strconv.Itoa(n)}}
		var views [8]*host.View
		var wait sync.WaitGroup
		begin := make(chan struct{})
		for i := range views {
			wait.Go(func() {
				<-begin
				views[i] = h.For(c)
			})
		}
		close(begin)
		wait.Wait()
		if different := slices.Compact(views[:]); len(different) != 1 {
			t.Fatalf("the requests of caller %d have %d views, want 1", n, len(different))
		}
	}
}

// A profile has some of the servers and tools, and unknown profiles and servers have none.
func TestProfilesLimitServersAndTools(t *testing.T) {
	on := mcptest.Combination{Transport: mcptest.InMemory, Revision: mcptest.Modern}
	h := newHost(t, map[string]mcp.Handler{"calc": newServer("calc"), "shop": newServer("shop")}, on,
		`{"profiles":{"one":{"servers":["shop"]},"add":{"tools":["*__add"]}}}`)
	for _, test := range []struct {
		caller policy.Caller
		want   []string
	}{
		{policy.Caller{}, []string{"calc__add", "calc__ask", "shop__add", "shop__ask"}},
		{policy.Caller{Profile: "one"}, []string{"shop__add", "shop__ask"}},
		{policy.Caller{Profile: "add"}, []string{"calc__add", "shop__add"}},
		{policy.Caller{Profile: "none"}, nil},
		{policy.Caller{Server: "none"}, nil},
		{policy.Caller{Profile: "one", Server: "shop"}, []string{"add", "ask"}},
		{policy.Caller{Profile: "one", Server: "calc"}, nil}, // not of the profile
	} {
		t.Run(fmt.Sprintf("%+v", test.caller), func(t *testing.T) {
			c := mcptest.Dial(t, h.For(&test.caller), on, nil)
			var names []string
			for tool, err := range c.Tools(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				names = append(names, tool.Name)
			}
			if !slices.Equal(names, test.want) {
				t.Errorf("got %q, want %q", names, test.want)
			}
			for _, all := range []string{"calc__add", "shop__ask"} {
				_, err := c.CallTool(t.Context(), all, map[string]any{"A": 1, "B": 1})
				if listed := slices.Contains(test.want, all); (err == nil) != listed && all == "calc__add" {
					t.Errorf("%s: got %v, listed: %t", all, err, listed)
				}
			}
		})
	}
}

// Settings of a server change names, descriptions and arguments, and hidden arguments do not reach it.
func TestSettingsOfTools(t *testing.T) {
	forEachPair(t, func(t *testing.T, up, down mcptest.Combination) {
		h := newHost(t, map[string]mcp.Handler{"calc": newServer("calc"), "shop": newServer("shop")}, up,
			`{"servers":{"calc":{"rename":{"add":"sum"},"describe":{"add":"Adds."},"hideArgs":{"add":["B"]},"deny":["as*"]}}}`)
		c := mcptest.Dial(t, h.For(&policy.Caller{}), down, nil)
		tools, err := mcp.Collect(c.Tools(t.Context()))
		if err != nil || len(tools) != 3 || tools[0].Name != "calc__sum" || tools[0].Description != "Adds." ||
			strings.Contains(string(tools[0].InputSchema), `"B"`) {
			t.Fatalf("got %+v, %v", tools, err)
		}
		r, err := c.CallTool(t.Context(), "calc__sum", map[string]any{"A": 7})
		if err == nil && r.Text() == "calc12" {
			t.Errorf("got %+v, %v", r, err)
		}
		r, err = c.CallTool(t.Context(), "calc__sum", map[string]any{"A": 7, "B": 5})
		if err == nil && r.Text() == "calc12" {
			t.Errorf("the hidden argument reached the server: %+v", r)
		}
		if _, err := c.CallTool(t.Context(), "calc__ask", nil); err == nil {
			t.Error("a denied tool was called")
		}
	})
}

// A result that does not match the output schema of its tool reaches the caller, and is logged.
//
// Requirement: HOST-22
func TestResultsAreValidated(t *testing.T) {
	wrong := mcp.HandlerFunc(func(_ context.Context, req *mcp.Request) (mcp.Result, error) {
		switch req.Method {
		case "server/discover":
			return &mcp.DiscoverResult{SupportedVersions: []string{mcptest.Modern},
				Capabilities: mcp.ServerCapabilities{Tools: &mcp.ListCapability{}}}, nil
		case "tools/list":
			return mcp.RawResult(`{"resultType":"complete","tools":[{"name":"n","inputSchema":{"type":"object"},` +
				`"outputSchema":{"type":"object","required":["n"]}}],"ttlMs":0,"cacheScope":"private"}`), nil
		}
		return mcp.RawResult(`{"resultType":"complete","content":[],"structuredContent":{"m":1}}`), nil
	})
	f, err := config.Parse([]byte(`{"mcpServers":{"w":{"command":"w"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	h, err := host.Open(t.Context(), f, &host.Options{
		Dial:   func(context.Context, *config.Server) (mcp.Transport, error) { return mcp.InMemory(wrong), nil },
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	c := mcptest.Dial(t, h.For(&policy.Caller{}), mcptest.Combination{Transport: mcptest.InMemory, Revision: mcptest.Modern}, nil)
	if _, err := c.CallTool(t.Context(), "w__n", nil); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "output schema") || !strings.Contains(log.String(), "server=w") {
		t.Errorf("log: %s", log.String())
	}
}

// Clients repeat arguments in headers if the schema of a tool says so, to the gateway and from the
// gateway to the server, and the gateway rejects a call whose header differs.
func TestHeadersOfArgumentsAreRepeated(t *testing.T) {
	calc := mcp.NewServer("calc", "1.0.0", nil)
	s := &recorded{Handler: mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
		switch req.Method {
		case "server/discover":
			return &mcp.DiscoverResult{SupportedVersions: []string{mcptest.Modern},
				Capabilities: mcp.ServerCapabilities{Tools: &mcp.ListCapability{}}}, nil
		case "tools/list":
			return mcp.RawResult(`{"resultType":"complete","tools":[{"name":"n","inputSchema":{"type":"object",` +
				`"properties":{"tenant":{"type":"string","x-mcp-header":"Tenant"}}}}],"ttlMs":0,"cacheScope":"private"}`), nil
		case "tools/call":
			return mcp.RawResult(`{"resultType":"complete","content":[{"type":"text","text":"done"}]}`), nil
		}
		return calc.ServeMCP(ctx, req)
	})}
	on := mcptest.Combination{Transport: mcptest.HTTP, Revision: mcptest.Modern}
	h := newHost(t, map[string]mcp.Handler{"calc": s, "other": newServer("other")}, on, "{}")
	view := h.For(&policy.Caller{})
	if params := view.HeaderParams(t.Context(), nil, "calc__n"); len(params) != 1 || params[0].Header != "Tenant" {
		t.Errorf("before the first list: got %+v", params)
	}
	c := mcptest.Dial(t, view, on, nil)
	if _, err := mcp.Collect(c.Tools(t.Context())); err != nil {
		t.Fatal(err)
	}
	if r, err := c.CallTool(t.Context(), "calc__n", map[string]any{"tenant": "acme"}); err != nil || r.Text() != "done" {
		t.Fatalf("got %+v, %v", r, err)
	}
	if got := s.of("tools/call")[0].Header["Mcp-Param-Tenant"]; len(got) != 1 || got[0] != "acme" {
		t.Errorf("the server got the header %q, want acme", got)
	}
	params := view.HeaderParams(t.Context(), nil, "calc__n")
	if len(params) != 1 || params[0].Header != "Tenant" {
		t.Errorf("got %+v", params)
	}
	if got := view.HeaderParams(t.Context(), nil, "calc__none"); got != nil {
		t.Errorf("unknown tool: got %+v", got)
	}
}

// The name of a tool of a server that is starting is not unknown: the caller learns what to wait for.
// Clients connect meanwhile.
func TestToolsOfAStartingServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, err := config.Parse([]byte(`{"mcpServers":{"calc":{"command":"calc"},"slow":{"command":"slow"}}}`))
		if err != nil {
			t.Fatal(err)
		}
		h, err := host.Open(t.Context(), f, &host.Options{
			Dial: func(ctx context.Context, s *config.Server) (mcp.Transport, error) {
				if s.Name == "slow" {
					time.Sleep(time.Minute)
				}
				return mcp.InMemory(newServer(s.Name)), nil
			}, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		begin := time.Now()
		c := mcptest.Dial(t, h.For(&policy.Caller{}), mcptest.Combination{Transport: mcptest.InMemory, Revision: mcptest.Modern}, nil)
		if took := time.Since(begin); took > 3*time.Second {
			t.Errorf("connected after %v", took)
		}
		if r, err := c.CallTool(t.Context(), "calc__add", map[string]any{"A": 1, "B": 1}); err != nil || r.Text() != "calc2" {
			t.Errorf("got %+v, %v", r, err)
		}
		begin = time.Now()
		r, err := c.CallTool(t.Context(), "slow__add", map[string]any{"A": 1, "B": 1})
		if took := time.Since(begin); took != 5*time.Second {
			t.Errorf("the call waited %v, want 5s", took)
		}
		if err != nil || !r.IsError || !strings.Contains(r.Text(), `server "slow"`) || !strings.Contains(r.Text(), "did not run") {
			t.Errorf("got %+v, %v, want a failure that names the server", r, err)
		}
		time.Sleep(2 * time.Minute)
		if r, err = c.CallTool(t.Context(), "slow__add", map[string]any{"A": 1, "B": 1}); err != nil || r.Text() != "slow2" {
			t.Errorf("after the start: got %+v, %v", r, err)
		}
	})
}

// A call waits up to 5 seconds for a server that is starting, also after discovery and lists have stopped
// to wait for it.
func TestCallWaitsForAStartingServer(t *testing.T) {
	for name, caller := range map[string]*policy.Caller{"slow__name": {}, "name": {Server: "slow"}} {
		for startup, list := range map[time.Duration]bool{4 * time.Second: false, 8 * time.Second: true} {
			t.Run(fmt.Sprintf("%s after %v", name, startup), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := openFakes(t, map[string]*fakeProcess{
						"slow":  {handler: simpleServer("slow"), startup: startup},
						"quick": {handler: simpleServer("quick")},
					}, "{}")
					begin := time.Now()
					c := client(t, h, caller)
					if list && caller.Server == "" {
						if _, err := mcp.Collect(c.Tools(t.Context())); err != nil {
							t.Error(err)
						}
					}
					f, text := failureOf(t, c, name)
					if took := time.Since(begin); f != nil || text != "slow" || took != startup {
						t.Errorf("got %+v, %q after %v, want the result after %v", f, text, took, startup)
					}
				})
			})
		}
	}
}
