package capture_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/capture"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

func inMemory(_ testing.TB, h mcp.Handler) mcp.Transport { return mcp.InMemory(h) }

// openHost opens a host with a server in the process, and returns a client of a caller.
func openHost(t testing.TB, ring *capture.Ring, pol policy.Policy, over func(testing.TB, mcp.Handler) mcp.Transport) *mcp.Client {
	t.Helper()
	server := over(t, newServer())
	f, err := config.Parse([]byte(`{"mcpServers":{"srv":{"command":"unused"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	opts := &host.Options{Policy: pol, Logger: slog.New(slog.DiscardHandler), Dial: func(context.Context, *config.Server) (mcp.Transport, error) {
		return server, nil
	}}
	opts.Recorder = discard{} // a gateway always has a recorder
	if ring != nil {
		opts.Dial, opts.Recorder = ring.Dial(opts.Dial), ring.Recorder(opts.Recorder)
	}
	h, err := host.Open(t.Context(), f, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	view := h.For(&policy.Caller{Principal: &mcp.Principal{Subject: "ann"}})
	c, err := mcp.Connect(t.Context(), over(t, view), &mcp.ClientOptions{
		Elicit: func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: []byte(`{"value":"Ann"}`)}, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// discard is a recorder that stores nothing.
type discard struct{}

func (discard) Record(*event.Record) error { return nil }

// noNines is a policy that refuses arguments with the digit 9.
type noNines struct{}

func (noNines) Decide(_ context.Context, a *policy.Action) policy.Decision {
	if strings.Contains(string(a.Arguments), "9") {
		return policy.Decision{Do: policy.OutcomeDeny, Rule: "no nines"}
	}
	return policy.Decision{Do: policy.OutcomeAllow}
}

func (noNines) Needs(policy.ActionKind) policy.Fields { return policy.FieldArguments }

func (noNines) Epoch() uint64 { return 1 }

func TestHostExchangesNameTheirCause(t *testing.T) {
	mcptest.NoLeaks(t)
	ring := capture.New(&capture.Options{Always: true})
	c := openHost(t, ring, noNines{}, inMemory)
	for i := range 3 {
		_, _ = c.CallTool(t.Context(), "srv__add", map[string]any{"a": i})
	}
	_, _ = c.CallTool(t.Context(), "srv__add", map[string]any{"a": 9})
	_, _ = c.CallTool(t.Context(), "srv__ask", nil)
	found := ring.Find(nil, 0, 100)
	slices.Reverse(found)
	var got []string
	for _, x := range found {
		if x.Method == "tools/call" {
			cause, _, _ := ring.Get(x.Cause)
			got = append(got, fmt.Sprintf("%s %s by %s, %s, %d rounds, cause %s %s", x.Hop, x.Target, x.Caller, x.Status, x.Rounds,
				cause.Hop, cause.Target))
		}
	}
	call := []string{"downstream srv__add by ann, ok, 1 rounds, cause  ", "upstream add by ann, ok, 1 rounds, cause downstream srv__add"}
	want := slices.Concat(call, call, call, []string{"downstream srv__add by ann, refused denied, 1 rounds, cause  "},
		[]string{"downstream srv__ask by ann, ok, 2 rounds, cause  ", "upstream ask by ann, ok, 2 rounds, cause downstream srv__ask"})
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	x, frames := find(t, ring, "hop:downstream text:ask")
	if len(frames) < 4 || !strings.Contains(frames[0].Text, `"method":"tools/call","params":{"name":"srv__ask"`) {
		t.Errorf("got %+v %+v, want question and answer", x, frames)
	}
}
