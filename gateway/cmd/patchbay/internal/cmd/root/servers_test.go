package root

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
)

func TestInputsAreAskedForOnATerminal(t *testing.T) {
	newHostileProject(t)
	t.Setenv("HOME", t.TempDir())
	seen := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = r.Header.Get("X-Key")
		http.Error(w, "no", http.StatusTeapot)
	}))
	defer server.Close()
	writeProjectFile(t, filepath.Join("config", "Code", "User", "mcp.json"), `{"inputs": [{"id": "k", "type": "promptString"}],
		"servers": {"own": {"url": "`+server.URL+`", "headers": {"X-Key": "${input:k}${input:k}"}}}}`)
	if o := patchbay(t, "abc\n", "tools", "own"); o.status != exit.Usage || seen != "" {
		t.Errorf("in a pipe: exit code %d, sent %q, %s", o.status, seen, o.stderr)
	}
	if o := atTerminal(t, "\nabc\n", nil, "tools", "vscode:own"); seen != "abcabc" {
		t.Errorf("sent %q, want abcabc: %s", seen, o.stderr)
	}
}

func TestListsHaveNoSecrets(t *testing.T) {
	got := strings.Join(target.PublicArguments([]string{"-y", "@acme/server-github", "--api-key", "abc", "--token=def", "-H",
		"X-A: ghi", "https://u:jkl@a.example/mno12345678901234567890/x?key=pqr", "sk-stu1234567"}), " ")
	if want := "-y @acme/server-github --api-key *** --token=*** -H X-A: *** https://a.example/***/x?*** ***"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestListsShowNoPartOfAnInvalidURL(t *testing.T) {
	for address, want := range map[string]string{"token abc": "***", "https://${HOST}/abc": "https://***", "": "***"} {
		if got := target.PublicURL(address); got != want {
			t.Errorf("%q is shown as %q, want %q", address, got, want)
		}
	}
}

func TestColumnsOfServersAreAlignedOnATerminal(t *testing.T) {
	file := filepath.Join(t.TempDir(), "servers.json")
	writeFile(t, file, `{"servers": {"a": {"command": "one"}, "longer": {"url": "https://a.example/mcp"}}}`)
	for _, verb := range []string{"servers", "trust"} {
		t.Run(verb, func(t *testing.T) {
			args := []string{"servers", "--config", file}
			want, tabs := []string{"one", "https://a.example/mcp"}, 5
			if verb == "trust" {
				t.Chdir(t.TempDir())
				writeFile(t, ".mcp.json", strings.Replace(readText(t, file), "servers", "mcpServers", 1))
				args, tabs = []string{"trust"}, 2
			}
			shown := strings.Split(strings.TrimSpace(atTerminal(t, "", nil, args...).stdout), "\n")
			if len(shown) != 3 || strings.Contains(shown[0], "\t") || !strings.HasPrefix(shown[0], "NAME ") ||
				strings.Index(shown[0], "COMMAND-OR-URL") != strings.Index(shown[1], want[0]) ||
				strings.Index(shown[1], want[0]) != strings.Index(shown[2], want[1]) {
				t.Errorf("on a terminal: got %q, want aligned columns below a header", shown)
			}
			if o := patchbay(t, "", args...); strings.Count(o.stdout, "\t") != 2*tabs || strings.Contains(o.stdout, "NAME") {
				t.Errorf("in a pipe: got %q, want %d tabs in a line, and no header", o.stdout, tabs)
			}
		})
	}
}
