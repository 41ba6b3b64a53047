package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// The concurrency of a server applies once to the calls of all hosts.
func TestConcurrencyOfCluster(t *testing.T) {
	const limit = 3
	inCluster(t, `{"servers":{"s":{"share":"cluster","concurrency":3,"queueTimeout":"10m"}}}`,
		func(t *testing.T, _ *testCluster, a, b *member) {
			var running, most atomic.Int32
			s := a.process.handler.(*mcp.Server)
			mcp.AddTool(s, &mcp.Tool{Name: "wait"}, func(context.Context, struct{}) (string, error) {
				most.Store(max(most.Load(), running.Add(1)))
				defer running.Add(-1)
				<-time.After(time.Second)
				return "waited", nil
			})
			clients := []*mcp.Client{clientOfView(t, a.For(&policy.Caller{})), clientOfView(t, b.For(&policy.Caller{}))}
			for _, c := range clients {
				wantText(t, c, "s__name", "a")
			}
			var all sync.WaitGroup
			began := time.Now()
			for n := range 4 * limit {
				all.Go(func() { wantText(t, clients[n%2], "s__wait", "waited") })
			}
			all.Wait()
			if took := time.Since(began); most.Load() != limit || took > 5*time.Second {
				t.Errorf("%d calls ran at once in %v, want %d", most.Load(), took, limit)
			}
		})
}

// A failed start has the same error at each host, with the time to wait. Only one host starts the server.
func TestFailedStartOfCluster(t *testing.T) {
	inCluster(t, shareCluster, func(t *testing.T, _ *testCluster, a, b *member) {
		a.process.setFail(errBroken)
		first, second := clientOfView(t, annOf(a.Host)), clientOfView(t, bobOf(b.Host))
		for range 20 { // until the server counts as unable to run
			failureOf(t, first, "s__name")
			<-time.After(time.Minute)
		}
		starts := len(a.process.started())
		wait := wantFailure(t, first, "s__name", hosterr.CodeCrashLoop, "soon after each")
		other := wantFailure(t, second, "s__name", hosterr.CodeCrashLoop, "soon after each")
		if other < wait-time.Second || other > wait || wait < time.Second {
			t.Errorf("got %v at the host of the server, %v at the other", wait, other)
		}
		for range 2 { // the second error is that of the delay
			err := b.Start(t.Context(), "s")
			if e, ok := errors.AsType[*hosterr.Error](err); !ok || e.Code != hosterr.CodeCrashLoop ||
				e.RetryAfter < wait-time.Second {
				t.Errorf("got %v, want %v to wait", err, wait)
			}
		}
		if n, m := len(a.process.started()), len(b.process.started()); n != starts || m != 0 {
			t.Errorf("got %d and %d starts, want %d and 0", n, m, starts)
		}
		a.process.setFail(nil)
		<-time.After(6 * time.Minute)
		wantText(t, second, "s__name", "a")
	})
}

// The breaker of a server counts the failures of all hosts, and refuses their calls.
func TestBreakerOfCluster(t *testing.T) {
	inCluster(t, `{"servers":{"s":{"share":"cluster","timeout":"2s","breaker":{"failures":2,"open":"1h"},
		"era":"session"}}}`,
		func(t *testing.T, _ *testCluster, a, b *member) {
			first, second := clientOfView(t, annOf(a.Host)), clientOfView(t, bobOf(b.Host))
			wantText(t, first, "s__name", "a")
			wantText(t, second, "s__name", "a")
			for _, c := range []*mcp.Client{second, first} {
				wantFailure(t, c, "s__slow", hosterr.CodeTimeout, "within timeout")
			}
			for _, c := range []*mcp.Client{second, first} {
				if wait := wantFailure(t, c, "s__name", hosterr.CodeUnavailable, "breaker"); wait < 30*time.Minute {
					t.Errorf("got %v to wait, want about an hour", wait)
				}
			}
		})
}

