package host_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/approval"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// Policies see the params of methods without arguments: of extensions and completions.
//
// Requirement: HOST-14
func TestPolicySeesParamsOfEveryMethod(t *testing.T) {
	forEachPair(t, func(t *testing.T, up, down mcptest.Combination) {
		if !up.Since("2025-11-25") || !down.Since("2025-11-25") {
			return // has no extensions
		}
		h := openHost(t, map[string]mcp.Handler{"acme": newExtended("acme"), "calc": newServer("calc")}, up, "{}", "", nil)
		var mu sync.Mutex
		var seen []string
		h.SetPolicy(policyFunc(func(a *policy.Action) policy.Decision {
			if a.Kind == policy.ActionOther || a.Kind == policy.ActionComplete {
				mu.Lock()
				defer mu.Unlock()
				seen = append(seen, a.Method+" "+string(a.Arguments))
			}
			return policy.Decision{Do: policy.OutcomeAllow}
		}))
		c := mcptest.Connect(t, h.For(&policy.Caller{}), down, nil)
		c.Call("acme/hello", map[string]any{"who": "Ada"})
		_, _ = c.Try("completion/complete", map[string]any{ // which is decided about before the server refuses it
			"ref":      map[string]any{"type": "ref/prompt", "name": "acme__greet"},
			"argument": map[string]any{"name": "who", "value": "Ad"}})
		if len(seen) != 2 || seen[0] != `acme/hello {"who":"Ada"}` || !strings.Contains(seen[1], `"value":"Ad"`) ||
			strings.Contains(seen[1], "_meta") {
			t.Errorf("the policy has seen %q", seen)
		}
	})
}

// The operator approves the params of a method of an extension as the server receives them.
//
// Requirement: HOST-21
func TestApprovalShowsParamsOfExtensions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		on := mcptest.Combination{Transport: "in-memory", Revision: mcptest.Modern}
		shared := &state.Memory{}
		h := newHostWith(t, map[string]mcp.Handler{"acme": newExtended("acme")}, host.Options{State: shared,
			Channels: []policy.Channel{policy.ChannelConsole}, Policy: policyFunc(func(a *policy.Action) policy.Decision {
				if a.Kind == policy.ActionOther {
					return policy.Decision{Do: policy.OutcomeAsk}
				}
				return policy.Decision{Do: policy.OutcomeAllow}
			})})
		c := mcptest.Dial(t, h.For(&policy.Caller{Principal: principal("bob")}), on, nil)
		done := make(chan string)
		go func() {
			raw, err := hello(t, c, "acme/hello")
			if err != nil {
				raw = err.Error()
			}
			done <- raw
		}()
		operator := approval.New(shared, nil)
		p := pending(t, operator)
		if p.Method != "acme/hello" || string(p.Arguments) != `{"who":"Ada"}` ||
			!slices.Contains(p.Answers, approval.Once) {
			t.Errorf("waits: %+v", p)
		}
		if err := operator.Decide(t.Context(), p.ID, approval.Once, "olga"); err != nil {
			t.Error(err)
		}
		if got := <-done; !strings.Contains(got, `"hello":"Ada"`) {
			t.Errorf("got %s", got)
		}
	})
}
