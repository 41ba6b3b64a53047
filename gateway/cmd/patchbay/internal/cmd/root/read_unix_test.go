//go:build unix

package root

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
)

// A file may be a pipe. While no program writes to it, a signal ends the command.
func TestReadingAPipeEndsWithTheCommand(t *testing.T) {
	url := listenHTTP(t, newServer("demo"))
	dir := t.TempDir()
	pipe, written := filepath.Join(dir, "pipe"), filepath.Join(dir, "written")
	for _, name := range []string{pipe, written} {
		if err := syscall.Mkfifo(name, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{
		{"call", url, "add", "@" + pipe},
		{"call", url, "add", "a=@" + pipe},
		{"call", url, "add", "a:=@" + pipe},
		{"call", url, "add", "a=1", "b=2", "--answers", pipe},
		{"call", "--cacert", pipe, url, "add", "a=1", "b=2"},
		{"rpc", url, "tools/list", "@" + pipe},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		var stderr strings.Builder
		if status := Run(ctx, args, strings.NewReader(""), io.Discard, &stderr); status != exit.Interrupted {
			t.Errorf("%q: exit code %d, %s, want %d", args, status, stderr.String(), exit.Interrupted)
		}
		cancel()
		writer, err := os.OpenFile(pipe, os.O_RDWR, 0) // ends an open that still waits, and waits for none
		if err != nil {
			t.Fatal(err)
		}
		writer.Close()
	}
	go func() {
		if err := os.WriteFile(written, []byte(`{"a":1,"b":2}`), 0o600); err != nil {
			t.Error(err)
		}
	}()
	if o := patchbay(t, "", "call", url, "add", "@"+written); o.status != exit.OK || !strings.Contains(o.stdout, "3") {
		t.Errorf("a pipe with a writer: exit code %d, %s%s", o.status, o.stdout, o.stderr)
	}
}
