// Package logs is the screen of the web console with log lines: the standard error of servers,
// their log messages, and the log of Patchbay.
package logs

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/capture"
)

// Sources of entries.
const (
	Stderr   = "stderr"   // a line of the standard error of a server
	Stdout   = "stdout"   // a line of the standard output of a server that is no message
	Server   = "server"   // a log message of a server
	Patchbay = "patchbay" // a record of the log of this program
)

const (
	// maxEntries and maxBytes bound the entries that a book holds: some hours of a busy server.
	maxEntries, maxBytes = 5000, 8 << 20
	// maxText bounds the text of an entry, in bytes, because a person reads no longer text in a
	// list.
	maxText = 8 << 10
	// entryCost is added to the size of each text, so that empty entries count as well.
	entryCost = 160
)

// An Entry is a line of a log.
type Entry struct {
	Number uint64 // from 1
	Time   time.Time
	Source string
	Server string // "" for a line that concerns no server
	Level  string // "debug", "info", "warning" or "error"; "" for an unknown level
	Text   string
}

// A Book holds the last entries. The zero Book is ready to use. It is safe for concurrent use.
type Book struct {
	mu      sync.Mutex // guards the fields below
	last    uint64
	entries []Entry
	size    int
	mask    func(text string) string
	changed func()
}

// SetMask sets the function that replaces the secrets in the texts of this program.
func (r *Book) SetMask(mask func(text string) string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mask = mask
}

// Notify makes the book call changed after each new entry.
func (r *Book) Notify(changed func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changed = changed
}

// Add adds an entry. It sets Number, and Time unless it is set.
func (r *Book) Add(e Entry) {
	if len(e.Text) > maxText {
		e.Text = e.Text[:maxText] + "…"
	}
	e.Text, e.Level = strings.ToValidUTF8(strings.TrimRight(e.Text, "\r\n"), "\uFFFD"), levelOf(e.Level)
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	r.mu.Lock()
	r.last++
	e.Number = r.last
	r.entries = append(r.entries, e)
	r.size += len(e.Text) + entryCost
	drop := 0
	for len(r.entries)-drop > maxEntries || r.size > maxBytes {
		r.size -= len(r.entries[drop].Text) + entryCost
		drop++
	}
	clear(r.entries[:drop])
	r.entries = r.entries[drop:] // append copies the rest in time
	changed := r.changed
	r.mu.Unlock()
	if changed != nil {
		changed()
	}
}

// Line adds a line that a server printed, or a log message of a server.
func (r *Book) Line(l capture.Line) {
	source := map[capture.Kind]string{capture.Stderr: Stderr, capture.Stdout: Stdout, capture.Message: Server}[l.Kind]
	r.Add(Entry{Source: source, Server: l.Server, Level: l.Level, Text: l.Text})
}

// levels are the levels, the lowest first.
var levels = []string{"debug", "info", "warning", "error"}

// levelOf returns the level for a level of the protocol or of package slog. Spec:
// server/utilities/logging.
func levelOf(name string) string {
	switch strings.ToLower(name) {
	case "debug":
		return "debug"
	case "info", "notice":
		return "info"
	case "warning", "warn":
		return "warning"
	case "error", "critical", "alert", "emergency":
		return "error"
	}
	return ""
}

// A filter selects entries. Empty fields select all.
type filter struct {
	Server, Source string
	Level          string // the lowest level; entries without a level count as info
	Text           string // a part of the text, in any case
	opens          func(server string) bool
}

func (f *filter) matches(e *Entry) bool {
	level := slices.Index(levels, e.Level)
	if level < 0 {
		level = slices.Index(levels, "info")
	}
	return (e.Server == "" || f.opens(e.Server)) && (f.Server == "" || e.Server == f.Server) &&
		(f.Source == "" || e.Source == f.Source) &&
		level >= slices.Index(levels, f.Level) &&
		(f.Text == "" || strings.Contains(strings.ToLower(e.Text), strings.ToLower(f.Text)))
}

// find returns the last n entries that match, the oldest first, and how many match.
func (r *Book) find(f *filter, n int) (found []Entry, matches int) {
	r.mu.Lock()
	all := slices.Clone(r.entries)
	r.mu.Unlock()
	for i := range slices.Backward(all) {
		if f.matches(&all[i]) {
			if matches++; matches <= n {
				found = append(found, all[i])
			}
		}
	}
	slices.Reverse(found)
	return found, matches
}

// Handler returns a handler that adds the records from level info to the book, and passes the
// records on to next.
func (r *Book) Handler(next slog.Handler) slog.Handler { return &handler{book: r, next: next} }

// A handler adds records to a book.
type handler struct {
	book   *Book
	next   slog.Handler
	text   string // the attributes of WithAttrs
	group  string // the prefix of names
	server string
}

func (h *handler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo || h.next.Enabled(ctx, level)
}

func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelInfo {
		text := strings.Builder{}
		text.WriteString(r.Message)
		text.WriteString(h.text)
		server := h.server
		r.Attrs(func(a slog.Attr) bool {
			server = h.attr(&text, server, a)
			return text.Len() < maxText
		})
		h.book.Add(Entry{Time: r.Time, Source: Patchbay, Server: server, Level: r.Level.String(),
			Text: h.masked(text.String())})
	}
	if !h.next.Enabled(ctx, r.Level) {
		return nil
	}
	return h.next.Handle(ctx, r)
}

// attr writes an attribute, and returns the server that it names.
func (h *handler) attr(text *strings.Builder, server string, a slog.Attr) string {
	value := a.Value.Resolve().String()
	if a.Key == "server" && h.group == "" {
		return value
	}
	text.WriteString(" " + h.group + a.Key + "=" + value)
	return server
}

func (h *handler) masked(text string) string {
	h.book.mu.Lock()
	mask := h.book.mask
	h.book.mu.Unlock()
	if mask == nil {
		return text
	}
	return mask(text)
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := *h
	c.next = h.next.WithAttrs(attrs)
	text := strings.Builder{}
	for _, a := range attrs {
		c.server = h.attr(&text, c.server, a)
	}
	c.text += text.String()
	return &c
}

func (h *handler) WithGroup(name string) slog.Handler {
	c := *h
	c.next, c.group = h.next.WithGroup(name), h.group+name+"."
	return &c
}
