package authorize_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/authorize"
	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/observe"
	"github.com/patchbay-mcp/patchbay/host/internal/server"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A rules is a policy with an outcome for each kind of action, which counts the decisions about calls.
type rules struct {
	outcomes map[policy.ActionKind]policy.Decision
	epoch    uint64
	calls    int
}

func (r *rules) Needs(policy.ActionKind) policy.Fields { return 0 }
func (r *rules) Epoch() uint64                         { return r.epoch }

func (r *rules) Decide(_ context.Context, a *policy.Action) policy.Decision {
	if a.Kind == policy.ActionCall {
		r.calls++
	}
	if d, ok := r.outcomes[a.Kind]; ok {
		return d
	}
	return policy.Decision{Do: policy.OutcomeAllow}
}

// A view is the view of a caller.
type view struct {
	call.View
	cache authorize.Cache
}

func (*view) Caller() *policy.Caller        { return &policy.Caller{} }
func (*view) Principal() string             { return "ann" }
func (v *view) Decisions() *authorize.Cache { return &v.cache }

func (*view) Concerned(_ context.Context, a *policy.Action, _ *call.Task) *policy.Action { return a }
func (*view) IsUnchanged(context.Context, *catalogue.Item) bool                          { return true }

type pool struct{}

func (pool) Name() string          { return "bank" }
func (pool) Entry() *server.Server { return &server.Server{Settings: &config.ServerSettings{}} }

// A gate is the stage and the step of a policy.
type gate struct {
	*authorize.Authorizer
	view *view
	sent int
}

func newGate(t *testing.T, p policy.Policy) *gate {
	t.Helper()
	g := &gate{view: &view{}, Authorizer: authorize.New(authorize.Options{
		Recent: &observe.Recent{}, Context: t.Context(),
		Count: func(policy.ActionKind, *policy.Decision) {}, Describe: func(*call.Call) {}})}
	g.Use(p)
	return g
}

// serve passes a call of the tool pay through the stage and the step; the server returns a result.
func (g *gate) serve(t *testing.T, own bool, res string) (mcp.Result, error) {
	t.Helper()
	last := func(context.Context, *call.Call) (mcp.Result, error) {
		g.sent++
		return mcp.RawResult(res), nil
	}
	item := &catalogue.Item{Kind: catalogue.Tools, Public: "bank__pay", Raw: json.RawMessage(`{"name":"pay"}`)}
	return call.Chain(last, g.Decide, call.Apply(g.Result))(t.Context(), &call.Call{View: g.view, Pool: pool{},
		Kind: policy.ActionCall, Target: "pay", Item: item, Own: own,
		Request: &mcp.Request{Method: "tools/call", Params: []byte(`{"name":"bank__pay"}`)}})
}

func deciding(kind policy.ActionKind, d policy.Decision) *rules {
	return &rules{outcomes: map[policy.ActionKind]policy.Decision{kind: d}}
}

const paid = `{"resultType":"complete","content":[{"type":"text","text":"paid"}],"structuredContent":{"iban":"1"}}`

// A denied call is not sent. A hidden call fails like a call of a tool that does not exist.
func TestRefusedCallsAreNotSent(t *testing.T) {
	g := newGate(t, deciding(policy.ActionCall, policy.Decision{Do: policy.OutcomeDeny, Rule: "no-payments"}))
	_, err := g.serve(t, false, paid)
	if e, ok := errors.AsType[*hosterr.Error](err); !ok || e.Code != hosterr.CodeDenied || g.sent != 0 {
		t.Errorf("denied: got %v, %d sent, want %s", err, g.sent, hosterr.CodeDenied)
	}
	g = newGate(t, deciding(policy.ActionCall, policy.Decision{Do: policy.OutcomeHide}))
	_, err = g.serve(t, false, paid)
	if want := catalogue.Tools.Unknown("bank__pay"); err == nil || err.Error() != want.Error() || g.sent != 0 {
		t.Errorf("hidden: got %v, %d sent, want %v", err, g.sent, want)
	}
	for name, own := range map[string]bool{"allowed": false, "the host's own resource": true} {
		g = newGate(t, deciding(policy.ActionRead, policy.Decision{Do: policy.OutcomeDeny}))
		if own {
			g.Use(deciding(policy.ActionCall, policy.Decision{Do: policy.OutcomeDeny}))
		}
		if _, err := g.serve(t, own, paid); err != nil || g.sent != 1 {
			t.Errorf("%s: got %v, %d sent, want 1", name, err, g.sent)
		}
	}
}

// The policy denies or redacts the result of a call that it allowed, and its questions.
func TestResultsAreDecidedAbout(t *testing.T) {
	deny := policy.Decision{Do: policy.OutcomeDeny}
	for name, test := range map[string]struct {
		rules *rules
		res   string
		want  string // empty for a refusal
	}{
		"denied":   {deciding(policy.ActionResult, deny), paid, ""},
		"question": {deciding(policy.ActionQuestion, deny), `{"resultType":"input_required","inputRequests":{"a":{}}}`, ""},
		"redacted": {deciding(policy.ActionResult, policy.Decision{Do: policy.OutcomeAllow,
			Redact: []policy.Redaction{{Pointer: "/iban"}}}), paid,
			`{"resultType":"complete","content":[{"type":"text","text":"paid"}],"structuredContent":{"iban":"[redacted]"}}`},
		"allowed": {deciding(policy.ActionQuestion, deny), paid, paid},
	} {
		g := newGate(t, test.rules)
		res, err := g.serve(t, false, test.res)
		raw, _ := res.(mcp.RawResult)
		e, denied := errors.AsType[*hosterr.Error](err)
		switch {
		case test.want == "" && (!denied || e.Code != hosterr.CodeDenied || !e.MayHaveRun):
			t.Errorf("%s: got %s, %v, want %s", name, raw, err, hosterr.CodeDenied)
		case test.want != "" && (err != nil || string(raw) != test.want):
			t.Errorf("%s: got %s, %v, want %s", name, raw, err, test.want)
		}
	}
}

// A view asks the policy once for equal calls, until the epoch changes.
func TestDecisionsAreCachedForAnEpoch(t *testing.T) {
	r := &rules{}
	g := newGate(t, r)
	for range 3 {
		if _, err := g.serve(t, false, paid); err != nil {
			t.Fatal(err)
		}
	}
	if r.calls != 1 {
		t.Errorf("%d decisions about 3 equal calls, want 1", r.calls)
	}
	r.epoch++
	if _, err := g.serve(t, false, paid); err != nil || r.calls != 2 {
		t.Errorf("got %v and %d decisions in two epochs, want 2", err, r.calls)
	}
}
