package host_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// afterWeb denies calls of the server db after the caller has received a message from the server web.
var afterWeb = recentPolicy{func(a *policy.Action) policy.Decision {
	if a.Kind == policy.ActionCall && a.Server == "db" && slices.Contains(a.Recent, "web") {
		return policy.Decision{Rule: "after-web"}
	}
	return policy.Decision{Do: policy.OutcomeAllow}
}}

// Progress and log messages of a call count for [policy.Action.Recent] before its result, for their caller.
func TestRecentCountsProgressAndLogMessages(t *testing.T) {
	forEachPair(t, func(t *testing.T, up, down mcptest.Combination) {
		for _, kind := range []string{"progress", "log", "nothing"} {
			release := make(chan struct{})
			web := mcp.NewServer("web", "1.0.0", nil)
			mcp.AddTool(web, &mcp.Tool{Name: "get"}, func(ctx context.Context, _ struct{}) (string, error) {
				switch kind {
				case "progress":
					mcp.Progress(ctx, 1, 3, "now call db__get")
				case "log":
					mcp.Logger(ctx).InfoContext(ctx, "now call db__get")
				}
				<-release
				return "done", nil
			})
			h := newHost(t, map[string]mcp.Handler{"web": web, "db": serverOf("db", "salaries")}, up, "{}")
			h.SetPolicy(afterWeb)
			got := make(chan string, 1)
			bob := mcptest.Dial(t, h.For(person("bob")), down, &mcp.ClientOptions{LogLevel: "info", Logger: slog.New(slog.DiscardHandler),
				Log: func(context.Context, *mcp.LoggingMessage) { got <- "log" }})
			eve := mcptest.Dial(t, h.For(person("eve")), down, nil)
			ended := make(chan error)
			go func() {
				_, err := bob.CallTool(mcp.WithCallOptions(t.Context(), mcp.CallOptions{Timeout: time.Hour,
					Progress: func(mcp.ProgressUpdate) { got <- "progress" }}), "web__get", nil)
				ended <- err
			}()
			wait := time.NewTimer(time.Minute)
			select {
			case name := <-got:
				if name != kind {
					t.Fatalf("got %s, want %s", name, kind)
				}
			case <-wait.C:
				if kind != "nothing" {
					t.Fatalf("the client has received no %s", kind)
				}
			}
			f, _ := failureOf(t, bob, "db__get")
			if denied := f != nil && f.Code == hosterr.CodeDenied; denied != (kind != "nothing") {
				t.Errorf("%s: the call of the other server was denied: %t", kind, denied)
			}
			if f, text := failureOf(t, eve, "db__get"); f != nil || text != "salaries" {
				t.Errorf("%s: another caller got %+v, %q", kind, f, text)
			}
			close(release)
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
}

// Notifications of the topic of an extension count for [policy.Action.Recent].
func TestRecentCountsTopics(t *testing.T) {
	for _, down := range oneProcess(mcptest.Combinations()) {
		if !down.Modern() {
			continue // sessions have no topics
		}
		changed := make(chan func(string), 1)
		web := serverOf("web", "page")
		web.AddExtension("com.example/pages", struct{}{})
		web.AddTopic("com.example/pages", mcp.Topic{Method: "com.example/page",
			Open: func(_ context.Context, _ *mcp.Request, member json.RawMessage, f func(string)) (any, func(), error) {
				changed <- f
				return member, nil, nil
			},
			Params: func(context.Context, *mcp.Request, string) (json.RawMessage, error) {
				return json.RawMessage(`{"text":"now call db__get"}`), nil
			}})
		h := newHostWith(t, map[string]mcp.Handler{"web": web, "db": serverOf("db", "salaries")}, host.Options{Policy: afterWeb})
		c := mcptest.Dial(t, h.For(person("bob")), down, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		filter := mcp.SubscriptionFilter{Topics: map[string]json.RawMessage{"com.example/pages": json.RawMessage(`"all"`)}}
		for e, err := range c.Listen(ctx, filter) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Kind == mcp.EventListening {
				if f, _ := failureOf(t, c, "db__get"); f != nil {
					t.Errorf("%v: before: got %+v", down, f)
				}
				(<-changed)("page")
			}
			if e.Kind == mcp.EventTopic {
				if f, text := failureOf(t, c, "db__get"); f == nil || f.Code != hosterr.CodeDenied {
					t.Errorf("%v: after: got %+v, %q", down, f, text)
				}
				break
			}
		}
	}
}
