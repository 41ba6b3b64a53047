package host_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A caller whose client approves everything cannot fill the state with grants.
func TestGrantsOfOneCallerAreBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	s := mcp.NewServer("a", "1", nil)
	mcp.AddResourceTemplate(s, &mcp.ResourceTemplate{URITemplate: "x://{N}", Name: "x"},
		func(context.Context, struct{ N string }) (string, error) { return "text", nil })
	ask := policyFunc(func(a *policy.Action) policy.Decision {
		if a.Kind == policy.ActionRead {
			return policy.Decision{Do: policy.OutcomeAsk}
		}
		return policy.Decision{Do: policy.OutcomeAllow}
	})
	h := newHostWith(t, map[string]mcp.Handler{"a": s}, host.Options{Policy: ask})
	always := deciding("always", nil)
	always.ElicitationsPerMinute = 1e6
	bob := clientWith(t, h, &policy.Caller{Principal: principal("bob")}, always)
	ada := clientWith(t, h, &policy.Caller{Principal: principal("ada")}, always)
	refused := 0
	for n := range 1010 {
		if _, err := bob.ReadResource(t.Context(), fmt.Sprint("x://", n)); err != nil {
			if refused++; !strings.Contains(err.Error(), "1000 grants") {
				t.Fatal(err)
			}
		}
	}
	if grants := must(h.Approvals().Grants(t.Context())); refused != 10 || len(grants) != 1000 {
		t.Errorf("%d grants, and %d requests were refused", len(grants), refused)
	}
	if _, err := bob.ReadResource(t.Context(), "x://1"); err != nil {
		t.Errorf("with a grant: %v", err)
	}
	if _, err := ada.ReadResource(t.Context(), "x://1"); err != nil {
		t.Errorf("another caller: %v", err)
	}
	if _, err := ada.ReadResource(t.Context(), "x://"+strings.Repeat("a", 4000)); err == nil {
		t.Error("a grant for a long URI was kept")
	}
}
