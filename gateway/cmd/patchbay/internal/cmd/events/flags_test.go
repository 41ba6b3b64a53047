package events

import (
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil/cmdtest"
)

func TestPollFlags(t *testing.T) {
	cmdtest.Check(t, NewCmdPoll, map[string]*Options{
		"poll http://127.0.0.1:1/mcp e a=1": {Invocation: cmdutil.Invocation{Words: []string{"e", "a=1"}}},
		"poll http://127.0.0.1:1/mcp e --cursor 7 --max-age 2m": {Cursor: "7", MaxAge: 2 * time.Minute,
			Invocation: cmdutil.Invocation{Words: []string{"e"}}},
		"poll http://127.0.0.1:1/mcp e --max-age 2m":             nil,
		"poll http://127.0.0.1:1/mcp e --cursor 7 --max-age=-2m": nil,
		"poll http://127.0.0.1:1/mcp e --count 1":                nil,
		"poll http://127.0.0.1:1/mcp":                            nil,
	})
}

func TestListenFlags(t *testing.T) {
	cmdtest.Check(t, NewCmdListen, map[string]*Options{
		"listen e --count 2 -- server":  {Count: 2, Invocation: cmdutil.Invocation{Words: []string{"e"}}},
		"listen e --count -1 -- server": nil,
		"listen -- server":              nil,
	})
}
