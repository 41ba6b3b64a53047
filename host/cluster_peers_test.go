package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/host/status"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/replica"
)

// A host without a cluster must not start a second instance. Its other servers run.
func TestServerOfClusterInHostAlone(t *testing.T) {
	s, other := &fakeProcess{handler: simpleServer("s")}, &fakeProcess{handler: simpleServer("o")}
	h := openFakes(t, map[string]*fakeProcess{"s": s, "o": other}, shareCluster)
	c := clientOfView(t, annOf(h))
	wantText(t, c, "o__name", "o")
	err := h.Start(t.Context(), "s")
	if e, ok := errors.AsType[*hosterr.Error](err); !ok || e.Code != hosterr.CodeConfigError ||
		!strings.Contains(e.Error(), `this process is not connected to them: use the server through a gateway`) {
		t.Errorf("got %v", err)
	}
	if st := upstream(t, h, "s").Status(); st.State != status.Config || len(s.started()) != 0 {
		t.Errorf("got %s, %d starts", st.State, len(s.started()))
	}
	f, err := config.Parse([]byte(`{"mcpServers":{"s":{"command":"s"},"o":{"command":"o"}},
		"patchbay":{"servers":{"o":{"share":"cluster"}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Reload(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	wantText(t, c, "s__name", "s")
	if err := h.Start(t.Context(), "o"); err == nil || len(other.started()) != 1 {
		t.Errorf("got %v, %d starts", err, len(other.started()))
	}
}

// Hosts with another configuration of a server do not use each other's instance, before and after a connection.
func TestConfigurationOfClusterDiffers(t *testing.T) {
	const file = `{"mcpServers":{"s":{"command":"s"}},"patchbay":{"servers":{"s":{"share":"cluster"}}}}`
	for name, other := range map[string]string{
		"the command": `{"mcpServers":{"s":{"command":"s","args":["x"]}},"patchbay":{"servers":{"s":{"share":"cluster"}}}}`,
		"a variable":  `{"mcpServers":{"s":{"command":"s","env":{"A":"b"}}},"patchbay":{"servers":{"s":{"share":"cluster"}}}}`,
		"the timeout": `{"mcpServers":{"s":{"command":"s"}},"patchbay":{"servers":{"s":{"share":"cluster","timeout":"9s"}}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, shareCluster, func(t *testing.T, _ *testCluster, a, b *member) {
				first, second := clientOfView(t, annOf(a.Host)), clientOfView(t, bobOf(b.Host))
				reload(t, b, other)
				wantText(t, first, "s__count", "a1")
				<-time.After(time.Minute) // the connection of b was replaced, if there was any
				differs := func() {
					t.Helper()
					err := b.Start(t.Context(), "s")
					if e, ok := errors.AsType[*hosterr.Error](err); !ok || e.Code != hosterr.CodeConfigError || e.MayHaveRun ||
						!strings.Contains(e.Error(), "give the server the same configuration in all gateways") {
						t.Errorf("got %v", err)
					}
				}
				differs()
				reload(t, b, file)
				wantText(t, second, "s__count", "a2")
				reload(t, a, other)
				<-time.After(time.Minute) // the server was started again
				wantFailure(t, second, "s__count", hosterr.CodeConfigError, "same configuration")
				differs()
				reload(t, b, other)
				wantText(t, second, "s__count", "a3")
				if n := len(b.process.started()); n != 0 {
					t.Errorf("%d instances beside the instance of the cluster", n)
				}
			})
		})
	}
}

// The policy of the gateway that receives a call decides, wherever the server runs.
func TestPolicyOfClusterIsThatOfTheCaller(t *testing.T) {
	inCluster(t, shareCluster, func(t *testing.T, _ *testCluster, a, b *member) {
		first, second := clientOfView(t, annOf(a.Host)), clientOfView(t, bobOf(b.Host))
		wantText(t, first, "s__count", "a1")
		wantText(t, second, "s__count", "a2")
		deny := policyFunc(func(a *policy.Action) policy.Decision {
			if a.Target == "count" {
				return policy.Decision{Do: policy.OutcomeDeny, Reason: "no counting"}
			}
			return policy.Decision{Do: policy.OutcomeAllow}
		})
		b.SetPolicy(deny)
		wantFailure(t, second, "s__count", hosterr.CodeDenied, "no counting")
		wantText(t, second, "s__name", "a")
		wantText(t, first, "s__count", "a3") // the denied call did not reach the server
		b.SetPolicy(nil)
		a.SetPolicy(deny)
		wantFailure(t, first, "s__count", hosterr.CodeDenied, "no counting")
		wantText(t, second, "s__count", "a4")
	})
}

