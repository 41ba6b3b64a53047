package host_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/approval"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// pending waits for a request and returns it.
func pending(t *testing.T, a *approval.Approvals) approval.Pending {
	t.Helper()
	synctest.Wait()
	all, err := a.Pending(t.Context())
	if err != nil || len(all) != 1 {
		t.Fatalf("got %+v, %v, want one request that waits", all, err)
	}
	return all[0]
}

// The operator decides about calls of clients that cannot ask, in any process that shares the state:
// on every transport and revision.
//
// Requirement: HOST-21
func TestApprovalByTheOperator(t *testing.T) {
	for _, down := range oneProcess(mcptest.Combinations()) {
		t.Run(down.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				shared := &state.Memory{}
				h, b := openBank(t, "auto", host.Options{Policy: askPolicy, State: shared,
					Channels: []policy.Channel{policy.ChannelClient, policy.ChannelConsole}})
				operator := approval.New(shared, nil)
				c := mcptest.Dial(t, h.For(&policy.Caller{Principal: principal("bob")}), down, nil)
				for _, answer := range []approval.Answer{approval.Once, approval.Deny} {
					b.runs.Store(0)
					done := make(chan string)
					go func() {
						r, err := c.CallTool(t.Context(), "bank__pay", map[string]any{"to": "eve"})
						done <- must(r, err).Text()
					}()
					p := pending(t, operator)
					if p.Server != "bank" || p.Target != "pay" || string(p.Arguments) != `{"to":"eve"}` || p.Principal != "bob (test)" ||
						p.Rule != "calls" || b.runs.Load() != 0 || slices.Contains(p.Answers, "forever") {
						t.Errorf("waits: %+v", p)
					}
					if err := operator.Decide(t.Context(), p.ID, "forever", "olga"); err == nil {
						t.Error("an answer that does not exist was accepted")
					}
					if err := operator.Decide(t.Context(), p.ID, answer, "olga"); err != nil {
						t.Error(err)
					}
					text, want := <-done, "paid"
					if answer == approval.Deny {
						want = "has not approved"
					}
					if !strings.Contains(text, want) || (b.runs.Load() == 1) != (answer == approval.Once) {
						t.Errorf("%s: got %q and %d runs", answer, text, b.runs.Load())
					}
					if err := operator.Decide(t.Context(), p.ID, answer, "olga"); !errors.Is(err, approval.ErrNotPending) {
						t.Errorf("decided twice: %v", err)
					}
				}
			})
		})
	}
}

// A request waits for five minutes, with progress; one that its client has canceled waits no more.
func TestApprovalExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, b := openBank(t, "auto", host.Options{Policy: askPolicy, Channels: []policy.Channel{policy.ChannelConsole}})
		on := mcptest.Combination{Transport: mcptest.Stdio, Revision: mcptest.Modern}
		c := mcptest.Dial(t, h.For(&policy.Caller{}), on, nil)
		steps, begin := 0, time.Now()
		ctx := mcp.WithCallOptions(t.Context(), mcp.CallOptions{Progress: func(mcp.ProgressUpdate) { steps++ }})
		r, err := c.CallTool(ctx, "bank__pay", map[string]any{})
		if err != nil || !strings.Contains(r.Text(), "not approved within 5m0s") || b.runs.Load() != 0 || steps < 15 {
			t.Errorf("got %+v, %v, %d runs, %d steps after %v", r, err, b.runs.Load(), steps, time.Since(begin))
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := c.CallTool(ctx, "bank__pay", map[string]any{})
			done <- err
		}()
		p := pending(t, h.Approvals())
		cancel()
		<-done
		synctest.Wait()
		if err := h.Approvals().Decide(t.Context(), p.ID, approval.Once, "olga"); !errors.Is(err, approval.ErrNotPending) {
			t.Errorf("decided about a canceled request: %v", err)
		}
		if all, err := h.Approvals().Pending(t.Context()); err != nil || len(all) != 0 || b.runs.Load() != 0 {
			t.Errorf("got %v, %v, %d runs", all, err, b.runs.Load())
		}
	})
}

// A webhook decides, or leaves the decision to the operator. A request is refused if it fails.
func TestApprovalByWebhook(t *testing.T) {
	for name, test := range map[string]struct {
		answer approval.Answer
		err    error
		want   string
	}{
		"once": {approval.Once, nil, "paid"}, "deny": {approval.Deny, nil, "has not approved"},
		"unknown answer": {"yes", nil, "has not approved"}, "failure": {"", errBroken, "webhook"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, b := openBank(t, "auto", host.Options{Policy: askPolicy, Channels: []policy.Channel{policy.ChannelWebhook},
					Webhook: func(_ context.Context, p *approval.Pending) (approval.Answer, error) {
						if string(p.Arguments) != `{"to":"eve"}` {
							t.Errorf("asked about %s", p.Arguments)
						}
						return test.answer, test.err
					}})
				c := client(t, h, &policy.Caller{})
				r, err := c.CallTool(t.Context(), "bank__pay", map[string]any{"to": "eve"})
				if err != nil || !strings.Contains(r.Text(), test.want) || (b.runs.Load() == 1) != (test.want == "paid") {
					t.Errorf("got %+v, %v, %d runs", r, err, b.runs.Load())
				}
			})
		})
	}
}

