package host_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// inProcess serves each server of a host in this process.
func inProcess(servers map[string]mcp.Handler) *host.Options {
	return &host.Options{Dial: func(_ context.Context, s *config.Server) (mcp.Transport, error) {
		return mcp.InMemory(servers[s.Command]), nil
	}}
}

// A rule about reading a resource decides about subscriptions to it, in every revision, and subscriptions are
// recorded: each resource once, although a session opens its subscription again for each.
//
// Requirement: HOST-06, HOST-23
func TestSubscriptionsToResources(t *testing.T) {
	for _, down := range oneProcess(mcptest.Combinations()) {
		t.Run(down.String(), func(t *testing.T) {
			calc, shop := newServer("calc"), newServer("shop")
			var log recordLog
			h := newHostWith(t, map[string]mcp.Handler{"calc": calc, "shop": shop}, host.Options{Recorder: &log,
				Policy: policyFunc(func(a *policy.Action) policy.Decision {
					if a.Kind == policy.ActionRead && a.Target == "file:///calc" {
						return policy.Decision{Rule: "no-calc"}
					}
					return policy.Decision{Do: policy.OutcomeAllow}
				})})
			c := mcptest.Dial(t, h.For(person("ada")), down, nil)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			uris := []string{"file:///calc", "file:///shop"}
			for e, err := range c.Listen(ctx, mcp.SubscriptionFilter{ResourceSubscriptions: uris}) {
				if err != nil {
					t.Fatal(err)
				}
				if e.Kind == mcp.EventListening {
					if got := e.Filter.ResourceSubscriptions; down.Modern() && !slices.Equal(got, uris[1:]) {
						t.Errorf("the subscription is for %q, want %q", got, uris[1:])
					}
					calc.ResourceUpdated("file:///calc")
					shop.ResourceUpdated("file:///shop")
				}
				if e.Kind == mcp.EventResourceUpdated {
					if e.URI != "file:///shop" {
						t.Errorf("announced: %s in spite of a rule", e.URI)
					}
					break
				}
			}
			got := log.texts("subscriptions/listen")
			for _, want := range []string{"refused calc file:///calc no-calc", "end shop file:///shop"} {
				if n := len(slices.DeleteFunc(slices.Clone(got), func(text string) bool { return text != want })); n != 1 {
					t.Errorf("%q was recorded %d times, want once: %q", want, n, got)
				}
			}
		})
	}
}

// Subscriptions above the rate of a caller are refused, in every revision. They have a bucket of their own,
// so that calls are not refused for them.
//
// Requirement: HOST-06
func TestRateOfSubscriptions(t *testing.T) {
	for _, down := range oneProcess(mcptest.Combinations()) {
		t.Run(down.String(), func(t *testing.T) {
			shop := newServer("shop")
			for _, uri := range []string{"x:0", "x:1", "x:2", "x:3"} {
				mcp.AddResource(shop, &mcp.Resource{URI: uri, Name: uri}, func(context.Context, string) (string, error) {
					return uri, nil
				})
			}
			o := inProcess(map[string]mcp.Handler{"shop": shop})
			var log recordLog
			o.Recorder = &log
			h := openFile(t, map[string]any{"shop": map[string]string{"command": "shop"}},
				`{"limits": {"perCaller": "1/h burst 2"}}`, o)
			c := mcptest.Dial(t, h.For(person("ada")), down, nil)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			opened := 0
			for _, uri := range []string{"x:0", "x:1", "x:2", "x:3"} {
				if subscribes(ctx, t, c, uri) {
					opened++
				}
			}
			if opened == 0 || opened > 2 {
				t.Errorf("%d of four subscriptions were opened, want 1 or 2", opened)
			}
			if err := log.refusal("subscriptions/listen"); err == nil || !strings.Contains(err.Error(), "limits.perCaller of 1/h burst 2") {
				t.Errorf("the refusal is recorded as %v", err)
			}
			if r, err := c.CallTool(t.Context(), "shop__add", map[string]any{"A": 1, "B": 2}); err != nil || r.IsError {
				t.Errorf("a call: got %+v, %v", r, err)
			}
		})
	}
}

