package bench

import (
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil/cmdtest"
)

func TestBenchFlags(t *testing.T) {
	with := func(p Plan, connections int, yes bool) *Options {
		return &Options{Invocation: cmdutil.Invocation{Words: []string{"add"}}, Plan: p, Connections: connections, Yes: yes}
	}
	cmdtest.Check(t, NewCmdBench, map[string]*Options{
		"bench http://127.0.0.1:1/mcp add":                              with(Plan{Workers: 1, Duration: 10 * time.Second, WarmUp: time.Second}, 1, false),
		"bench http://127.0.0.1:1/mcp add -n 5 -c 4 --connections 2 -y": with(Plan{Workers: 4, Count: 5}, 2, true),
		"bench http://127.0.0.1:1/mcp add -n 5 -d 3s --warm-up 1s --rate 50": with(Plan{Workers: 1, Count: 5, Duration: 3 * time.Second,
			WarmUp: time.Second, Rate: 50}, 1, false),
		"bench http://127.0.0.1:1/mcp":                     nil,
		"bench http://127.0.0.1:1/mcp add -c 0":            nil,
		"bench http://127.0.0.1:1/mcp add --connections 2": nil, // more than workers
		"bench http://127.0.0.1:1/mcp add -n 0":            nil,
		"bench http://127.0.0.1:1/mcp add --rate -1":       nil,
	})
}
