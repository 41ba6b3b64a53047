package logs_test

import (
	"fmt"
	"html"
	"log/slog"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/capture"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/consoletest"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/logs"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// The page shows the lines of all sources, filters them, and hides secrets and markup.
func TestLogsAreFiltered(t *testing.T) {
	mcptest.NoLeaks(t)
	book := &logs.Book{}
	book.SetMask(func(text string) string { return strings.ReplaceAll(text, "s3cret", "[secret]") })
	v := consoletest.New(t, func(o *console.Options) { o.Logs = book }).Visitor()
	if shown := v.See("/logs"); !strings.Contains(shown, "No line yet") {
		t.Errorf("no lines: got\n%s", shown)
	}
	log := slog.New(book.Handler(slog.DiscardHandler))
	log.With("server", "fs").WithGroup("g").Warn("the token is s3cret", "n", 1)
	log.Debug("not shown")
	book.Line(capture.Line{Server: "fs", Kind: capture.Stderr, Text: "<b>line\u202e"})
	book.Line(capture.Line{Server: "broken", Kind: capture.Message, Level: "critical", Text: "broken message"})
	for query, want := range map[string][]string{
		"":                             {"the token is [secret] g.n=1", `<b>line\u{202e}`, "broken message"},
		"?server=fs":                   {"the token is [secret] g.n=1", `<b>line\u{202e}`},
		"?source=stderr":               {`<b>line\u{202e}`},
		"?level=warning":               {"the token is [secret] g.n=1", "broken message"},
		"?level=error&q=MESSAGE":       {"broken message"},
		"?q=nothing":                   nil,
		"?follow=off&wrap=off&level=x": {"the token is [secret] g.n=1", `<b>line\u{202e}`, "broken message"},
	} {
		shown := v.See("/logs" + query)
		if n := strings.Count(shown, `<li id="line-`); n != len(want) {
			t.Errorf("%s: %d lines, want %d", query, n, len(want))
		}
		for _, text := range want {
			if !strings.Contains(html.UnescapeString(shown), text) {
				t.Errorf("%s: no %q in\n%s", query, text, shown)
			}
		}
		if strings.Contains(shown, "s3cret") || strings.Contains(shown, "<b>line") {
			t.Errorf("%s: the page contains a secret or markup", query)
		}
	}
}

// The book drops the oldest lines, and cuts long lines.
func TestLogsAreBounded(t *testing.T) {
	mcptest.NoLeaks(t)
	book := &logs.Book{}
	v := consoletest.New(t, func(o *console.Options) { o.Logs = book }).Visitor()
	for i := range 6000 {
		book.Add(logs.Entry{Source: logs.Stderr, Text: fmt.Sprintf("line %d.", i)})
	}
	shown := v.See("/logs")
	if !strings.Contains(shown, "line 5999.") || strings.Contains(shown, "line 999.") ||
		!strings.Contains(shown, "4700 older lines match") {
		t.Errorf("got\n%s", shown[:2000])
	}
	long := strings.Repeat("x", 1<<20)
	for range 2000 {
		book.Add(logs.Entry{Source: logs.Stderr, Text: long})
	}
	if shown := v.See("/logs"); len(shown) > 4<<20 {
		t.Errorf("the page has %d bytes", len(shown))
	}
}