// A Recorder that cannot store the intent of a subscription refuses it.
//
// Requirement: HOST-23
func TestUnrecordedSubscriptionsAreRefused(t *testing.T) {
	forEachCombination(t, func(t *testing.T, down mcptest.Combination) {
		o := inProcess(map[string]mcp.Handler{"shop": newServer("shop")})
		log := recordLog{full: true}
		o.Recorder = &log
		h := openFile(t, map[string]any{"shop": map[string]string{"command": "shop"}}, "{}", o)
		c := mcptest.Dial(t, h.For(person("ada")), down, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		opened := subscribes(ctx, t, c, "file:///shop")
		if opened && (down.Modern() || down.Transport != "http") { // else the response to the GET is the refusal
			t.Error("the subscription was opened")
		}
		synctest.Wait()
		if got := log.texts("subscriptions/listen"); len(got) == 0 || slices.Contains(got, "end shop file:///shop") {
			t.Errorf("recorded as %q, want refusals", got)
		}
	})
}

// subscribes reports whether a subscription to a resource is opened. It stays open until ctx ends. Clients of
// sessions leave a refused resource out of the filter.
func subscribes(ctx context.Context, t *testing.T, c *mcp.Client, uri string) bool {
	t.Helper()
	opened := make(chan bool, 1)
	go func() {
		defer close(opened)
		for e, err := range c.Listen(ctx, mcp.SubscriptionFilter{ResourceSubscriptions: []string{uri}}) {
			if err != nil {
				return
			}
			if e.Kind == mcp.EventListening {
				opened <- len(e.Filter.ResourceSubscriptions) > 0
			}
		}
	}()
	return <-opened
}

// A policy decides about subscriptions to tasks.
//
// Requirement: HOST-06, HOST-23
func TestSubscriptionsToTasks(t *testing.T) {
	for _, down := range oneProcess(mcptest.Combinations()) {
		if !down.Modern() {
			continue // sessions have no topics
		}
		for _, rule := range []string{"", "no-tasks"} {
			var log recordLog
			h := newHostWith(t, map[string]mcp.Handler{"a": newTaskServer(t, "a")}, host.Options{Recorder: &log,
				Policy: policyFunc(func(a *policy.Action) policy.Decision {
					if a.Kind == policy.ActionOther && a.Target == "taskIds" && rule != "" {
						return policy.Decision{Rule: rule}
					}
					return policy.Decision{Do: policy.OutcomeAllow}
				})})
			c := mcptest.Dial(t, h.For(person("ada")), down, answering())
			ids, _ := json.Marshal([]string{start(t, c, "a__fail").ID()})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for e, err := range c.Listen(ctx, mcp.SubscriptionFilter{Topics: map[string]json.RawMessage{"taskIds": ids}}) {
				if err != nil || e.Kind != mcp.EventListening || (len(e.Filter.Topics) > 0) != (rule == "") {
					t.Errorf("%v, rule %q: got %+v, %v", down, rule, e, err)
				}
				break
			}
			want := "end a taskIds"
			if rule != "" {
				want = "refused a taskIds no-tasks"
			}
			if got := log.texts("subscriptions/listen"); !slices.Equal(got, []string{want}) {
				t.Errorf("%v: recorded as %q, want %q", down, got, want)
			}
		}
	}
}

// The stream of a GET is recorded, and refused above the rate of its caller.
//
// Requirement: HOST-06, HOST-23
func TestStreamOfAGet(t *testing.T) {
	for _, revision := range []string{"2025-03-26", "2025-06-18", "2025-11-25"} {
		t.Run(revision, func(t *testing.T) {
			o := inProcess(map[string]mcp.Handler{"shop": newServer("shop")})
			var log recordLog
			o.Recorder = &log
			h := openFile(t, map[string]any{"shop": map[string]string{"command": "shop"}},
				`{"limits": {"perCaller": "1/h burst 2"}}`, o)
			served := mcphttp.NewHandler(h.For(person("ada")), &mcphttp.Options{Logger: noLog})
			server := httptest.NewServer(served)
			server.Client().Timeout = time.Minute
			t.Cleanup(func() { _ = served.Shutdown(context.WithoutCancel(t.Context())); server.Close() })
			send := func(method, session, body string) *http.Response {
				req, err := http.NewRequestWithContext(t.Context(), method, server.URL, strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("Accept", "application/json, text/event-stream")
				req.Header.Set("Content-Type", "application/json")
				if session != "" {
					req.Header.Set("Mcp-Session-Id", session)
					req.Header.Set("Mcp-Protocol-Version", revision)
				}
				res, err := server.Client().Do(req)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = res.Body.Close() })
				return res
			}
			for n := range 3 {
				first := send(http.MethodPost, "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"`+
					revision+`","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}`)
				if _, err := io.Copy(io.Discard, first.Body); err != nil {
					t.Fatal(err)
				}
				session := first.Header.Get("Mcp-Session-Id")
				send(http.MethodPost, session, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
				if n < 2 {
					if res := send(http.MethodGet, session, ""); res.StatusCode != http.StatusOK {
						t.Errorf("within the rate: got status %d", res.StatusCode)
					}
					continue
				}
				for range 2 {
					res := send(http.MethodGet, session, "")
					if res.StatusCode != http.StatusTooManyRequests { // do not read a stream without an end
						t.Errorf("above the rate: got status %d", res.StatusCode)
						continue
					}
					text, err := io.ReadAll(res.Body)
					if err != nil || !strings.Contains(string(text), "limits.perCaller of 1/h burst 2") {
						t.Errorf("above the rate: got %s, %v", text, err)
					}
				}
			}
			got := log.texts("subscriptions/listen")
			if want := []string{"end", "end", "refused", "refused"}; !slices.Equal(got, want) {
				t.Errorf("recorded as %q, want %q", got, want)
			}
		})
	}
}
