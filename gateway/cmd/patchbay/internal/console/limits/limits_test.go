package limits_test

import (
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/consoletest"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

func TestLimitsShowServersAndCallers(t *testing.T) {
	s := consoletest.New(t, nil)
	v := s.Visitor()
	text := v.See("/limits")
	for _, want := range []string{"No caller has sent a request", `<th scope="row">fs</th>`, "<meter", "closed"} {
		if !strings.Contains(text, want) {
			t.Errorf("before a request: no %q in %s", want, text)
		}
	}
	c := mcptest.Dial(t, s.Host.For(&policy.Caller{Principal: &mcp.Principal{Subject: "<ann>"}}),
		mcptest.Combination{Transport: mcptest.InMemory, Revision: mcptest.Modern}, nil)
	if _, err := c.CallTool(t.Context(), "fs__read", nil); err != nil {
		t.Fatal(err)
	}
	v.Await("/limits", "&lt;ann&gt;")
}
