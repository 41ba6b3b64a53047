package host_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// A rule on reads applies to skills and directories, in a view of all servers and in that of one.
func TestPolicyDecidesReadsOfSkills(t *testing.T) {
	on := mcptest.Combination{Transport: "in-memory", Revision: mcptest.Modern}
	h := openHost(t, map[string]mcp.Handler{"a": newSkills(t, "a", "pdf", "mail"), "b": newSkills(t, "b", "chart")}, on, "{}", "", nil)
	h.SetPolicy(policyFunc(func(a *policy.Action) policy.Decision {
		if a.Kind == policy.ActionRead && strings.Contains(a.Target, "mail") {
			return policy.Decision{Rule: "no-mail"}
		}
		return policy.Decision{Do: policy.OutcomeAllow}
	}))
	for _, caller := range []*policy.Caller{{}, {Server: "a"}} {
		c := mcptest.Dial(t, h.For(caller), on, nil)
		if raw, err := c.Do(t.Context(), "skills/list", nil); err != nil {
			t.Fatalf("list: %s, %v", raw, err)
		}
		for _, method := range []string{"skills/get", "resources/directory/read"} {
			for _, skill := range []string{"mail", "pdf"} {
				uri := "skill://" + skill
				if method == "skills/get" {
					uri += "/SKILL.md"
				}
				raw, err := c.Do(t.Context(), method, map[string]string{"uri": uri})
				denied := err != nil && strings.Contains(err.Error(), "no-mail")
				if denied != (skill == "mail") || skill == "pdf" && !bytes.Contains(raw, []byte("pdf")) {
					t.Errorf("server %q, %s %s: %s, %v", caller.Server, method, uri, raw, err)
				}
			}
		}
	}
}
