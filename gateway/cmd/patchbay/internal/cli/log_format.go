package cli

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/otelmcp"
)

// Values of --log-format.
const (
	logText = "text"
	logJSON = "json"
)

func addLogFormat(f *factory, cmd *cobra.Command) {
	f.IO.logFormat = choiceFlag{logText, []string{logText, logJSON}}
	cmd.Flags().Var(&f.IO.logFormat, "log-format", "format of messages")
	complete := func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		return matching(f.IO.logFormat.allowed, typed), cobra.ShellCompDirectiveNoFileComp
	}
	_ = cmd.RegisterFlagCompletionFunc("log-format", complete) // the flag exists
}

// useLogFormat makes all messages on standard error records, if --log-format says so.
func (s *streams) useLogFormat() {
	if s.logFormat.value != logJSON {
		return
	}
	s.Flags.color.value = "never"
	s.Err.terminal = false // has no status line
	opts := &slog.HandlerOptions{Level: s.level(), ReplaceAttr: cleanAttr}
	s.Err.records = slog.NewJSONHandler(&screenLines{s.Err}, opts)
}

// A screenLines writes whole lines, which are clean.
type screenLines struct{ screen *screen }

// Write writes lines.
func (l *screenLines) Write(b []byte) (int, error) {
	l.screen.print(string(b))
	return len(b), nil
}

// cleanAttr makes an attribute clean: JSON escapes fewer characters than terminals act on.
func cleanAttr(_ []string, a slog.Attr) slog.Attr {
	switch a.Value.Kind() {
	case slog.KindString:
		a.Value = slog.StringValue(clean(a.Value.String()))
	case slog.KindAny:
		if err, ok := a.Value.Any().(error); ok {
			a.Value = slog.StringValue(clean(err.Error()))
		}
	}
	return a
}

// level is the least level of records.
func (s *streams) level() slog.Level {
	if s.Flags.verbose {
		return slog.LevelDebug
	}
	return slog.LevelWarn
}

// logger returns a logger on standard error: warnings, such as that of an invalid tool, and with -v all.
func (s *streams) logger() *slog.Logger {
	if s.Err.records != nil {
		return slog.New(otelmcp.LogHandler(s.Err.records))
	}
	withoutTime := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	return slog.New(slog.NewTextHandler(s.Err, &slog.HandlerOptions{Level: s.level(), ReplaceAttr: withoutTime}))
}

// event writes a line, or a record with attributes, which the line has as words.
func (s *screen) event(level slog.Level, text string, attrs ...slog.Attr) {
	if s.records != nil {
		s.record(level, text, attrs...)
		return
	}
	s.printf("%s", text)
}

// record writes a message of the program as a record. A warning is one by its first word.
func (s *screen) record(level slog.Level, text string, attrs ...slog.Attr) {
	text = strings.TrimPrefix(strings.Join(strings.Fields(text), " "), "patchbay: ")
	if message, ok := strings.CutPrefix(text, "warning: "); ok {
		level, text = slog.LevelWarn, message
	}
	if text == "" {
		return
	}
	r := slog.NewRecord(time.Now(), level, text, 0)
	r.AddAttrs(attrs...)
	_ = s.records.Handle(context.Background(), r) // as for text
}
