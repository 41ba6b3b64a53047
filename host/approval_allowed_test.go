package host_test

import (
	"slices"
	"testing"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/policy"
)

// A request that was allowed when it began goes on once when the policy asks about such requests meanwhile: its
// answer, sent again, executes nothing.
func TestAnswersOfAllowedRequestsAreUsedOnce(t *testing.T) {
	flow := recentPolicy{policyFunc(func(a *policy.Action) policy.Decision {
		if a.Kind == policy.ActionCall && slices.Contains(a.Recent, "bank") {
			return policy.Decision{Do: policy.OutcomeAsk}
		}
		return policy.Decision{Do: policy.OutcomeAllow}
	})}
	h, b := openBank(t, "modern", host.Options{Policy: flow})
	f := &forger{t, h.For(&policy.Caller{})}
	asked := f.call("bank__confirm", "{}", "")
	answer := `,"requestState":` + string(asked["requestState"]) +
		`,"inputResponses":{"sure":{"action":"accept","content":{"value":true}}}`
	for range 3 {
		f.call("bank__confirm", "{}", answer)
	}
	if runs := b.runs.Load(); runs != 1 {
		t.Errorf("%d runs, want 1", runs)
	}
}
