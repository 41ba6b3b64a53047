package root

import (
	"path/filepath"
	"strings"
	"testing"
)

// An input of a configuration has its default where no terminal can ask. A server whose input has no
// default fails alone, and is told what to do.
func TestHostInputsWithoutATerminal(t *testing.T) {
	freshVault(t)
	file := filepath.Join(t.TempDir(), "mcp.json")
	entry := strings.TrimSuffix(demoEntry(t), "}")
	withInput := func(id string) string {
		return strings.Replace(entry, `"env":{`, `"env":{"TEAM":"${input:`+id+`}",`, 1) + "}"
	}
	writeFile(t, file, `{"servers": {"one": `+withInput("team")+`, "two": `+withInput("token")+`},
		"inputs": [{"id": "team", "type": "promptString", "default": "blue"}, {"id": "token", "type": "promptString"}]}`)
	t.Setenv("PATCHBAY_CONFIG", file)
	o := patchbay(t, "", "call", "@host", "one__add", "a=1", "b=2")
	if o.status != 0 || !strings.Contains(o.stdout, "3") || !strings.Contains(o.stderr, "server two needs the input token") {
		t.Errorf("got %+v, want the sum, and a message about the other server", o)
	}
	if o = patchbay(t, "", "call", "@host", "two__add", "a=1", "b=2"); o.status == 0 || !strings.Contains(o.stderr, "token") {
		t.Errorf("got %+v, want a failure that names the input", o)
	}
}