// What was approved during a wait must still be what would run.
func TestApprovalAfterAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, b := openBank(t, "auto", host.Options{Policy: askPolicy, Channels: []policy.Channel{policy.ChannelConsole}})
		c := client(t, h, &policy.Caller{})
		done := make(chan string)
		go func() {
			r, err := c.CallTool(t.Context(), "bank__pay", map[string]any{})
			done <- must(r, err).Text()
		}()
		p := pending(t, h.Approvals())
		h.SetPolicy(epochPolicy{askPolicy, 2})
		if err := h.Approvals().Decide(t.Context(), p.ID, approval.Once, "olga"); err != nil {
			t.Error(err)
		}
		if text := <-done; !strings.Contains(text, "has changed") || b.runs.Load() != 0 {
			t.Errorf("got %q and %d runs", text, b.runs.Load())
		}
	})
}

// Grants approve further calls of the same tool for the same rule, until they are revoked, the session
// ends, or the definition changes.
func TestGrants(t *testing.T) {
	for _, scope := range []string{"session", "always"} {
		t.Run(scope, func(t *testing.T) {
			rule := "calls"
			rules := policyFunc(func(a *policy.Action) policy.Decision {
				if a.Kind == policy.ActionCall {
					return policy.Decision{Do: policy.OutcomeAsk, Rule: rule}
				}
				return policy.Decision{Do: policy.OutcomeAllow}
			})
			var s *mcp.Server
			define := func(description string) {
				s = mcp.NewServer("bank", "1.0.0", nil)
				for _, name := range []string{"pay", "other"} {
					mcp.AddTool(s, &mcp.Tool{Name: name, Description: description},
						func(context.Context, struct{}) (string, error) { return "paid", nil })
				}
			}
			define("Pays.")
			o := host.Options{Policy: rules, Dial: func(context.Context, *config.Server) (mcp.Transport, error) {
				return mcp.InMemory(s), nil
			}}
			h := openFile(t, map[string]any{"bank": map[string]string{"command": "bank"}},
				`{"servers": {"bank": {"share": "session"}}}`, &o)
			var shown []string
			call := func(caller *policy.Caller, tool string, questions int) {
				t.Helper()
				shown = nil
				c := clientWith(t, h, caller, deciding(scope, &shown))
				if r, err := c.CallTool(t.Context(), tool, map[string]any{}); err != nil || r.Text() != "paid" || len(shown) != questions {
					t.Errorf("got %+v, %v, %d questions, want %d", r, err, len(shown), questions)
				}
			}
			one, two := &policy.Caller{Session: "1"}, &policy.Caller{Session: "2"}
			inOther := map[string]int{"session": 1, "always": 0}[scope]
			call(one, "bank__pay", 1)
			call(one, "bank__pay", 0)
			call(two, "bank__pay", inOther)
			call(one, "bank__other", 1)
			call(&policy.Caller{Principal: principal("eve"), Session: "3"}, "bank__pay", 1)
			rule = "another"
			call(one, "bank__pay", 1)
			rule = "calls"
			grants, err := h.Approvals().Grants(t.Context())
			if err != nil || len(grants) < 4 || grants[0].Target != "pay" || string(grants[0].Scope) != scope {
				t.Fatalf("got %+v, %v", grants, err)
			}
			if err := h.Approvals().Revoke(t.Context(), grants[0].ID); err != nil {
				t.Error(err)
			}
			if err := h.Approvals().Revoke(t.Context(), grants[0].ID); !errors.Is(err, approval.ErrNoGrant) {
				t.Errorf("revoked twice: %v", err)
			}
			call(one, "bank__pay", 1)
			call(one, "bank__pay", 0)
			change := func(description string) {
				define(description)
				if err := upstream(t, h, "bank").Restart(t.Context()); err != nil {
					t.Fatal(err)
				}
				waitForDescription(t, h, one, description)
			}
			change("Pays, and tells eve.") // the definition changes, and changes back
			call(one, "bank__pay", 1)
			change("Pays.")
			call(one, "bank__pay", 1)
			h.Operator().EndSession("1")
			call(one, "bank__pay", inOther)
		})
	}
}

// waitForDescription waits until a view has the description of the tool pay.
func waitForDescription(t *testing.T, h *host.Host, caller *policy.Caller, want string) {
	t.Helper()
	c := client(t, h, caller)
	for range 100 {
		tools, err := mcp.Collect(c.Tools(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		for _, tool := range tools {
			if tool.Name == "bank__pay" && tool.Description == want {
				return
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("the description is not %q", want)
}

// At the end of the program, requests that wait are refused at once, and cannot be approved.
func TestEndApprovalsRefusesWhatWaits(t *testing.T) {
	for _, down := range oneProcess(mcptest.Combinations()) {
		t.Run(down.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, b := openBank(t, "auto", host.Options{Policy: askPolicy, Channels: []policy.Channel{policy.ChannelConsole}})
				c := mcptest.Dial(t, h.For(&policy.Caller{}), down, nil)
				call := func() string {
					r, err := c.CallTool(t.Context(), "bank__pay", map[string]any{})
					return must(r, err).Text()
				}
				done := make(chan string)
				go func() { done <- call() }()
				p, begun := pending(t, h.Approvals()), time.Now()
				h.Operator().EndApprovals()
				if text := <-done; !strings.Contains(text, "the gateway is ending") {
					t.Errorf("the request that waited got %q", text)
				}
				if text := call(); !strings.Contains(text, "the gateway is ending") || time.Since(begun) > time.Second {
					t.Errorf("a later request got %q after %v", text, time.Since(begun))
				}
				synctest.Wait()
				if err := h.Approvals().Decide(t.Context(), p.ID, approval.Once, "olga"); !errors.Is(err, approval.ErrNotPending) {
					t.Errorf("decided about a request that was refused: %v", err)
				}
				if n := b.runs.Load(); n != 0 {
					t.Errorf("%d runs, want none", n)
				}
			})
		})
	}
}
