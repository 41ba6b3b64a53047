package host_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/approval"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// openWith returns a host of one server with the tool run, which says that a call is harmless.
func openWith(t *testing.T, o *host.Options, calls *int) *host.Host {
	t.Helper()
	s := mcp.NewServer("calc", "1.0.0", nil)
	harmless := true
	mcp.AddTool(s, &mcp.Tool{Name: "run", Annotations: &mcp.ToolAnnotations{ReadOnly: &harmless}},
		func(context.Context, struct{}) (string, error) { *calls++; return "done", nil })
	f, err := config.Parse([]byte(`{"mcpServers": {"calc": {"command": "calc"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	o.Dial = func(context.Context, *config.Server) (mcp.Transport, error) { return mcp.InMemory(s), nil }
	h, err := host.Open(t.Context(), f, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return h
}

// Each call of an agent needs the consent of the user, whatever the server says of its tool.
//
// Requirement: HOST-16, HOST-18
func TestCallsNeedConsent(t *testing.T) {
	asked := errors.New("no terminal")
	for name, test := range map[string]struct {
		consent func(context.Context, *policy.Action) (*approval.Verdict, error)
		want    string // in the error; empty for none
	}{
		"not configured": {nil, "no user can be asked to allow the call"},
		"allowed": {func(context.Context, *policy.Action) (*approval.Verdict, error) {
			return &approval.Verdict{Allow: true}, nil
		}, ""},
		"refused": {func(context.Context, *policy.Action) (*approval.Verdict, error) {
			return &approval.Verdict{Reason: "too expensive"}, nil
		}, "too expensive"},
		"failed": {func(context.Context, *policy.Action) (*approval.Verdict, error) { return nil, asked }, asked.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			h := openWith(t, &host.Options{Consent: test.consent}, &calls)
			_, err := h.Call(t.Context(), "calc__run", map[string]any{})
			if test.want == "" {
				if err != nil || calls != 1 {
					t.Errorf("got %v and %d calls, want one call", err, calls)
				}
				return
			}
			var refused *hosterr.Error
			if !errors.As(err, &refused) || refused.Code != hosterr.CodeDenied || refused.Server != "calc" || refused.MayHaveRun ||
				!strings.Contains(err.Error(), test.want) || calls != 0 {
				t.Errorf("got %v and %d calls, want a refusal with %q", err, calls, test.want)
			}
		})
	}
}

// The user sees the server, the definition and the arguments before the call.
//
// Requirement: HOST-17, HOST-21
func TestConsentShowsTheCall(t *testing.T) {
	calls := 0
	var seen *policy.Action
	h := openWith(t, &host.Options{Consent: func(_ context.Context, a *policy.Action) (*approval.Verdict, error) {
		if calls != 0 {
			t.Error("asked after the call")
		}
		seen = a
		return &approval.Verdict{Allow: true}, nil
	}}, &calls)
	args := struct { // encoded as encoding/json does
		Zero int `json:"zero,omitempty"`
	}{}
	if _, err := h.Call(t.Context(), "calc__run", args); err != nil {
		t.Fatal(err)
	}
	if seen == nil || seen.Server != "calc" || seen.Target != "run" || string(seen.Arguments) != "{}" ||
		!strings.Contains(string(seen.Definition), "readOnlyHint") {
		t.Errorf("shown: %+v", seen)
	}
}

// A policyFunc decides about each action anew.
type policyFunc func(a *policy.Action) policy.Decision

func (f policyFunc) Decide(_ context.Context, a *policy.Action) policy.Decision { return f(a) }
func (f policyFunc) Needs(policy.ActionKind) policy.Fields                      { return policy.FieldTime }
func (f policyFunc) Epoch() uint64                                              { return 1 }

type recorderFunc func(*event.Record)

func (f recorderFunc) Record(r *event.Record) error {
	kept := *r // an intent is valid until this returns
	f(&kept)
	return nil
}

// The policy of the host decides before a request leaves it, and records have the outcome.
//
// Requirement: HOST-06, HOST-23
func TestPolicyAndRecords(t *testing.T) {
	calls := 0
	var records []*event.Record
	allow := false
	h := openWith(t, &host.Options{
		Policy: policyFunc(func(a *policy.Action) policy.Decision {
			if allow || a.Kind == policy.ActionList {
				return policy.Decision{Do: policy.OutcomeAllow}
			}
			return policy.Decision{Reason: "closed on " + a.Server}
		}),
		Recorder: recorderFunc(func(r *event.Record) { records = append(records, r) }),
	}, &calls)
	c, err := mcp.Connect(t.Context(), mcp.InMemory(h.For(&policy.Caller{})), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r, err := c.CallTool(t.Context(), "calc__run", map[string]any{})
	if err != nil || !r.IsError || !strings.Contains(r.Text(), "closed on calc") || calls != 0 {
		t.Errorf("got %+v, %v and %d calls, want a refusal", r, err, calls)
	}
	allow = true
	if r, err = c.CallTool(t.Context(), "calc__run", map[string]any{}); err != nil || r.Text() != "done" || calls != 1 {
		t.Errorf("got %+v, %v and %d calls, want one call", r, err, calls)
	}
	var got []string
	for _, r := range records {
		got = append(got, string(r.Event))
	}
	if want := "config refused intent end"; strings.Join(got, " ") != want {
		t.Fatalf("records: %q, want %s", got, want)
	}
	last := records[3]
	if records[1].Err == nil || last.Err != nil || last.Kind != policy.ActionCall || last.Target != "run" ||
		last.Public != "calc__run" || last.Start.IsZero() || last.Call != records[2].Call ||
		last.Call == records[1].Call || len(last.Result) == 0 || len(last.Client) == 0 || last.Digest == [32]byte{} {
		t.Errorf("records: %+v, want the refusal and the call", records)
	}
}
