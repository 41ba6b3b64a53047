package host_test

import (
	"context"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// The instructions of a server that the policy hides are hidden too, in a view of all servers and in its own.
func TestInstructionsOfHiddenServers(t *testing.T) {
	servers := map[string]mcp.Handler{}
	for _, name := range []string{"web", "db"} {
		s := mcp.NewServer(name, "1", &mcp.ServerOptions{Instructions: "How to use " + name + "."})
		mcp.AddTool(s, &mcp.Tool{Name: "get"}, func(context.Context, struct{}) (string, error) { return name, nil })
		servers[name] = s
	}
	hide := policyFunc(func(a *policy.Action) policy.Decision {
		if a.Server == "db" {
			return policy.Decision{Do: policy.OutcomeHide}
		}
		return policy.Decision{Do: policy.OutcomeAllow}
	})
	h := newHostWith(t, servers, host.Options{Policy: hide})
	for caller, want := range map[*policy.Caller]bool{{}: true, {Server: "db"}: false, {Server: "web"}: true} {
		text := client(t, h, caller).Instructions()
		if strings.Contains(text, "use db") || strings.Contains(text, "use web") != want {
			t.Errorf("server %q: %q", caller.Server, text)
		}
	}
}
