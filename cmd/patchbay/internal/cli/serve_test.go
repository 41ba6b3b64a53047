package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// An executable of `go run` is temporary, so that the configuration has the go run command.
func TestPrintedConfigurationOfGoRun(t *testing.T) {
	program := filepath.Join(t.TempDir(), "main.go")
	const text = `package main; import "os"; func main() { exe, _ := os.Executable(); print(exe) }`
	if err := os.WriteFile(program, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	exe, err := exec.Command("go", "run", program).CombinedOutput()
	if err != nil || !isTransient(string(exe)) {
		t.Errorf("%q, %v: does not pass for what go run has built", exe, err)
	}
	for exe, want := range map[string]bool{
		"/tmp/go-build1234567/b001/exe/patchbay":                                   true,
		"/home/ann/.cache/go-build/17/" + strings.Repeat("0a", 32) + "-d/patchbay": true,
		"/home/ann/go/bin/patchbay":                                                false,
		"/tmp/patchbay":                                                            false,
		"/home/ann/src/go-build/patchbay":                                          false,
		"/opt/17/0a-d/patchbay":                                                    false,
	} {
		if got := isTransient(exe); got != want {
			t.Errorf("isTransient(%q) = %v", exe, got)
		}
	}
	command, args := selfCommand() // of the test, which is built in the same way
	cmd := exec.Command(command, args...)
	cmd.Dir = t.TempDir() // clients start servers anywhere
	cmd.Stdin = strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":{"a":1,"b":2},"_meta":{` +
		`"io.modelcontextprotocol/protocolVersion":"` + newestRevision() +
		`","io.modelcontextprotocol/clientCapabilities":{}}}}` + "\n")
	out, err := cmd.Output()
	if err != nil || strings.Count(string(out), "\n") != 1 || !strings.Contains(string(out), `"text":"3"`) {
		t.Errorf("%s %q answers %q, %v", command, args, out, err)
	}
}
