package listen

import (
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil/cmdtest"
	"github.com/patchbay-mcp/patchbay/mcp"
)

func TestListenFlags(t *testing.T) {
	cmdtest.Check(t, func(f *cmdutil.Factory, run cmdutil.Run[*Options]) *cobra.Command {
		return NewCmdListen(f, nil, run)
	}, map[string]*Options{
		"listen http://127.0.0.1:1/mcp x://a": {Invocation: cmdutil.Invocation{Words: []string{"x://a"}}},
		"listen http://127.0.0.1:1/mcp --tools --prompts --resources --count 2 --for 3s": {Count: 2, For: 3 * time.Second,
			Filter: mcp.SubscriptionFilter{ToolsListChanged: true, PromptsListChanged: true, ResourcesListChanged: true}},
		"listen": nil,
	})
}