// A host with another key cannot use the server, and recovers when the keys are the same again.
func TestKeyOfCluster(t *testing.T) {
	inCluster(t, shareCluster, func(t *testing.T, tc *testCluster, a, _ *member) {
		wantText(t, clientOfView(t, annOf(a.Host)), "s__count", "a1")
		other := tc.join(t, "c:1", []byte(strings.Repeat("o", 32)), shareCluster, counterServer("c"))
		c := clientOfView(t, annOf(other.Host))
		f, text := failureOf(t, c, "s__count")
		if f == nil || f.Code != hosterr.CodeUnavailable || f.MayHaveRun || f.RetryAfterMs <= 0 {
			t.Errorf("got %+v, %q", f, text)
		}
		a.end()
		<-time.After(10 * time.Second)
		wantText(t, c, "s__count", "c1")
	})
}

// Messages between hosts may be as large as messages of a command.
func TestLargeMessagesOfCluster(t *testing.T) {
	const size = 12 << 20
	inCluster(t, `{"servers":{"s":{"share":"cluster"}},"limits":{"argumentBytes":"64MiB","resultBytes":"64MiB"}}`,
		func(t *testing.T, _ *testCluster, a, b *member) {
			s := a.process.handler.(*mcp.Server)
			mcp.AddTool(s, &mcp.Tool{Name: "echo"}, func(_ context.Context, in struct{ Text string }) (string, error) {
				return in.Text, nil
			})
			wantText(t, clientOfView(t, annOf(a.Host)), "s__name", "a")
			c := clientOfView(t, bobOf(b.Host))
			text := strings.Repeat("x", size)
			res, err := c.CallTool(t.Context(), "s__echo", map[string]any{"Text": text})
			if err != nil || res.IsError || res.Text() != text {
				t.Errorf("got %d bytes, %v", len(res.Text()), err)
			}
		})
}

// A failure of the store ends a server only when its lease is over, and a reload does not end it at all.
func TestStoreOfClusterFails(t *testing.T) {
	inCluster(t, shareCluster, func(t *testing.T, _ *testCluster, a, b *member) {
		first, second := clientOfView(t, annOf(a.Host)), clientOfView(t, bobOf(b.Host))
		wantText(t, first, "s__count", "a1")
		wantText(t, second, "s__count", "a2")
		a.leases.fails.Store(true)
		b.leases.fails.Store(true)
		f, err := config.Parse([]byte(`{"mcpServers":{"s":{"command":"s"}},
			"patchbay":{"servers":{"s":{"share":"cluster","concurrency":2}}}}`))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.Reload(t.Context(), f); err != nil {
			t.Fatal(err)
		}
		<-time.After(10 * time.Second)
		wantText(t, second, "s__count", "a3")
		a.leases.fails.Store(false)
		b.leases.fails.Store(false)
		<-time.After(10 * time.Minute)
		wantText(t, first, "s__count", "a4")
	})
}

// A host that cannot renew its lease ends the server before another host can start it.
func TestLeaseOfClusterEnds(t *testing.T) {
	inCluster(t, shareCluster, func(t *testing.T, _ *testCluster, a, b *member) {
		first, second := clientOfView(t, annOf(a.Host)), clientOfView(t, bobOf(b.Host))
		wantText(t, first, "s__count", "a1")
		wantText(t, second, "s__count", "a2")
		a.leases.fails.Store(true)
		lost := time.Now()
		answers := map[string]time.Time{} // the last of a, and the first of b
		for time.Since(lost) < time.Minute && answers["b"].IsZero() {
			for _, c := range []*mcp.Client{first, second} {
				if f, text := failureOf(t, c, "s__count"); f == nil {
					answers[text[:1]] = time.Now()
				} else if f.Code != hosterr.CodeUnavailable {
					t.Errorf("got %+v, %q", f, text)
				}
			}
			<-time.After(100 * time.Millisecond)
		}
		of, to := answers["a"].Sub(lost), answers["b"].Sub(lost)
		if of > 18*time.Second || to <= 18*time.Second || to > 35*time.Second {
			t.Errorf("the last answer came after %v, the first of the next host after %v", of, to)
		}
		wantFailure(t, first, "s__count", hosterr.CodeUnavailable, "store")
		a.leases.fails.Store(false)
		<-time.After(time.Minute)
		if f, text := failureOf(t, first, "s__count"); f != nil || text[:1] != "b" {
			t.Errorf("got %+v, %q", f, text)
		}
	})
}

