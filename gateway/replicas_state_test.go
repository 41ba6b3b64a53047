package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/approval"
	"github.com/patchbay-mcp/patchbay/host/pin"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// atOnce is less than the interval at which a process reads the store without a message of the bus.
const atOnce = 700 * time.Millisecond

// askPolicy asks before each call.
type askPolicy struct{}

func (askPolicy) Decide(_ context.Context, a *policy.Action) policy.Decision {
	if a.Kind == policy.ActionCall {
		return policy.Decision{Do: policy.OutcomeAsk, Rule: "calls"}
	}
	return policy.Decision{Do: policy.OutcomeAllow}
}

func (askPolicy) Needs(policy.ActionKind) policy.Fields { return 0 }

func (askPolicy) Epoch() uint64 { return 1 }

func asksOperator(o *host.Options) {
	o.Policy, o.Channels = askPolicy{}, []policy.Channel{policy.ChannelConsole}
}

const callBody = `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"docs__whoami","arguments":{}}}`

// A waitingCall is a call that waits for its approval.
type waitingCall struct {
	id   string // of the request for approval
	done chan fleetResponse
}

// callAt begins a call at a process and waits until every process lists its request for approval.
func (s *fleetSession) callAt(p *process) *waitingCall {
	s.f.t.Helper()
	known := pendingIDs(s.f.t, p)
	c := &waitingCall{done: make(chan fleetResponse, 1)}
	go func() { c.done <- s.send(p, s.path, s.key, callBody) }() // ends with the wait
	for _, other := range s.f.processes {
		await(s.f.t, func() error {
			for _, id := range pendingIDs(s.f.t, other) {
				if !slices.Contains(known, id) {
					c.id = id
					return nil
				}
			}
			return errors.New("the request is not listed")
		})
	}
	return c
}

