package audit

import (
	"testing"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil/cmdtest"
)

func TestAuditFlags(t *testing.T) {
	dir := new(string)
	cmdtest.Check(t, func(f *cmdutil.Factory, run cmdutil.Run[*QueryOptions]) *cobra.Command {
		return NewCmdQuery(f, dir, run)
	}, map[string]*QueryOptions{"query --since 2h --until 1h --caller a --server s --tool t --outcome ok -n 3": {
		Options: Options{Dir: dir}, Since: "2h", Until: "1h", Caller: "a", Server: "s", Tool: "t", Outcome: "ok", Limit: 3}})
	cmdtest.Check(t, func(f *cmdutil.Factory, run cmdutil.Run[*TailOptions]) *cobra.Command {
		return NewCmdTail(f, dir, run)
	}, map[string]*TailOptions{"tail": {Options: Options{Dir: dir}, Lines: 20},
		"tail -f -n 5": {Options: Options{Dir: dir}, Lines: 5, Follow: true}})
}
