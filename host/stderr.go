package host

import (
	"bytes"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/patchbay-mcp/patchbay/internal/visible"
)

const (
	// maxStderr bounds the lines of standard error that are kept of one server, in bytes. It is
	// enough for the reason of a failure.
	maxStderr = 256 << 10
	// stderrLineCost is what a line counts in addition to its text, so that a server cannot fill the
	// memory with empty lines.
	stderrLineCost = 64
	// maxStderrLine bounds one line: several fit.
	maxStderrLine = 16 << 10
)

// A StderrLine is a line that a process of a server has written to its standard error.
type StderrLine struct {
	// Number is the number of the line among all of the server, from 1.
	Number uint64
	Time   time.Time
	// Instance is the id of the instance that has written it; see [InstanceStatus].
	Instance string
	// Text is the line, with control and other invisible characters in the form of Go strings, such
	// as \x1b: it comes from the server and must not be trusted. Lines of more than 16 KiB are cut.
	Text string
}

// A stderrRing keeps the last lines.
type stderrRing struct {
	mu    sync.Mutex // guards the fields below
	lines []StderrLine
	size  int
	last  uint64 // number of the last line
}

func (r *stderrRing) add(l StderrLine) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	l.Number = r.last
	r.lines = append(r.lines, l)
	r.size += len(l.Text) + stderrLineCost
	for r.size > maxStderr {
		r.size -= len(r.lines[0].Text) + stderrLineCost
		r.lines[0] = StderrLine{}
		r.lines = r.lines[1:]
	}
}

func (r *stderrRing) all() []StderrLine {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]StderrLine(nil), r.lines...)
}

// A stderrWriter adds the lines of one instance to the ring of its server.
type stderrWriter struct {
	ring     *stderrRing
	instance string
}

// Write adds complete lines: that is how a transport writes.
func (w *stderrWriter) Write(p []byte) (int, error) {
	for line := range bytes.Lines(p) {
		line = bytes.TrimRight(line, "\r\n")
		text := escape(line[:min(len(line), maxStderrLine)])
		w.ring.add(StderrLine{Time: time.Now(), Instance: w.instance, Text: text})
	}
	return len(p), nil
}

// escape returns a text whose characters are all visible.
func escape(text []byte) string {
	b := make([]byte, 0, len(text))
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		switch {
		case r == '\t' || r == '\\' || r == '"',
			strconv.IsPrint(r) && !visible.Hidden(r) && (r != utf8.RuneError || n > 1):
			b = append(b, text[:n]...)
		case n == 1:
			b = append(b, `\x`...)
			b = append(b, "0123456789abcdef"[text[0]>>4], "0123456789abcdef"[text[0]&15])
		default:
			quoted := strconv.AppendQuoteRuneToASCII(nil, r)
			b = append(b, quoted[1:len(quoted)-1]...)
		}
		text = text[n:]
	}
	return string(b)
}