func pendingIDs(t *testing.T, p *process) (ids []string) {
	t.Helper()
	all, err := p.host.Approvals().Pending(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range all {
		ids = append(ids, all[i].ID)
	}
	return ids
}

// result waits for the response.
func (c *waitingCall) result(t *testing.T) string {
	t.Helper()
	return within(t, "the response", c.done).body
}

// An approval given at one gateway, or by a command that shares the store, wakes the call that waits at
// another gateway, and that call only.
func TestApprovalWakesTheCallAtAnotherGateway(t *testing.T) {
	mcptest.NoLeaks(t)
	f := startFleet(t, fleetConfig, asksOperator)
	ann := f.initialize("/mcp", f.key(gateway.Key{Name: "ann"}))
	bob := f.initialize("/mcp", f.key(gateway.Key{Name: "bob"}))
	fastest := time.Hour
	for n, decides := range []*approval.Approvals{f.processes[2].host.Approvals(), f.processes[0].host.Approvals(),
		approval.New(f.processes[0].state, nil)} {
		call, other := ann.callAt(f.processes[1]), bob.callAt(f.processes[1])
		begin := time.Now()
		if err := decides.Decide(t.Context(), call.id, approval.Once, "ops"); err != nil {
			t.Fatal(err)
		}
		if got := call.result(t); !strings.Contains(got, `"text":"docs"`) {
			t.Errorf("round %d: the approved call returned %s", n, got)
		}
		fastest = min(fastest, time.Since(begin))
		if ids := pendingIDs(t, f.processes[0]); !slices.Equal(ids, []string{other.id}) {
			t.Errorf("round %d: requests %q wait, want the request of the other caller", n, ids)
		}
		if err := decides.Decide(t.Context(), call.id, approval.Once, "ops"); !errors.Is(err, approval.ErrNotPending) {
			t.Errorf("round %d: a second answer returned %v, want ErrNotPending", n, err)
		}
		if err := decides.Decide(t.Context(), other.id, approval.Deny, "ops"); err != nil {
			t.Fatal(err)
		}
		if got := other.result(t); !strings.Contains(got, "has not approved") {
			t.Errorf("round %d: the denied call returned %s", n, got)
		}
	}
	if fastest >= atOnce {
		t.Errorf("an approved call continued after %v, want at once", fastest)
	}
}

// Of answers at several gateways, one counts.
func TestRequestIsAnsweredOnceByAllGateways(t *testing.T) {
	mcptest.NoLeaks(t)
	f := startFleet(t, fleetConfig, asksOperator)
	s := f.initialize("/mcp", key)
	for range 5 {
		call := s.callAt(f.processes[0])
		errs := make(chan error, len(f.processes))
		for n, p := range f.processes {
			answer := []approval.Answer{approval.Once, approval.Deny, approval.Deny}[n]
			go func() { errs <- p.host.Approvals().Decide(t.Context(), call.id, answer, fmt.Sprint(n)) }() // ends
		}
		accepted := 0
		for range f.processes {
			if err := <-errs; err == nil {
				accepted++
			} else if !errors.Is(err, approval.ErrNotPending) {
				t.Error(err)
			}
		}
		if accepted != 1 {
			t.Errorf("%d answers were accepted, want 1", accepted)
		}
		call.result(t)
	}
}

// A grant for a session holds at every gateway, also after the end of the gateway whose call it approved,
// and ends with the session.
func TestGrantOfASessionHoldsAtEveryGateway(t *testing.T) {
	mcptest.NoLeaks(t)
	f := startFleet(t, fleetConfig, asksOperator)
	s := f.initialize("/mcp", key)
	call := s.callAt(f.processes[1])
	if err := f.processes[2].host.Approvals().Decide(t.Context(), call.id, approval.Session, "ops"); err != nil {
		t.Fatal(err)
	}
	call.result(t)
	f.shutdown(1)
	for _, n := range []int{0, 2} {
		if got := s.send(f.processes[n], s.path, s.key, callBody); !strings.Contains(got.body, `"text":"docs"`) {
			t.Errorf("gateway %d: %s", n, got.body)
		}
	}
	s.send(f.processes[0], s.path, s.key, "")
	await(t, func() error {
		if all, err := f.processes[2].host.Approvals().Grants(t.Context()); err != nil || len(all) > 0 {
			return fmt.Errorf("grants %+v, %w, want none", all, err)
		}
		return nil
	})
}

// within waits for a value.
func within[T any](t *testing.T, what string, values <-chan T) (value T) {
	t.Helper()
	select {
	case value = <-values:
	case <-time.After(patience):
		t.Fatal("timeout: " + what)
	}
	return value
}

// A key that one gateway creates works at the others, and a revoked key ends there at once, with its calls.
func TestKeysChangeAtEveryGateway(t *testing.T) {
	mcptest.NoLeaks(t)
	f := startFleet(t, fleetConfig)
	fastest := time.Hour
	for round := range 3 {
		name := fmt.Sprint("key", round)
		s := f.initialize("/mcp", f.key(gateway.Key{Name: name}))
		for n, p := range f.processes {
			if got := s.send(p, s.path, s.key, listBody); got.status != http.StatusOK {
				t.Errorf("the new key at gateway %d: status %d", n, got.status)
			}
		}
		c, done := f.connect("2026-07-28", s.path, s.key), make(chan error, 1)
		go func() { // ends with the key
			res, err := c.CallTool(t.Context(), "docs__wait", nil)
			if err == nil && res.IsError {
				err = errors.New(res.Text())
			}
			done <- err
		}()
		within(t, "the call", f.waiting)
		begin := time.Now()
		if _, err := f.processes[0].keys.Revoke(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		for _, p := range f.processes {
			await(t, func() error {
				if got := s.send(p, s.path, s.key, listBody); got.status != http.StatusUnauthorized {
					return fmt.Errorf("the revoked key: status %d, want 401", got.status)
				}
				return nil
			})
		}
		within(t, "the end of the call at its server", f.cancelled)
		if err := within(t, "the end of the call", done); err == nil {
			t.Error("the call with the revoked key succeeded")
		}
		fastest = min(fastest, time.Since(begin))
	}
	if fastest >= atOnce {
		t.Errorf("a revoked key ended after %v, want at once", fastest)
	}
}

// Definitions approved at one gateway, or by a command, are listed by all of them at once.
func TestDefinitionsAreApprovedForEveryGateway(t *testing.T) {
	mcptest.NoLeaks(t)
	f := startFleet(t, `{"mcpServers": {"docs": {"command": "docs"}},
		"patchbay": {"servers": {"docs": {"trust": "review"}}}}`)
	s := f.initialize("/mcp", key)
	lists := func(p *process) bool {
		return strings.Contains(s.send(p, s.path, s.key, listBody).body, `"whoami"`)
	}
	for n, p := range f.processes {
		if lists(p) {
			t.Errorf("gateway %d lists a definition that was not approved", n)
		}
	}
	pins, err := pin.List(t.Context(), f.processes[1].state)
	if err != nil || len(pins) == 0 {
		t.Fatalf("%d definitions, %v", len(pins), err)
	}
	if err := pin.Approve(t.Context(), f.processes[1].state, pins...); err != nil {
		t.Fatal(err)
	}
	begin, fastest := time.Now(), time.Hour
	for n, p := range f.processes {
		await(t, func() error {
			if !lists(p) {
				return fmt.Errorf("gateway %d lists no approved definition", n)
			}
			return nil
		})
		fastest = min(fastest, time.Since(begin))
	}
	if fastest >= atOnce+atOnce/2 { // without a message, within 2 seconds
		t.Errorf("the approved definitions were listed after %v, want at once", fastest)
	}
}
