package host_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// Two entries of one program with different variables have pins of their own: what was approved for one
// is not listed for the other, and is not approved there.
func TestEntriesOfOneProgramHavePinsOfTheirOwn(t *testing.T) {
	state, started := &state.Memory{}, new(atomic.Int64)
	open := func(work, home string) *mcp.Client {
		servers := map[string]any{}
		for name, tool := range map[string]string{"a-work": work, "b-home": home} {
			servers[name] = map[string]any{"command": "mail", "args": []string{"serve"}, "env": map[string]string{"TOOL": tool}}
		}
		h := openFile(t, servers, "{}", &host.Options{Pins: true, State: state,
			Dial: func(_ context.Context, s *config.Server) (mcp.Transport, error) {
				started.Add(1)
				server := mcp.NewServer("mail", "1", nil)
				mcp.AddTool(server, &mcp.Tool{Name: s.Env["TOOL"]}, func(context.Context, struct{}) (string, error) { return "ok", nil })
				return mcp.InMemory(server), nil
			}})
		return client(t, h, &policy.Caller{})
	}
	want := []string{"a-work__send", "b-home__read"}
	for range 2 { // the second time from pins
		if got := toolNames(t, open("send", "read")); !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	}
	if n := started.Load(); n != 2 {
		t.Errorf("%d starts, want 2: the second lists are from pins", n)
	}
	c := open("send", "send") // what is approved for the first only
	r, err := c.CallTool(t.Context(), "b-home__read", nil)
	if err == nil && !r.IsError {
		t.Errorf("got %+v", r)
	}
	if r, err = c.CallTool(t.Context(), "b-home__send", nil); err == nil && !r.IsError {
		t.Errorf("a definition of another entry is used: %+v", r)
	}
	if pending := pendingPins(t, state); len(pending) != 1 || pending[0].Server != "b-home" || fmt.Sprint(pending[0].Name) != "send" {
		t.Errorf("got %+v, want the definition of the second entry", pending)
	}
	if r, err := c.CallTool(t.Context(), "a-work__send", nil); err != nil || r.Text() != "ok" {
		t.Errorf("the first entry: %+v, %v", r, err)
	}
}
