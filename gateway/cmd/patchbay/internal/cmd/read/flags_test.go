package read

import (
	"testing"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil/cmdtest"
)

func TestReadFlags(t *testing.T) {
	words := func(all ...string) *cmdutil.Invocation { return &cmdutil.Invocation{Words: all} }
	type newFunc = func(*cmdutil.Factory, cmdutil.Lister, cmdutil.Run[*cmdutil.Invocation]) *cobra.Command
	check := func(newCmd newFunc, want map[string]*cmdutil.Invocation) {
		t.Helper()
		cmdtest.Check(t, func(f *cmdutil.Factory, run cmdutil.Run[*cmdutil.Invocation]) *cobra.Command {
			return newCmd(f, nil, run)
		}, want)
	}
	check(NewCmdRead, map[string]*cmdutil.Invocation{"read http://127.0.0.1:1/mcp x://{a} a=1": words("x://{a}", "a=1"), "read http://127.0.0.1:1/mcp": nil})
	check(NewCmdGet, map[string]*cmdutil.Invocation{"get http://127.0.0.1:1/mcp greet name=Ann": words("greet", "name=Ann"), "get http://127.0.0.1:1/mcp": nil})
	check(NewCmdComplete, map[string]*cmdutil.Invocation{"complete http://127.0.0.1:1/mcp greet name=A": words("greet", "name=A"),
		"complete http://127.0.0.1:1/mcp greet": nil})
}
