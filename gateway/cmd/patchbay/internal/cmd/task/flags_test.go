package task

import (
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil/cmdtest"
	"github.com/patchbay-mcp/patchbay/mcp"
)

func TestTaskFlags(t *testing.T) {
	with := func(question string, action mcp.ElicitAction, words ...string) *Options {
		return &Options{Invocation: cmdutil.Invocation{Words: words}, Question: question, Action: action}
	}
	cmdtest.Check(t, NewCmdList, map[string]*cmdutil.Invocation{"list": {}, "list http://127.0.0.1:1/mcp": {}, "list http://127.0.0.1:1/mcp id": nil})
	cmdtest.Check(t, NewCmdGet, map[string]*Options{"get http://127.0.0.1:1/mcp 7": with("", "", "7"), "get http://127.0.0.1:1/mcp --id=-7": with("", "", "-7"),
		"get http://127.0.0.1:1/mcp": nil})
	cmdtest.Check(t, NewCmdWatch, map[string]*Options{"watch 7 -- server": with("", "", "7"), "watch http://127.0.0.1:1/mcp 7 8": nil})
	cmdtest.Check(t, NewCmdCancel, map[string]*Options{"cancel http://127.0.0.1:1/mcp 7": with("", "", "7")})
	cmdtest.Check(t, NewCmdAnswer, map[string]*Options{
		"answer http://127.0.0.1:1/mcp 7 --action decline --question key": with("key", mcp.ElicitDecline, "7"),
		"answer http://127.0.0.1:1/mcp --id=-7 name=Ann":                  with("", "", "-7", "name=Ann"),
	})
}
