package cli

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// redrawInterval is the shortest time between two updates of the progress.
	redrawInterval = 50 * time.Millisecond
	// barWidth is the length of the progress bar, in characters.
	barWidth = 24
	// defaultWidth is the width of a terminal whose width is unknown.
	defaultWidth = 80
)

// A screen is standard error, with at most one status line at the end. It is safe for concurrent
// use.
type screen struct {
	w        io.Writer
	terminal bool         // w is a terminal
	width    func() int   // in columns
	records  slog.Handler // of messages in JSON; nil for text

	mu    sync.Mutex // guards the fields below and the order of writes
	drawn bool       // the status line is shown
	bar   string
	last  time.Time
}

// printf writes a line. Text of a server in it must be clean.
func (s *screen) printf(format string, args ...any) {
	if s.records != nil {
		s.record(slog.LevelInfo, fmt.Sprintf(format, args...))
		return
	}
	s.print(fmt.Sprintf(format+"\n", args...))
}

// prompt writes text without a line break.
func (s *screen) prompt(text string) {
	s.done()
	s.print(text)
}

// Write writes a server's stderr or log text.
func (s *screen) Write(p []byte) (int, error) {
	if s.records != nil {
		s.record(slog.LevelInfo, string(p))
		return len(p), nil
	}
	s.print(clean(string(p)))
	return len(p), nil
}

// print writes text above the status line, which is not shown again below an incomplete line.
func (s *screen) print(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wipe()
	fmt.Fprint(s.w, text)
	if strings.HasSuffix(text, "\n") {
		s.redraw()
	}
}

// progress shows a progress notification: as a bar on a terminal, else as a line.
func (s *screen) progress(p mcp.ProgressUpdate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	finished := p.Total != nil && p.Progress >= *p.Total
	now := time.Now()
	if now.Sub(s.last) < redrawInterval && !finished {
		return
	}
	s.last = now
	if !s.terminal {
		fmt.Fprintf(s.w, "progress: %s\n", amount(p))
		return
	}
	s.bar = bar(p, s.width())
	s.redraw()
}

// status sets the status line, on a terminal.
func (s *screen) status(text string) {
	if !s.terminal {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bar = fit(text, s.width())
	s.redraw()
}

// done removes the status line.
func (s *screen) done() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wipe()
	s.bar = ""
}

func (s *screen) wipe() {
	if s.drawn {
		fmt.Fprint(s.w, "\r\x1b[K")
		s.drawn = false
	}
}

func (s *screen) redraw() {
	if s.bar != "" {
		fmt.Fprint(s.w, "\r"+s.bar+"\x1b[K")
		s.drawn = true
	}
}

// amount formats a progress. Without a total a message replaces the number.
func amount(p mcp.ProgressUpdate) string {
	message := shorten(cleanLine(p.Message), 200)
	if p.Total == nil && message != "" {
		return message
	}
	text := fmt.Sprintf("%.6g", p.Progress)
	if p.Total != nil {
		text += fmt.Sprintf("/%.6g", *p.Total)
	}
	return strings.TrimSpace(text + " " + message)
}

func bar(p mcp.ProgressUpdate, width int) string {
	text := amount(p)
	if p.Total != nil && *p.Total > 0 {
		filled := int(min(max(p.Progress / *p.Total, 0), 1) * barWidth)
		text = "[" + strings.Repeat("#", filled) + strings.Repeat(".", barWidth-filled) + "] " + text
	}
	return fit(text, width)
}

// rows returns the maximum number of rows that text takes on the terminal. It counts bytes, since a
// wide character has several.
func (s *screen) rows(text string) (n int) {
	width := realWidth(s.width())
	for line := range strings.SplitSeq(text, "\n") {
		n += 1 + max(len(line)-1, 0)/width
	}
	return n
}

// realWidth returns the width of a terminal, or the default if it is unknown.
func realWidth(width int) int {
	const minWidth = 10 // less is not a real width
	if width < minWidth {
		return defaultWidth
	}
	return width
}

// fit cuts a line so that the last column stays free.
func fit(text string, width int) string {
	columns := realWidth(width) - 1
	if textWidth(text) <= columns {
		return text
	}
	head, _ := cutWidth(text, columns-1)
	return head + "…"
}
