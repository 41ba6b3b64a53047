package main

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// A list of a gateway that lacks a failed server has an exit code of its own, and the last line of the server's
// standard error is printed, also if all servers have failed.
func TestListShowsWhyServersHaveFailed(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("needs sh")
	}
	const bad = `"bad": {"command": "sh", "args": ["-c", "echo no DATABASE_URL >&2; exit 3"]}`
	good, err := json.Marshal(map[string]any{"command": built, "args": []string{"serve", "--stdio"}})
	if err != nil {
		t.Fatal(err)
	}
	for servers, want := range map[string]int{bad: 1, bad + `, "good": ` + string(good): 10} {
		file := filepath.Join(t.TempDir(), "servers.json")
		if err := os.WriteFile(file, []byte(`{"mcpServers": {`+servers+`}}`), 0o600); err != nil {
			t.Fatal(err)
		}
		var stderr strings.Builder
		cmd := exec.Command(built, "tools", "--", built, "gateway", "--stdio", "--own", "--config", file)
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != want || !strings.Contains(stderr.String(), "no DATABASE_URL") {
			t.Errorf("got %v, %q, standard error %q, want status %d and the line of the server", err, out, &stderr, want)
		}
	}
}

// A client that gives up while a server starts leaves the definitions of the server recorded.
func TestDefinitionsAreRecordedAfterATimeout(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("needs sh")
	}
	file := filepath.Join(t.TempDir(), "servers.json")
	slow, err := json.Marshal(map[string]any{"command": "sh",
		"args": []string{"-c", `sleep 2; exec "$0" serve --stdio`, built}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(`{"mcpServers": {"slowly": `+string(slow)+`}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(built, "--timeout", "500ms", "tools", "--env", "PATCHBAY_STATE_DIR="+os.Getenv("PATCHBAY_STATE_DIR"),
		"--", built, "gateway", "--stdio", "--own", "--config", file).CombinedOutput()
	if err == nil {
		t.Errorf("got %s, want a timeout", out)
	}
	pins, err := exec.Command(built, "--json", "gateway", "pins", "--config", file).Output()
	if err != nil || !strings.Contains(string(pins), `"name":"add"`) {
		t.Errorf("got %s, %v, want the tools of the server", pins, err)
	}
}
