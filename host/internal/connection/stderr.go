package connection

import (
	"bytes"
	"io"
	"slices"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/patchbay-mcp/patchbay/host/status"
	"github.com/patchbay-mcp/patchbay/visible"
)

const (
	// maxStderr limits the lines of standard error that a Stderr contains, in bytes. It is enough for
	// the reason of a failure.
	maxStderr = 256 << 10
	// stderrLineCost is added to the length of each line, so that a server cannot fill the memory with
	// empty lines.
	stderrLineCost = 64
	// maxStderrLine limits the length of a line, because a Stderr must hold several lines.
	maxStderrLine = 16 << 10
)

// A Stderr contains the last lines that the processes of a server wrote to their standard error.
// The zero value is empty. It is safe for concurrent use.
type Stderr struct {
	mu    sync.Mutex // guards the fields below
	lines []status.StderrLine
	size  int
	last  uint64 // number of the last line
}

func (r *Stderr) add(l status.StderrLine) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	l.Number = r.last
	r.lines = append(r.lines, l)
	r.size += len(l.Text) + stderrLineCost
	for r.size > maxStderr {
		r.size -= len(r.lines[0].Text) + stderrLineCost
		r.lines[0] = status.StderrLine{}
		r.lines = r.lines[1:]
	}
}

// Lines returns the lines, the oldest first.
func (r *Stderr) Lines() []status.StderrLine {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.lines)
}

// A stderrWriter adds the lines of a process, and passes them on.
type stderrWriter struct {
	all    *Stderr
	connID string
	next   io.Writer // may be nil
}

// Write adds the lines of p. A transport writes complete lines.
func (w *stderrWriter) Write(p []byte) (int, error) {
	for line := range bytes.Lines(p) {
		text := escape(bytes.TrimRight(line[:min(len(line), maxStderrLine)], "\r\n"))
		w.all.add(status.StderrLine{Time: time.Now(), Instance: w.connID, Text: text})
	}
	if w.next != nil {
		return w.next.Write(p)
	}
	return len(p), nil
}

// escape returns the text with its invisible characters in the form of Go strings.
func escape(text []byte) string {
	b := make([]byte, 0, len(text))
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		switch {
		case r == '\t' || r == '\\' || r == '"',
			strconv.IsPrint(r) && !visible.Hidden(r) && (r != utf8.RuneError || n > 1):
			b = append(b, text[:n]...)
		case n == 1:
			b = append(append(b, `\x`...), "0123456789abcdef"[text[0]>>4], "0123456789abcdef"[text[0]&15])
		default:
			b = append(b, bytes.Trim(strconv.AppendQuoteRuneToASCII(nil, r), "'")...)
		}
		text = text[n:]
	}
	return string(b)
}
