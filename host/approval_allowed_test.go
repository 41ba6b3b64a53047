package host_test

import (
	"slices"
	"testing"

	"github.com/patchbay-mcp/patchbay/host"
)

// A request that was allowed when it began goes on once when the policy asks about such requests meanwhile: its
// answer, sent again, executes nothing.
func TestAnswersOfAllowedRequestsAreUsedOnce(t *testing.T) {
	flow := recentPolicy{policyFunc(func(a *host.Action) host.Decision {
		if a.Kind == host.ActionCall && slices.Contains(a.Recent, "bank") {
			return host.Decision{Do: host.OutcomeAsk}
		}
		return host.Decision{Do: host.OutcomeAllow}
	})}
	h, b := openBank(t, "modern", host.Options{Policy: flow})
	f := &forger{t, h.For(&host.Caller{})}
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
