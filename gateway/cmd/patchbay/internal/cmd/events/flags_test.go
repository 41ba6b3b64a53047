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

func TestSubscribeFlags(t *testing.T) {
	cmdtest.Check(t, NewCmdSubscribe, map[string]*Options{
		"subscribe http://127.0.0.1:1/mcp e a=1 --url https://h.example/x --secret-file f --expires 1h --cursor 7": {
			URL: "https://h.example/x", SecretFile: "f", Expires: time.Hour, Cursor: "7",
			Invocation: cmdutil.Invocation{Words: []string{"e", "a=1"}}},
		"subscribe e --url https://h.example/x --listen :8080 --count 2 -- server": {URL: "https://h.example/x",
			Listen: ":8080", Count: 2, Invocation: cmdutil.Invocation{Words: []string{"e"}}},
		"subscribe e --url https://h.example/x -- server":                               nil,
		"subscribe e --url https://h.example/x --listen :1 --secret-file f -- server":   nil,
		"subscribe e --url http://h.example/x --listen :1 -- server":                    nil,
		"subscribe e --listen :1 -- server":                                             nil,
		"subscribe e --url https://h.example/x --secret-file f --count 2 -- server":     nil,
		"subscribe e --url https://h.example/x --secret-file f --expires -1s -- server": nil,
		"subscribe e --url https://h.example/x --secret-file f --max-age 1s -- server":  nil,
	})
}

func TestUnsubscribeFlags(t *testing.T) {
	cmdtest.Check(t, NewCmdUnsubscribe, map[string]*Options{
		"unsubscribe e --url https://h.example/x -- server": {URL: "https://h.example/x",
			Invocation: cmdutil.Invocation{Words: []string{"e"}}},
		"unsubscribe e -- server":                                      nil,
		"unsubscribe e --url https://h.example/x --cursor 1 -- server": nil,
	})
}
