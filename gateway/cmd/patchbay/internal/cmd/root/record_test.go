package root

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/connect"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/recording"
)

// traceOf runs a command with --trace and returns the file.
func traceOf(t *testing.T, args ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "a.jsonl")
	if o := patchbay(t, "", append([]string{"--trace", file}, args...)...); o.status != exit.OK {
		t.Fatalf("%q: got %d, %s", args, o.status, o.stderr)
	}
	info, err := os.Stat(file)
	if err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Fatalf("got %v, %v, want mode 0600", info, err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestTraceWritesMessagesWithHTTPAndWithoutSecrets(t *testing.T) {
	url := listenHTTP(t, newServer("demo"))
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, revision := range connect.Revisions() {
		t.Run(revision, func(t *testing.T) {
			overHTTP := traceOf(t, "call",
				strings.Replace(url, "//", "//user:secret@", 1)+"/sk-secret1234567?key=secret", "add", "a=1", "b=2",
				"--revision", revision, "--header", "X-Api-Key: secret", "--header", "Cookie: a=secret")
			onStdio := traceOf(t, "call", "add", "a=1", "b=2", "--revision", revision, "--env", serveEnv+"=secret",
				"--", self, "--ignored=secret")
			for where, text := range map[string]string{"HTTP": overHTTP, "stdio": onStdio} {
				if strings.Contains(text, "secret") {
					t.Errorf("%s: got a secret in\n%s", where, text)
				}
				for _, want := range []string{`"from":"client","message":{"jsonrpc":"2.0","id":`,
					`"method":"tools/call"`,
					`"arguments":{"a":1,"b":2}`, `"text":"3"`} {
					if where == "HTTP" {
						want = strings.Replace(want, `"client","message"`, `"client","http":{"method":"POST"`, 1)
						want, _, _ = strings.Cut(want, `:{"jsonrpc"`)
					}
					if !strings.Contains(text, want) {
						t.Errorf("%s: no %s in\n%s", where, want, text)
					}
				}
				if _, err := recording.Read(strings.NewReader(text)); err != nil {
					t.Errorf("%s: %v", where, err)
				}
			}
			if !strings.Contains(overHTTP, `"status":200`) || strings.Contains(onStdio, `"http"`) {
				t.Errorf("got HTTP\n%s\nand stdio\n%s\nwant the status of the first", overHTTP, onStdio)
			}
			if strings.Contains(overHTTP, `"Mcp-Session-Id"`) != strings.Contains(overHTTP, `"Mcp-Session-Id":["[hidden]"]`) {
				t.Errorf("got a session id in\n%s", overHTTP)
			}
		})
	}
}

func TestTraceDoesNotWriteTokens(t *testing.T) {
	server, _ := loggedIn(t)
	o := patchbay(t, "", "auth", "token", server, "--json")
	var token struct{ AccessToken string }
	if err := json.Unmarshal([]byte(o.stdout), &token); err != nil || len(token.AccessToken) < 10 {
		t.Fatalf("got %s, %v, want a token", o.stdout, err)
	}
	text := traceOf(t, "tools", server)
	if !strings.Contains(text, "tools/list") || strings.Contains(text, token.AccessToken) ||
		strings.Contains(text, "Bearer") {
		t.Errorf("got %s, want messages without the token", text)
	}
}

func TestTraceKeepsOtherFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a")
	writeFile(t, file, "precious\n")
	url := listenHTTP(t, newServer("demo"))
	o := patchbay(t, "", "tools", url, "--json", "--trace", file)
	if want := `"exit":2,"message":"open the recording: ` + file +
		` exists and is not a recording: choose another file"`; o.status !=
		exit.Usage || !strings.Contains(o.stdout, want) {
		t.Errorf("got %d, %s, want %s", o.status, o.stdout, want)
	}
	if text, err := os.ReadFile(file); string(text) != "precious\n" {
		t.Errorf("got %q, %v, want the file unchanged", text, err)
	}
}

func TestTraceAndVerboseWorkTogether(t *testing.T) {
	url := listenHTTP(t, newServer("demo"))
	file := filepath.Join(t.TempDir(), "a.jsonl")
	o := patchbay(t, "", "tools", url, "-v", "--trace", file)
	text, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(text), "tools/list") || !strings.Contains(o.stderr, "→ tools/list") {
		t.Errorf("got %s, %v and %s, want the messages in both", text, err, o.stderr)
	}
}
