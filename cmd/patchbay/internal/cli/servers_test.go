package cli

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
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

func TestListsShowNoPartOfAnInvalidURL(t *testing.T) {
	for address, want := range map[string]string{"token abc": "***", "https://${HOST}/abc": "https://***", "": "***"} {
		if got := publicURL(address); got != want {
			t.Errorf("%q is shown as %q, want %q", address, got, want)
		}
	}
}
