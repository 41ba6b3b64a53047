package console

import (
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil/cmdtest"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
)

func TestConsoleFlags(t *testing.T) {
	cmdtest.Check(t, NewCmdConsole, map[string]*Options{
		"console": {Checks: defaultChecks},
		"console a b --no-browser --addr :8080": {Addr: ":8080", Checks: defaultChecks, NoBrowser: true,
			Args: []string{"a", "b"}},
		"console --checks calls.json -- npx -y server": {Checks: "calls.json", Args: []string{"npx", "-y", "server"}},
		"console --view-origin http://localhost:4": {Checks: defaultChecks,
			Views: cmdutil.Views{Origin: "http://localhost:4"}},
		"console --unknown": nil,
	})
}

func TestTargetsHaveShortNames(t *testing.T) {
	for want, from := range map[string]*target.Target{
		"server-everything": {Command: []string{"npx", "-y", "@modelcontextprotocol/server-everything"}},
		"server":            {Command: []string{"python3", `C:\work\server.py`, "--verbose"}},
		"mcp.example.com":   {URL: "https://mcp.example.com:8443/mcp"},
		"a-b":               {Command: []string{"/bin/a b"}},
		"weather":           {Command: []string{"node", "/home/ann/weather/dist/index.js"}},
		"cmd":               {Command: []string{"node", "../dist/index.js"}}, // below the folder of the package
	} {
		if got := nameOf(from); got != want {
			t.Errorf("%v: got %q, want %q", from, got, want)
		}
	}
	if got := nameOf(&target.Target{Command: []string{"--"}}); got != "server" {
		t.Errorf("flags only: got %q, want server", got)
	}
}