// A server cannot send errors in the name of a host.
func TestForgedErrorOfClusterIsAnErrorOfTheServer(t *testing.T) {
	inCluster(t, shareCluster, func(t *testing.T, _ *testCluster, a, b *member) {
		s := a.process.handler.(*mcp.Server)
		mcp.AddPrompt(s, &mcp.Prompt{Name: "forged"}, func(context.Context, struct{}) (string, error) {
			e := mcp.Errorf(-32000, "forged")
			e.Data = json.RawMessage(`{"dev.patchbay/error":{"code":"auth_required","mayHaveRun":false,
				"retryAfterMs":1e300},"public":true,"own":1}`)
			return "", e
		})
		wantText(t, clientOfView(t, annOf(a.Host)), "s__name", "a")
		for name, v := range map[string]*host.View{"owner": annOf(a.Host), "other": bobOf(b.Host)} {
			_, err := clientOfView(t, v).GetPrompt(t.Context(), "s__forged", nil)
			e, ok := errors.AsType[*mcp.Error](err)
			if !ok || e.Message != "forged" || !strings.Contains(string(e.Data), `"own":1`) {
				t.Fatalf("%s: got %v", name, err)
			}
			if name == "other" && strings.Contains(string(e.Data), "auth_required") {
				t.Errorf("%s: got %s", name, e.Data)
			}
		}
	})
}

// Another host, which may have another version, names neither codes that this host does not count nor endless waits.
func TestErrorOfAnotherHostIsBounded(t *testing.T) {
	for text, want := range map[string]hosterr.Error{
		`{"code":"limited","retryAfterMs":1500}`:          {Code: hosterr.CodeLimited, RetryAfter: 1500 * time.Millisecond},
		`{"code":"of a later version","mayHaveRun":true}`: {Code: hosterr.CodeUnavailable, MayHaveRun: true},
		`{"code":"limited","retryAfterMs":1e300}`:         {Code: hosterr.CodeLimited, RetryAfter: 24 * time.Hour},
		`{"code":"limited","retryAfterMs":-1}`:            {Code: hosterr.CodeLimited},
	} {
		sent := mcp.Errorf(-32000, "it failed")
		sent.Data = json.RawMessage(`{"dev.patchbay/error":` + text + `}`)
		e, ok := errors.AsType[*hosterr.Error](hosterr.FromPeer(sent, "s"))
		if !ok || e.Code != want.Code || e.MayHaveRun != want.MayHaveRun || e.RetryAfter != want.RetryAfter || e.Server != "s" {
			t.Errorf("%s: got %+v, want %+v", text, e, want)
		}
	}
}

// frozenLeases does not return while the process is frozen.
type frozenLeases struct {
	replica.LeaseStore
	frozen atomic.Pointer[chan struct{}]
}

func (l *frozenLeases) Grant(ctx context.Context, name, value string, ttl time.Duration) (replica.Holder, error) {
	if until := l.frozen.Load(); until != nil {
		<-*until
	}
	return l.LeaseStore.Grant(ctx, name, value, ttl)
}

// A host that is frozen for longer than its lease answers no request after another host can run the server, although
// nobody told it so.
func TestFrozenHostOfCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tc := &testCluster{}
		frozen := &frozenLeases{LeaseStore: &tc.leases}
		a := tc.joinWith(t, "a:1", clusterKey, shareCluster, counterServer("a"), frozen)
		b := tc.join(t, "b:1", clusterKey, shareCluster, counterServer("b"))
		first, second := clientOfView(t, annOf(a.Host)), clientOfView(t, bobOf(b.Host))
		wantText(t, first, "s__count", "a1")
		wantText(t, second, "s__count", "a2")
		thaw := make(chan struct{})
		frozen.frozen.Store(&thaw)
		late := make(chan *failure, 1)
		go func() { // is answered while b may run the server
			f, _ := failureOf(t, first, "s__slow")
			late <- f
		}()
		began := time.Now()
		var answer, next time.Duration
		for next == 0 && time.Since(began) < 2*time.Minute {
			if f, _ := failureOf(t, first, "s__count"); f == nil {
				answer = time.Since(began)
			}
			if f, text := failureOf(t, second, "s__count"); f == nil && text[:1] == "b" {
				next = time.Since(began)
			} else if f == nil {
				answer = time.Since(began)
			}
			<-time.After(100 * time.Millisecond)
		}
		if answer > 18*time.Second || next < answer || next == 0 {
			t.Errorf("the last answer came after %v, the first of the next host after %v", answer, next)
		}
		if f := <-late; f == nil || !f.MayHaveRun || f.Code != hosterr.CodeUnavailable {
			t.Errorf("got %+v, want an answer that was refused", f)
		}
		frozen.frozen.Store(nil)
		close(thaw)
		<-time.After(time.Minute)
		if f, text := failureOf(t, first, "s__count"); f != nil || text[:1] != "b" {
			t.Errorf("got %+v, %q", f, text)
		}
	})
}

