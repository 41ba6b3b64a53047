package conformance_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// coldServers writes a configuration with three reference servers whose start takes 20 seconds, like the first
// start with npx on a busy machine. The settings belong to the server memory.
func coldServers(t *testing.T, node, settings string) (file string) {
	t.Helper()
	dir := t.TempDir()
	servers := map[string]any{}
	for name, args := range map[string][]string{
		"everything": {everything, "stdio"}, "memory": {memory}, "thinking": {thinking},
	} {
		args[0] = absolute(args[0])
		slow := filepath.Join(dir, name+".sh")
		script := fmt.Sprintf("#!/bin/sh\nsleep 20\nexec '%s' \"$@\"\n", node)
		if err := os.WriteFile(slow, []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
		servers[name] = map[string]any{"command": slow, "args": args}
	}
	file = filepath.Join(dir, "mcp.json")
	text := must(json.Marshal(map[string]any{"mcpServers": servers,
		"patchbay": map[string]any{"servers": map[string]any{"memory": json.RawMessage(settings)}}}))(t)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// runTools runs `patchbay tools` and returns its exit code and output.
func runTools(t *testing.T, patchbay string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs strings.Builder
	cmd := exec.CommandContext(within(t, 3*time.Minute), patchbay, append([]string{"tools"}, args...)...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// The first list of servers that start slowly is complete, or names the missing servers, on each way to reach
// the servers.
func TestListsAreCompleteAfterAColdStart(t *testing.T) {
	node, patchbay := needNode(t), build(t, "..", "./gateway/cmd/patchbay")
	check := func(t *testing.T, args ...string) {
		t.Helper()
		code, stdout, stderr := runTools(t, patchbay, args...)
		for _, tool := range []string{"everything__echo", "memory__create_entities", "thinking__sequentialthinking"} {
			if !strings.Contains(stdout, tool) {
				t.Errorf("the list has no %s: exit code %d\n%s%s", tool, code, stdout, stderr)
			}
		}
		if code != 0 {
			t.Errorf("exit code %d: %s", code, stderr)
		}
	}
	t.Run("gateway over stdio", func(t *testing.T) {
		t.Parallel()
		check(t, "--", patchbay, "gateway", "--stdio", "--config", coldServers(t, node, "{}"))
	})
	t.Run("host", func(t *testing.T) {
		t.Parallel()
		check(t, "@host", "--config", coldServers(t, node, "{}"))
	})
	t.Run("new caller of a gateway", func(t *testing.T) {
		t.Parallel()
		url := start(t, patchbay, "gateway", "--config", coldServers(t, node, "{}"), "--addr", "127.0.0.1:0",
			"--insecure-no-auth")
		if code, _, stderr := runTools(t, patchbay, url, "--timeout", "2s"); code == 0 || stderr == "" {
			t.Errorf("a caller that does not wait: exit code %d, %q", code, stderr)
		}
		check(t, url)
	})
	t.Run("server that does not start in time", func(t *testing.T) {
		t.Parallel()
		file := coldServers(t, node, `{"startTimeout": "1s"}`)
		for _, args := range [][]string{
			{"--", patchbay, "gateway", "--stdio", "--config", file}, {"@host", "--config", file},
		} {
			code, stdout, stderr := runTools(t, patchbay, args...)
			const incomplete = 10
			if code != incomplete || !strings.Contains(stdout, "everything__echo") ||
				!strings.Contains(stderr, "the list is not complete: 1 of 3 servers") || !strings.Contains(stderr, "memory") {
				t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
			}
		}
	})
}
