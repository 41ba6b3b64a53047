package host_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A call whose server is replaced between its approval and its sending goes to the replacement only if the
// replacement runs the same program. A call that needs no approval goes to any replacement.
func TestApprovedCallsStayWithTheirProgram(t *testing.T) {
	allow := policyFunc(func(*policy.Action) policy.Decision { return policy.Decision{Do: policy.OutcomeAllow} })
	for name, test := range map[string]struct {
		policy  policy.Policy
		command string // of the replacement
		want    string // the result; empty for a refusal
	}{
		"approved, same program":  {askPolicy, "one", "one"},
		"approved, other program": {askPolicy, "two", ""},
		"allowed, other program":  {allow, "two", "two"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fakes := fakesOf("one", "two")
				var h *host.Host
				var once sync.Once
				reload := func(r *event.Record) {
					if r.Event != event.Intent && r.Event != event.Answer || r.Action.Kind != policy.ActionCall {
						return
					}
					once.Do(func() {
						_, err := h.Reload(t.Context(), parseConfig(t, `"a": {"command": "`+test.command+`"}`,
							`{"servers": {"a": {"share": "shared"}}}`))
						if err != nil {
							t.Error(err)
						}
					})
				}
				h, err := host.Open(t.Context(), parseConfig(t, `"a": {"command": "one"}`, "{}"), &host.Options{
					Logger: noLog, Policy: test.policy, Recorder: recorderFunc(reload),
					Dial: func(ctx context.Context, s *config.Server) (mcp.Transport, error) {
						return fakes[s.Command].dial(ctx)
					}})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					_ = h.Close()
					for _, p := range fakes {
						p.work.Wait()
					}
				})
				c := clientWith(t, h, &policy.Caller{Server: "a"}, deciding("once", nil))
				r, err := c.CallTool(t.Context(), "name", map[string]any{})
				if err != nil {
					t.Fatal(err)
				}
				if test.want == "" && !r.IsError || test.want != "" && (r.IsError || r.Text() != test.want) {
					t.Errorf("got %q, an error: %t; want %q", r.Text(), r.IsError, test.want)
				}
			})
		})
	}
}
