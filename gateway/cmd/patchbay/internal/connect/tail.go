package connect

import (
	"slices"
	"strings"
	"sync"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
)

const (
	// maxTailLines bounds the kept lines of a command's standard error.
	maxTailLines = 10
	// maxTailLine limits a line, in bytes.
	maxTailLine = 400
)

// A Tail holds the last lines of the text that is written to it. It is safe for concurrent use.
type Tail struct {
	mu    sync.Mutex // guards the field below
	lines []string
}

// Write implements io.Writer for whole lines.
func (t *Tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for line := range strings.SplitSeq(strings.TrimRight(string(b), "\r\n"), "\n") {
		if line = strings.TrimRight(line, "\r "); line == "" {
			continue
		}
		if t.lines = append(t.lines, line[:min(len(line), maxTailLine)]); len(t.lines) > maxTailLines {
			t.lines = slices.Clone(t.lines[1:])
		}
	}
	return len(b), nil
}

// String returns the lines.
func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.lines, "\n")
}

// ShowTail shows the last lines of the standard error of the command that is the server.
func (d *Dialer) ShowTail() {
	if text := d.CommandStderr.String(); text != "" {
		d.IO.Err.Printf("standard error of the command:\n%s", term.Indent(term.Clean(text), "  "))
	}
}
