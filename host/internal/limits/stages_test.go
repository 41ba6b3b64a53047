package limits_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	pipeline "github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/limits"
	"github.com/patchbay-mcp/patchbay/host/internal/round"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A view is the caller ann. Its requests continue the round.
type view struct {
	pipeline.View
	round round.State
}

func (view) Principal() string { return "ann" }

func (v view) OpenState(*mcp.Request, *pipeline.Call) (round.State, bool, error) {
	return v.round, true, nil
}

// A pool is a server with limits and one queue.
type pool struct {
	pipeline.Pool
	catalogue.Store
	server *limits.Server
	queue  *limits.Queue
}

func (p *pool) Limits() *limits.Server                          { return p.server }
func (p *pool) Queue() *limits.Queue                            { return p.queue }
func (p *pool) RequestError(_ context.Context, err error) error { return err }

// stages returns limits, and a tools/call to a server with a concurrency of 1 and no queue.
func stages(t *testing.T, l *config.CallerLimits, params string) (*limits.Limits, *pipeline.Call) {
	t.Helper()
	all := newLimits(t, &state.Memory{}, l)
	s := all.NewServer("a", &config.ServerSettings{Concurrency: 1})
	return all, &pipeline.Call{View: view{round: round.State{Instance: "1"}}, Pool: &pool{server: s, queue: s.NewQueue(false)},
		Kind: policy.ActionCall, Target: "tool", Request: &mcp.Request{Method: "tools/call", Params: []byte(params)}}
}

// sent returns a last stage that counts the calls that reach it.
func sent(n *int) pipeline.Next {
	return func(context.Context, *pipeline.Call) (mcp.Result, error) {
		*n++
		return nil, nil
	}
}

func TestRefusedCallsAreNotSent(t *testing.T) {
	n := 0
	l, c := stages(t, &config.CallerLimits{ArgumentBytes: 30, CallsPerDay: 1}, `{"name":"tool","arguments":{"a":1,"A":2}}`)
	if _, err := l.Admit(sent(&n))(t.Context(), c); err == nil || !strings.Contains(err.Error(), "invalid params.arguments") {
		t.Errorf("names that differ in case: %v", err)
	}
	c.Request = &mcp.Request{Method: "tools/call", Params: []byte(`{"arguments":{"a":"` + strings.Repeat("x", 40) + `"}}`)}
	_, err := l.Admit(sent(&n))(t.Context(), c)
	if e, ok := errors.AsType[*hosterr.Error](err); !ok || e.Code != hosterr.CodeTooLarge {
		t.Errorf("large arguments: %v", err)
	}
	c.Request = &mcp.Request{Method: "tools/call", Params: []byte(`{"arguments":{}}`)}
	all := pipeline.Chain(sent(&n), l.Admit, l.Queue, l.Spend)
	if _, err := all(t.Context(), c); err != nil || n != 1 {
		t.Errorf("the first call of the day: %v, %d calls were sent", err, n)
	}
	if _, err := all(t.Context(), c); err == nil || n != 1 {
		t.Errorf("the second call of the day: %v, %d calls were sent", err, n)
	}
}

func TestCallsLeaveTheQueueAfterTheirEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, c := stages(t, &config.CallerLimits{}, `{"name":"tool"}`)
		another := *c
		_, err := l.Queue(func(ctx context.Context, _ *pipeline.Call) (mcp.Result, error) {
			if _, err := l.Queue(sent(new(int)))(ctx, &another); err == nil {
				t.Error("a second call was sent while the server served the first call")
			}
			answer := *c
			answer.Request = &mcp.Request{Method: "tools/call", Params: []byte(`{"inputResponses":{},"requestState":"s"}`)}
			if _, err := l.Queue(sent(new(int)))(ctx, &answer); err != nil {
				t.Errorf("the answer to a question of the server had to wait: %v", err)
			}
			local := *c
			local.Local = func(context.Context) (mcp.Result, error) { return nil, nil }
			if _, err := l.Queue(sent(new(int)))(ctx, &local); err != nil {
				t.Errorf("a call that the host serves had to wait: %v", err)
			}
			return nil, nil
		})(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Queue(sent(new(int)))(t.Context(), &another); err != nil {
			t.Errorf("after the first call: %v", err)
		}
	})
}
