//go:build unix

package root

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
)

// A link to a recording is served, a pipe is not opened.
func TestMockRefusesWhatIsNotARegularFile(t *testing.T) {
	dir := t.TempDir()
	pipe, toPipe, toFile := filepath.Join(dir, "pipe"), filepath.Join(dir, "to-pipe"), filepath.Join(dir, "to-file")
	file := filepath.Join(dir, "calls.jsonl")
	if o := patchbay(t, "", "--trace", file, "ping", listenHTTP(t, newServer("demo"))); o.status != exit.OK {
		t.Fatalf("got %d, %s", o.status, o.stderr)
	}
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{toPipe: pipe, toFile: file} {
		if err := os.Symlink(to, link); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{pipe, toPipe, dir, os.DevNull} {
		o := patchbay(t, "", "mock", name)
		if o.status != exit.Usage || !strings.Contains(o.stderr, name+" is not a regular file") {
			t.Errorf("%s: got %d, %s, want %d", name, o.status, o.stderr, exit.Usage)
		}
	}
	for _, name := range []string{file, toFile} {
		if o := patchbay(t, "", "mock", name); o.status != exit.OK {
			t.Errorf("%s: got %d, %s, want %d", name, o.status, o.stderr, exit.OK)
		}
	}
}