// Questions, progress, log messages and cancellations pass to another host, with both eras of servers.
func TestConversationsOfCluster(t *testing.T) {
	for _, era := range []string{"modern", "session"} {
		t.Run(era, func(t *testing.T) {
			settings := fmt.Sprintf(`{"servers":{"s":{"share":"cluster","era":%q}}}`, era)
			inCluster(t, settings, func(t *testing.T, _ *testCluster, a, b *member) {
				s := a.process.handler.(*mcp.Server)
				cancelled := make(chan struct{})
				mcp.AddTool(s, &mcp.Tool{Name: "tell"}, func(ctx context.Context, _ struct{}) (string, error) {
					mcp.Logger(ctx).Info("told")
					mcp.Progress(ctx, 1, 2, "half")
					return "told", nil
				})
				mcp.AddTool(s, &mcp.Tool{Name: "hang"}, func(ctx context.Context, _ struct{}) (string, error) {
					<-ctx.Done()
					close(cancelled)
					return "", context.Cause(ctx)
				})
				ann := &policy.Caller{Principal: principal("ann")} // the only one: a pipe does not say whom a message is for
				wantText(t, client(t, a.Host, ann), "s__name", "a")
				var logs atomic.Int32
				c := clientWith(t, b.Host, ann, &mcp.ClientOptions{
					Log: func(context.Context, *mcp.LoggingMessage) { logs.Add(1) },
					Elicit: func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
						return &mcp.ElicitResult{Action: "accept", Content: json.RawMessage(`{"value":true}`)}, nil
					}})
				wantText(t, c, "s__ask", "atrue")
				var progress atomic.Int32
				ctx := mcp.WithCallOptions(t.Context(), mcp.CallOptions{LogLevel: "debug",
					Progress: func(mcp.ProgressUpdate) { progress.Add(1) }})
				if res, err := c.CallTool(ctx, "s__tell", nil); err != nil || res.Text() != "told" {
					t.Errorf("got %+v, %v", res, err)
				}
				<-time.After(time.Second)
				if progress.Load() != 1 || logs.Load() != 1 {
					t.Errorf("got %d updates of progress, %d log messages", progress.Load(), logs.Load())
				}
				short, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if _, err := c.CallTool(short, "s__hang", nil); err == nil {
					t.Error("the call did not end")
				}
				<-cancelled
			})
		})
	}
}

// Changes of lists and resources reach the clients of another host.
func TestChangesOfCluster(t *testing.T) {
	for _, era := range []string{"modern", "session"} {
		t.Run(era, func(t *testing.T) {
			settings := fmt.Sprintf(`{"servers":{"s":{"share":"cluster","era":%q}}}`, era)
			inCluster(t, settings, func(t *testing.T, _ *testCluster, a, b *member) {
				const uri = "file:///r"
				s := a.process.handler.(*mcp.Server)
				mcp.AddResource(s, &mcp.Resource{URI: uri, Name: "r"}, func(context.Context, string) (string, error) {
					return "r", nil
				})
				wantText(t, clientOfView(t, annOf(a.Host)), "s__name", "a")
				c := clientOfView(t, bobOf(b.Host))
				wantText(t, c, "s__name", "a")
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var updates, lists atomic.Int32
				public := ""
				for r, err := range c.Resources(t.Context()) {
					if err == nil {
						public = r.URI
					}
				}
				go func() {
					for e, err := range c.Listen(ctx, mcp.SubscriptionFilter{ToolsListChanged: true,
						ResourceSubscriptions: []string{public}}) {
						switch {
						case err != nil:
						case e.Kind == mcp.EventResourceUpdated:
							updates.Add(1)
						case e.Kind == mcp.EventToolsChanged:
							lists.Add(1)
						}
					}
				}()
				<-time.After(10 * time.Second)
				s.ResourceUpdated(uri)
				mcp.AddTool(s, &mcp.Tool{Name: "more"}, func(context.Context, struct{}) (string, error) { return "", nil })
				<-time.After(10 * time.Second)
				if updates.Load() == 0 || lists.Load() == 0 {
					t.Errorf("got %d updates of the resource, %d of the tools", updates.Load(), lists.Load())
				}
			})
		})
	}
}
