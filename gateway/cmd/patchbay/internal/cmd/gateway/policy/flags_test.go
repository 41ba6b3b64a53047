package policy

import (
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil/cmdtest"
)

func TestExplainFlags(t *testing.T) {
	server := cmdutil.Invocation{Words: []string{"github", "delete"}}
	cmdtest.Check(t, NewCmdExplain, map[string]*ExplainOptions{
		"explain github delete": {Invocation: server, On: "call"},
		"explain github delete --on result --args {} --definition {} --result {} --subject s --scope a --recent b": {
			Invocation: server, On: "result", Args: "{}", Definition: "{}", Result: "{}", Subject: "s",
			Scopes: []string{"a"}, Recent: []string{"b"}},
		"explain github": nil,
	})
}
