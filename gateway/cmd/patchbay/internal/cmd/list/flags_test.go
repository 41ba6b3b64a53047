package list

import (
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil/cmdtest"
)

func TestListFlags(t *testing.T) {
	with := func(search []string, words ...string) *Options {
		return &Options{Invocation: cmdutil.Invocation{Words: words}, Search: search}
	}
	cmdtest.Check(t, NewCmdTools, map[string]*Options{
		"tools http://127.0.0.1:1/mcp":                          with(nil),
		"tools http://127.0.0.1:1/mcp add":                      with(nil, "add"),
		"tools http://127.0.0.1:1/mcp --search roll --search d": with([]string{"roll", "d"}),
		"tools http://127.0.0.1:1/mcp add sub":                  nil,
	})
	cmdtest.Check(t, NewCmdPrompts, map[string]*Options{"prompts http://127.0.0.1:1/mcp p": with(nil, "p")})
	cmdtest.Check(t, NewCmdResources, map[string]*Options{"resources http://127.0.0.1:1/mcp": with(nil), "resources http://127.0.0.1:1/mcp x://a": nil})
	cmdtest.Check(t, NewCmdTemplates, map[string]*Options{"templates http://127.0.0.1:1/mcp": with(nil), "templates http://127.0.0.1:1/mcp x://a": nil})
}
