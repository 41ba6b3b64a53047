package install

import (
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil/cmdtest"
)

func TestInstallFlags(t *testing.T) {
	cmdtest.Check(t, NewCmdInstall, map[string]*Options{
		"install --client cursor,vscode --profile work --dry-run": {Clients: []string{"cursor", "vscode"}, Name: "patchbay",
			Profile: "work", DryRun: true},
		"install --client codex --file config.toml --name p --command patchbay --project": {Clients: []string{"codex"},
			File: "config.toml", Name: "p", Program: "patchbay", Project: true},
		"install cursor": nil,
	})
}