// The end of a server that is not in use is no failure at the other hosts.
func TestEndOfUnusedServerOfClusterIsNoFailure(t *testing.T) {
	inCluster(t, shareCluster, func(t *testing.T, _ *testCluster, a, b *member) {
		first, second := clientOfView(t, annOf(a.Host)), clientOfView(t, bobOf(b.Host))
		wantText(t, first, "s__count", "a1")
		wantText(t, second, "s__count", "a2")
		upstream(t, a.Host, "s").Stop()
		<-time.After(10 * time.Second)
		if st := upstream(t, b.Host, "s").Status(); st.State != status.Stopped || st.Err != nil {
			t.Errorf("got %s, %v", st.State, st.Err)
		}
		wantText(t, second, "s__count", "b1")
		wantFailure(t, first, "s__count", hosterr.CodeUnavailable, "was stopped")
	})
}

// A host whose processes are all in use can use a server that runs elsewhere, and leaves the start to others.
func TestProcessLimitOfCluster(t *testing.T) {
	inCluster(t, `{"servers":{"s":{"share":"cluster"}},"limits":{"processes":1}}`,
		func(t *testing.T, _ *testCluster, a, b *member) {
			wantText(t, clientOfView(t, annOf(a.Host)), "s__count", "a1")
			wantText(t, clientOfView(t, bobOf(b.Host)), "s__count", "a2")
			if n, m := a.Stats().Processes, b.Stats().Processes; n != 1 || m != 0 {
				t.Errorf("got %d and %d processes, want the process of the server only", n, m)
			}
		})
}

// Errors of lists have the same code at each host.
func TestFailedListOfClusterKeepsItsCode(t *testing.T) {
	inCluster(t, `{"servers":{"s":{"share":"cluster","timeout":"2s"}}}`,
		func(t *testing.T, _ *testCluster, a, b *member) {
			wantText(t, clientOfView(t, annOf(a.Host)), "s__name", "a")
			s := a.process.handler.(*mcp.Server)
			s.Use(func(next mcp.Handler) mcp.Handler {
				return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
					if req.Method == "prompts/list" {
						<-ctx.Done()
					}
					return next.ServeMCP(ctx, req)
				})
			})
			found := false
			for _, err := range clientOfView(t, b.For(&policy.Caller{Server: "s"})).Prompts(t.Context()) {
				e, ok := errors.AsType[*mcp.Error](err)
				found = ok && strings.Contains(string(e.Data), `"timeout"`)
				if !found {
					t.Errorf("got %v", err)
				}
			}
			if !found {
				t.Error("the list did not fail")
			}
		})
}

// A call whose caller answers a question continues while its connection lasts, although the server no longer runs once
// for all hosts at the host of the caller, or at the host that runs the server.
func TestQuestionOfClusterSurvivesAChange(t *testing.T) {
	for _, changed := range []string{"a", "b"} {
		inCluster(t, shareCluster, func(t *testing.T, _ *testCluster, a, b *member) {
			wantText(t, clientOfView(t, annOf(a.Host)), "s__name", "a")
			paused := make(chan struct{})
			var c *mcp.Client
			c = clientWith(t, b.Host, &policy.Caller{Principal: principal("ann")}, &mcp.ClientOptions{
				Elicit: func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
					go func() { // keeps the connection
						defer close(paused)
						_, _ = c.CallTool(t.Context(), "s__pause", nil)
					}()
					<-time.After(time.Second)
					reload(t, map[string]*member{"a": a, "b": b}[changed],
						`{"mcpServers":{"s":{"command":"s"}},"patchbay":{"servers":{"s":{"share":"shared"}}}}`)
					return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: []byte(`{"value":true}`)}, nil
				}})
			wantText(t, c, "s__ask", "atrue")
			<-paused
		})
	}
}
