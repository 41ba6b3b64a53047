package term

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

// A Screen is standard error, with at most a status line at its end. Safe for concurrent use.
type Screen struct {
	W        io.Writer
	Terminal bool         // w is a terminal
	Width    func() int   // in columns
	Records  slog.Handler // of messages in JSON; nil for text

	mu    sync.Mutex // guards the fields below and the order of writes
	Drawn bool       // the status line is shown
	bar   string
	last  time.Time
}

// Printf writes a line. Text of a server in it must be clean.
func (s *Screen) Printf(format string, args ...any) {
	if s.Records != nil {
		s.Record(slog.LevelInfo, fmt.Sprintf(format, args...))
		return
	}
	s.Print(fmt.Sprintf(format+"\n", args...))
}

// Prompt writes text without a line break.
func (s *Screen) Prompt(text string) {
	s.Done()
	s.Print(text)
}

// Write writes a server's stderr or log text.
func (s *Screen) Write(p []byte) (int, error) {
	if s.Records != nil {
		s.Record(slog.LevelInfo, string(p))
		return len(p), nil
	}
	s.Print(Clean(string(p)))
	return len(p), nil
}

// Print writes text above the status line, which is not shown again below an incomplete line.
func (s *Screen) Print(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wipe()
	fmt.Fprint(s.W, text)
	if strings.HasSuffix(text, "\n") {
		s.redraw()
	}
}

// Progress shows a progress notification: as a bar on a terminal, else as a line.
func (s *Screen) Progress(p mcp.ProgressUpdate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	finished := p.Total != nil && p.Progress >= *p.Total
	now := time.Now()
	if now.Sub(s.last) < redrawInterval && !finished {
		return
	}
	s.last = now
	if !s.Terminal {
		fmt.Fprintf(s.W, "progress: %s\n", amount(p))
		return
	}
	s.bar = bar(p, s.Width())
	s.redraw()
}

// Status sets the status line, on a terminal.
func (s *Screen) Status(text string) {
	if !s.Terminal {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bar = fit(text, s.Width())
	s.redraw()
}

// Done removes the status line.
func (s *Screen) Done() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wipe()
	s.bar = ""
}

func (s *Screen) wipe() {
	if s.Drawn {
		fmt.Fprint(s.W, "\r\x1b[K")
		s.Drawn = false
	}
}

func (s *Screen) redraw() {
	if s.bar != "" {
		fmt.Fprint(s.W, "\r"+s.bar+"\x1b[K")
		s.Drawn = true
	}
}

// amount formats a progress. Without a total a message replaces the number.
func amount(p mcp.ProgressUpdate) string {
	message := Shorten(CleanLine(p.Message), 200)
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

// Rows returns the maximum number of terminal rows of text. It counts bytes: a safe overestimate.
func (s *Screen) Rows(text string) (n int) {
	width := RealWidth(s.Width())
	for line := range strings.SplitSeq(text, "\n") {
		n += 1 + max(len(line)-1, 0)/width
	}
	return n
}

// RealWidth returns the width of a terminal, or the default if it is unknown.
func RealWidth(width int) int {
	const minWidth = 10 // less is not a real width
	if width < minWidth {
		return defaultWidth
	}
	return width
}

// fit cuts a line so that the last column stays free.
func fit(text string, width int) string {
	columns := RealWidth(width) - 1
	if TextWidth(text) <= columns {
		return text
	}
	head, _ := cutWidth(text, columns-1)
	return head + "…"
}
