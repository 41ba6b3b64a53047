package status

import (
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil/cmdtest"
)

func TestLogsFlags(t *testing.T) {
	server := cmdutil.Invocation{Words: []string{"github"}}
	cmdtest.Check(t, NewCmdLogs, map[string]*LogsOptions{"logs github": {Invocation: server, Last: defaultLogLines},
		"logs github -f -n 5": {Invocation: server, Last: 5, Follow: true}, "logs": nil})
}
