package record

import (
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil/cmdtest"
)

func TestRecordFlags(t *testing.T) {
	http := cmdutil.HTTPOptions{Addr: "127.0.0.1:0", NoAuth: true}
	cmdtest.Check(t, NewCmdBridge, map[string]*BridgeOptions{
		"bridge http://127.0.0.1:1/mcp":                                       {},
		"bridge http://127.0.0.1:1/mcp --http 127.0.0.1:0 --insecure-no-auth": {HTTP: http},
		"bridge http://127.0.0.1:1/mcp tool":                                  nil,
	})
	cmdtest.Check(t, NewCmdRecord, map[string]*RecordOptions{
		"record file.jsonl http://127.0.0.1:1/mcp": {File: "file.jsonl"},
		"record file.jsonl -- server":              {File: "file.jsonl"},
		"record file.jsonl http://127.0.0.1:1/mcp --http 127.0.0.1:0 --insecure-no-auth": {File: "file.jsonl",
			BridgeOptions: BridgeOptions{HTTP: http}},
		"record file.jsonl":                           nil,
		"record file.jsonl http://127.0.0.1:1/mcp x":  nil,
		"record -- server":                            nil,
		"record file.jsonl http://127.0.0.1:1/mcp -x": nil,
	})
	cmdtest.Check(t, NewCmdMock, map[string]*MockOptions{
		"mock file.jsonl --delay": {Invocation: cmdutil.Invocation{Words: []string{"file.jsonl"}}, Delay: true},
		"mock":                    nil,
		"mock a b":                nil,
	})
}
