package config

import (
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil/cmdtest"
)

func TestConfigFlags(t *testing.T) {
	words := func(all ...string) cmdutil.Invocation { return cmdutil.Invocation{Words: all} }
	cmdtest.Check(t, NewCmdAdd, map[string]*AddOptions{
		"add web http://127.0.0.1:1/mcp --dry-run": {Invocation: words("web", "http://127.0.0.1:1/mcp"), Name: "web", URL: "http://127.0.0.1:1/mcp", DryRun: true},
		"add fs --replace --no-connect -- npx -y files": {Invocation: words("fs", "npx", "-y", "files"), Name: "fs",
			Command: []string{"npx", "-y", "files"}, Replace: true, NoConnect: true},
		"add web":                        nil,
		"add fs npx files":               nil,
		"add -- npx":                     nil,
		"add a/b http://127.0.0.1:1/mcp": nil,
	})
	cmdtest.Check(t, NewCmdRemove, map[string]*EditOptions{
		"remove web --dry-run": {Invocation: words("web"), DryRun: true}, "remove": nil})
	cmdtest.Check(t, NewCmdImport, map[string]*ImportOptions{
		"import cursor:web --as site": {Invocation: words("cursor:web"), As: "site"}, "import a b": nil})
}
