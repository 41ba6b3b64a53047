package term

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/otelmcp"
)

// Values of --log-format.
const (
	LogText = "text"
	LogJSON = "json"
)

// UseLogFormat makes all messages on standard error records, if --log-format says so.
func (s *Streams) UseLogFormat() {
	if s.LogFormat.Value != LogJSON {
		return
	}
	s.Flags.Color.Value = "never"
	s.Err.Terminal = false // suppresses the status line
	opts := &slog.HandlerOptions{Level: s.level(), ReplaceAttr: cleanAttr}
	s.Err.Records = slog.NewJSONHandler(&screenLines{s.Err}, opts)
}

// A screenLines writes whole lines, which are clean.
type screenLines struct{ screen *Screen }

// Write writes lines.
func (l *screenLines) Write(b []byte) (int, error) {
	l.screen.Print(string(b))
	return len(b), nil
}

// cleanAttr makes an attribute clean: JSON escapes fewer characters than terminals act on.
func cleanAttr(_ []string, a slog.Attr) slog.Attr {
	switch a.Value.Kind() {
	case slog.KindString:
		a.Value = slog.StringValue(Clean(a.Value.String()))
	case slog.KindAny:
		if err, ok := a.Value.Any().(error); ok {
			a.Value = slog.StringValue(Clean(err.Error()))
		}
	}
	return a
}

// level is the least level of records.
func (s *Streams) level() slog.Level {
	if s.Flags.Verbose {
		return slog.LevelDebug
	}
	return slog.LevelWarn
}

// Logger returns a logger on standard error: warnings, such as that of an invalid tool, and with -v all.
func (s *Streams) Logger() *slog.Logger {
	if s.Err.Records != nil {
		return slog.New(otelmcp.LogHandler(s.Err.Records))
	}
	withoutTime := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	return slog.New(slog.NewTextHandler(s.Err, &slog.HandlerOptions{Level: s.level(), ReplaceAttr: withoutTime}))
}

// Event writes a line, or a record. The line contains the attributes as words.
func (s *Screen) Event(level slog.Level, text string, attrs ...slog.Attr) {
	if s.Records != nil {
		s.Record(level, text, attrs...)
		return
	}
	s.Printf("%s", text)
}

// Record writes a message as a record. Its first word determines whether it is a warning.
func (s *Screen) Record(level slog.Level, text string, attrs ...slog.Attr) {
	text = strings.TrimPrefix(strings.Join(strings.Fields(text), " "), "patchbay: ")
	if message, ok := strings.CutPrefix(text, "warning: "); ok {
		level, text = slog.LevelWarn, message
	}
	if text == "" {
		return
	}
	r := slog.NewRecord(time.Now(), level, text, 0)
	r.AddAttrs(attrs...)
	_ = s.Records.Handle(context.Background(), r) // as for text
}
