package cli

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// redrawInterval is the shortest time between two signs of progress: no eye is faster, and a server may be.
	redrawInterval = 50 * time.Millisecond
	// barWidth is the length of the bar, in characters.
	barWidth = 24
	// defaultWidth is the width of a terminal that does not tell.
	defaultWidth = 80
)

// A screen is standard error: words for people, with at most one line below them that is drawn anew while something
// goes on. It is safe for concurrent use.
type screen struct {
	w        io.Writer
	terminal bool       // w is one
	width    func() int // of the terminal, in characters

	mu    sync.Mutex // guards the fields below, and the order of what is written
	drawn bool       // the last line is a bar
	bar   string
	last  time.Time
}

// printf writes lines. What a server said in them is cleaned by the caller.
func (s *screen) printf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wipe()
	fmt.Fprintf(s.w, format+"\n", args...)
	s.redraw()
}

// prompt writes a line that the user goes on with.
func (s *screen) prompt(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wipe()
	s.bar = ""
	fmt.Fprint(s.w, text)
}

// Write takes lines of a server's own output, whole or in pieces.
func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wipe()
	fmt.Fprint(s.w, clean(string(p)))
	return len(p), nil
}

// progress shows how far a call is: as a bar on a terminal, elsewhere as lines.
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

// status shows what goes on, on a terminal.
func (s *screen) status(text string) {
	if !s.terminal {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bar = fit(text, s.width())
	s.redraw()
}

// done takes the bar away.
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

// amount tells a progress in words. Where there is no total a message says more than the number, which may just count messages.
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

// bar draws a progress within a width.
func bar(p mcp.ProgressUpdate, width int) string {
	text := amount(p)
	if p.Total != nil && *p.Total > 0 {
		filled := int(min(max(p.Progress / *p.Total, 0), 1) * barWidth)
		text = "[" + strings.Repeat("#", filled) + strings.Repeat(".", barWidth-filled) + "] " + text
	}
	return fit(text, width)
}

// fit cuts a line so that it leaves the last column free.
func fit(text string, width int) string {
	const least = 10 // a terminal that is narrower does not know its width
	if width < least {
		width = defaultWidth
	}
	return shorten(text, width-1)
}
