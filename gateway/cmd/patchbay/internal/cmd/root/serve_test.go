package root

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/connect"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/userdir"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// The executable of go run is temporary.
func TestConfigurationPrintedByGoRunHasTheGoRunCommand(t *testing.T) {
	program := filepath.Join(t.TempDir(), "main.go")
	const text = `package main; import "os"; func main() { exe, _ := os.Executable(); print(exe) }`
	writeFile(t, program, text)
	exe, err := exec.Command("go", "run", program).CombinedOutput()
	if err != nil || !userdir.IsTransient(string(exe)) {
		t.Errorf("isTransient(%q) = false, %v, want true for an executable of go run", exe, err)
	}
	for exe, want := range map[string]bool{
		"/tmp/go-build1234567/b001/exe/patchbay":                                   true,
		"/home/ann/.cache/go-build/17/" + strings.Repeat("0a", 32) + "-d/patchbay": true,
		"/home/ann/go/bin/patchbay":                                                false,
		"/tmp/patchbay":                                                            false,
		"/home/ann/src/go-build/patchbay":                                          false,
		"/opt/17/0a-d/patchbay":                                                    false,
	} {
		if got := userdir.IsTransient(exe); got != want {
			t.Errorf("isTransient(%q) = %v, want %v", exe, got, want)
		}
	}
	command, args := userdir.SelfCommand("serve", "--stdio") // of the test, which is built in the same way
	if self, err := os.Executable(); err == nil && command == self {
		t.Skip("the test binary was not built by go test: it would start the tests and not the command")
	}
	cmd := exec.Command(command, args...)
	cmd.Dir = t.TempDir() // clients start servers anywhere
	cmd.Stdin = strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add",` +
		`"arguments":{"a":1,"b":2},"_meta":{"io.modelcontextprotocol/protocolVersion":"` + connect.NewestRevision() +
		`","io.modelcontextprotocol/clientCapabilities":{}}}}` + "\n")
	out, err := cmd.Output()
	if err != nil || strings.Count(string(out), "\n") != 1 || !strings.Contains(string(out), `"text":"3"`) {
		t.Errorf("%s %q: got %q, %v, want one line with 3", command, args, out, err)
	}
}

// A line for each request over HTTP shows its outcome and no arguments, unless --quiet is set.
func TestServePrintsALineForEachRequest(t *testing.T) {
	mcptest.NoLeaks(t)
	use := func(s *observedServer, revision string) string {
		c, err := mcp.Connect(t.Context(), mcphttp.NewTransport(s.url+connect.Endpoint, nil), &mcp.ClientOptions{Revision: revision})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.CallTool(t.Context(), "add", map[string]any{"a": 1, "b": 727272}); err != nil {
			t.Error(err)
		}
		if res, err := c.CallTool(t.Context(), "add", map[string]any{"a": "secret-text"}); err == nil && !res.IsError {
			t.Errorf("invalid arguments: %+v", res)
		}
		if _, err := c.CallTool(t.Context(), "forged\n\x1b[31mline", nil); err == nil {
			t.Error("unknown tool: no error")
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		return s.stop(t).stderr
	}
	for _, revision := range connect.Revisions() {
		text := use(startServe(t), revision)
		for _, want := range []string{`tools/call add: ok, \d[\d.]*[µm]?s`, `tools/call add: (tool error|error -\d+), `,
			`tools/call forged.*line: error -32602, `} {
			if !regexp.MustCompile(`(?m)^` + want).MatchString(text) {
				t.Errorf("%s: no line %s: %q", revision, want, text)
			}
		}
		for _, never := range []string{"727272", "secret-text", "\x1b", "\nline"} {
			if strings.Contains(text, never) {
				t.Errorf("%s: a line has %q: %q", revision, never, text)
			}
		}
		if text := use(startServe(t, "--quiet"), revision); strings.Contains(text, "tools/call") {
			t.Errorf("%s: --quiet: %q", revision, text)
		}
	}
}
