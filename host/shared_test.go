package host_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// sharedViews are the ways in which two callers see one instance of a server.
var sharedViews = map[string]func(principal *mcp.Principal) *policy.Caller{
	"several servers": func(p *mcp.Principal) *policy.Caller { return &policy.Caller{Principal: p} },
	"one server":      func(p *mcp.Principal) *policy.Caller { return &policy.Caller{Principal: p, Server: "s"} },
}

// A request that asks for few log messages does not take those of a request of another caller, whose
// server has one log level for both.
func TestSharedInstanceKeepsTheLogLevelOfEachCaller(t *testing.T) {
	for name, caller := range sharedViews {
		for _, up := range oneProcess(mcptest.Combinations()) {
			if up.Transport != mcptest.HTTP {
				continue // log messages on one stream are not those of one of several callers
			}
			t.Run(name+" "+up.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := mcp.NewServer("s", "1", nil)
					mcp.AddTool(s, &mcp.Tool{Name: "log"}, func(ctx context.Context, in struct{ Wait int }) (string, error) {
						time.Sleep(time.Duration(in.Wait) * time.Second)
						mcp.Logger(ctx).Debug("done")
						return "done", nil
					})
					h := newHost(t, map[string]mcp.Handler{"s": s, "other": newServer("other")}, up,
						`{"servers":{"s":{"share":"shared"}}}`)
					tool := map[string]string{"several servers": "s__log", "one server": "log"}[name]
					messages := map[string]int{}
					call := func(of string, level mcp.LoggingLevel, wait int) {
						c := mcptest.Dial(t, h.For(caller(principal(of))), modernHTTP, &mcp.ClientOptions{
							Log: func(context.Context, *mcp.LoggingMessage) { messages[of]++ }})
						ctx := mcp.WithCallOptions(t.Context(), mcp.CallOptions{LogLevel: level})
						if r, err := c.CallTool(ctx, tool, map[string]any{"Wait": wait}); err != nil || r.Text() != "done" {
							t.Errorf("%s: got %+v, %v", of, r, err)
						}
					}
					ended := make(chan struct{})
					go func() {
						defer close(ended)
						call("a", "debug", 10)
					}()
					time.Sleep(time.Second)
					call("b", "error", 1)
					<-ended
					synctest.Wait() // messages may be delivered after the result
					if messages["a"] != 1 || messages["b"] != 0 {
						t.Errorf("got %v messages, want 1 of the caller that has asked for them", messages)
					}
				})
			})
		}
	}
}

// Methods that change what a session sends are for the session of the caller: they do not reach the
// server, whose session other callers use too.
func TestSharedInstanceKeepsTheSubscriptionsOfEachCaller(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	const uri = "file:///s"
	for name, caller := range sharedViews {
		t.Run(name, func(t *testing.T) {
			forEachPair(t, func(t *testing.T, up, down mcptest.Combination) {
				s := newServer("s")
				r := &recorded{Handler: s}
				h := newHost(t, map[string]mcp.Handler{"s": listening{r, s}, "other": newServer("other")}, up,
					`{"servers":{"s":{"share":"shared"}}}`)
				a := mcptest.Dial(t, h.For(caller(principal("a"))), down, nil)
				b := mcptest.Dial(t, h.For(caller(principal("b"))), down, nil)
				var updates atomic.Int32
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				for _, c := range []*mcp.Client{a, b} {
					running, stop := context.WithCancel(ctx)
					go func() {
						for e := range c.Listen(running, mcp.SubscriptionFilter{ResourceSubscriptions: []string{uri}}) {
							if c == a && e.Kind == mcp.EventResourceUpdated {
								updates.Add(1)
							}
						}
					}()
					time.Sleep(time.Second)
					if c == b {
						stop()
					}
					defer stop()
				}
				for method, params := range map[string]any{
					"logging/setLevel": map[string]any{"level": "emergency"}, "resources/unsubscribe": map[string]any{"uri": uri},
				} {
					_, err := b.Do(t.Context(), method, params)
					var refused *mcp.Error
					if down.Modern() && (!errors.As(err, &refused) || refused.Code != mcp.CodeMethodNotFound) {
						t.Errorf("%s: got %v, want an unknown method", method, err)
					}
					if n := len(r.of(method)); n != 0 {
						t.Errorf("%s reached the server", method)
					}
				}
				time.Sleep(time.Second)
				s.ResourceUpdated(uri)
				time.Sleep(time.Second)
				if n := updates.Load(); n != 1 {
					t.Errorf("got %d updates, want 1", n)
				}
			})
		})
	}
}
