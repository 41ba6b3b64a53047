package cli

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A cloned repository with a file of each application: nothing runs, expands or is sent.
func TestHostileRepositoryIsNotUsed(t *testing.T) {
	for app, file := range map[string]string{
		"vscode": ".vscode/mcp.json", "cursor": ".cursor/mcp.json", "codex": ".codex/config.toml",
		"gemini": ".gemini/settings.json", "zed": ".zed/settings.json"} {
		t.Run(app, func(t *testing.T) {
			p := newHostileProject(t)
			t.Setenv("HOME", t.TempDir())
			text, err := os.ReadFile(".mcp.json")
			if err != nil {
				t.Fatal(err)
			}
			key := map[string]string{"vscode": "servers", "zed": "context_servers"}[app]
			if key == "" {
				key = "mcpServers"
			}
			entry := strings.Replace(string(text), "mcpServers", key, 1)
			if app == "codex" {
				_, address, _ := strings.Cut(string(text), `"url": "`)
				address, _, _ = strings.Cut(address, `"`)
				entry = "[mcp_servers.run]\ncommand='touch'\nargs=['" + filepath.ToSlash(p.mark) + "']\nenv_vars=['" +
					secretVariable + "']\n[mcp_servers.send]\nurl='" + address + "'\nbearer_token_env_var='" + secretVariable + "'\n"
			}
			writeProjectFile(t, file, entry)
			_ = os.Remove(".mcp.json")
			for _, name := range []string{"run", "send", app + ":run", app + ":send"} {
				for _, args := range [][]string{{"tools", name}, {"__complete", "call", name, ""}, {"servers"}, {"trust"}} {
					for _, o := range []outcome{patchbay(t, "y\n", args...), atTerminal(t, "n\n", nil, args...)} {
						if p.used() || strings.Contains(o.stdout+o.stderr, "s3cret") ||
							args[0] == "tools" && (o.status != exitUsage || !strings.Contains(o.stderr, "not trusted")) {
							t.Errorf("%q: used %t, exit code %d, %s", args, p.used(), o.status, o.stderr)
						}
					}
				}
			}
			if o := atTerminal(t, "y\n", nil, "tools", app+":send"); p.requests.Load() == 0 {
				t.Errorf("after trust nothing was sent: %s", o.stderr)
			}
		})
	}
}

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
	if o := patchbay(t, "abc\n", "tools", "own"); o.status != exitUsage || seen != "" {
		t.Errorf("in a pipe: exit code %d, sent %q, %s", o.status, seen, o.stderr)
	}
	if o := atTerminal(t, "\nabc\n", nil, "tools", "vscode:own"); seen != "abcabc" {
		t.Errorf("sent %q, want abcabc: %s", seen, o.stderr)
	}
}

func TestListsHaveNoSecrets(t *testing.T) {
	got := strings.Join(publicArguments([]string{"-y", "@acme/server-github", "--api-key", "abc", "--token=def", "-H",
		"X-A: ghi", "https://u:jkl@a.example/mno12345678901234567890/x?key=pqr", "sk-stu1234567"}), " ")
	if want := "-y @acme/server-github --api-key *** --token=*** -H X-A: *** https://a.example/***/x?*** ***"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
