package root

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
)

// The settings of the walk-through are valid, and its rule lets writes wait and reads pass.
func TestSettingsOfTheTeamGuide(t *testing.T) {
	text, err := os.ReadFile("../../../../../../docs/gateway-team.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?s)<!-- settings -->\n```jsonc\n(.*?)```").FindSubmatch(text)
	if m == nil {
		t.Fatal("the guide has no settings")
	}
	file := filepath.Join(t.TempDir(), "mcp.json")
	writeFile(t, file, `{"mcpServers": {"fs": {"command": "npx"}, "memory": {"command": "npx"}, "demo": {"command": "npx"}},`+
		string(m[1])+"}")
	if o := patchbay(t, "", "gateway", "validate", file); o.status != exit.OK {
		t.Errorf("validate: %+v", o)
	}
	for definition, want := range map[string]string{
		`{"annotations": {"readOnlyHint": true}}`: "allow by the default",
		`{"annotations": {}}`:                     "ask by rule fs-writes",
	} {
		o := patchbay(t, "", "gateway", "policy", "explain", "fs", "x", "--definition", definition, "--config", file)
		if o.status != exit.OK || !strings.Contains(o.stdout, want) {
			t.Errorf("%s: %+v, want %q", definition, o, want)
		}
	}
}
