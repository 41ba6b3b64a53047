package call

import (
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil/cmdtest"
)

func TestCallFlags(t *testing.T) {
	with := func(task bool, words ...string) *Options {
		return &Options{Invocation: cmdutil.Invocation{Words: words}, Task: task}
	}
	cmdtest.Check(t, NewCmdCall, map[string]*Options{
		"call http://127.0.0.1:1/mcp":             with(false),
		"call http://127.0.0.1:1/mcp add a=1 b=2": with(false, "add", "a=1", "b=2"),
		"call http://127.0.0.1:1/mcp add --task":  with(true, "add"),
		"call add a=1 -- server --task":           with(false, "add", "a=1"),
		"call":                                    nil,
		"call http://127.0.0.1:1/mcp --tasks":     nil,
		"call add --":                             nil,
	})
}
