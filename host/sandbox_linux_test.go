package host_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/sandbox/bubblewrap"
	"github.com/patchbay-mcp/patchbay/host/policy"
)

// sandboxed returns the settings of a server whose sandbox contains the test binary.
func sandboxed(t *testing.T, members string) string {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return `{"servers": {"s": {"sandbox": {"read": ["` + filepath.Dir(binary) + `"]` + members + `}}}}`
}

// A server in a sandbox serves, sees its own processes only, and ends with the host. Its limits apply in the sandbox.
func TestServerInASandbox(t *testing.T) {
	bubblewrap.Need(t)
	entry, _ := processEntry(t, "server")
	delete(entry["env"].(map[string]string), startsVariable) // the file is outside
	h := openFile(t, map[string]any{"s": entry}, sandboxed(t, `, "write": ["`+t.TempDir()+`"], "openFiles": 77`),
		&host.Options{})
	c := client(t, h, &policy.Caller{})
	if f, text := failureOfProcess(t, c, "s__files"); f != nil || text != "77" {
		t.Errorf("got %+v, %q, want 77 files", f, text)
	}
	if f, text := failureOfProcess(t, c, "s__pid"); f != nil || len(text) > 2 {
		t.Errorf("got %+v, %q, want a small process id, of its own namespace", f, text)
	}
	pid := fmt.Sprint(upstream(t, h, "s").Status().Instances[0].PID)
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if isRunning(pid) {
		t.Errorf("bwrap %v runs after Close", pid)
	}
}

// A sandbox that cannot be enforced, or that did not start the command, is an error of the configuration and not of
// the server.
func TestSandboxIsRefused(t *testing.T) {
	bubblewrap.Need(t)
	entry, _ := processEntry(t, "server")
	delete(entry["env"].(map[string]string), startsVariable)
	notExecutable := filepath.Join(t.TempDir(), "server")
	if err := os.WriteFile(notExecutable, []byte("#!/no/interpreter\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	outside := t.TempDir()
	for _, e := range []struct {
		what, settings, want string
		entry                map[string]any
	}{
		{"missing folder", sandboxed(t, `, "write": ["/no/folder"]`), `the folder "/no/folder" cannot be used`, entry},
		{"command outside", `{"servers": {"s": {"sandbox": {}}}}`, `is not in the sandbox: add its folder to "read"`, entry},
		{"directory outside", sandboxed(t, ""), `cwd "` + outside, map[string]any{"command": entry["command"],
			"env": entry["env"], "cwd": outside}},
		{"no interpreter", `{"servers": {"s": {"sandbox": {"read": ["` + filepath.Dir(notExecutable) + `"]}}}}`,
			"bwrap did not start the command: execvp", map[string]any{"command": notExecutable}},
	} {
		h := openFile(t, map[string]any{"s": e.entry}, e.settings, &host.Options{})
		err := h.Start(t.Context(), "s")
		f, ok := errors.AsType[*hosterr.Error](err)
		if !ok || f.Code != hosterr.CodeConfigError || !strings.Contains(f.Err.Error(), "sandbox: ") ||
			!strings.Contains(f.Err.Error(), e.want) {
			t.Errorf("%s: got %v, want %q", e.what, err, e.want)
		}
		_ = h.Close()
	}
}
