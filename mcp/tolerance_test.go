package mcp_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// answering connects to a server of 2025-11-25 on a stream. The server writes first, and then, for
// each request except initialize, the text that answer returns.
func answering(t *testing.T, first string, answer func(method, id string, params json.RawMessage) string) *mcp.Client {
	t.Helper()
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	served := make(chan struct{})
	go func() {
		defer close(served)
		_, _ = io.WriteString(out, first)
		lines := bufio.NewScanner(in)
		for lines.Scan() {
			var m struct {
				ID     json.RawMessage
				Method string
				Params json.RawMessage
			}
			if json.Unmarshal(lines.Bytes(), &m) != nil || m.ID == nil {
				continue
			}
			text := `{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":{"protocolVersion":"2025-11-25",` +
				`"capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}}`
			if m.Method != "initialize" {
				text = answer(m.Method, string(m.ID), m.Params)
			}
			_, _ = io.WriteString(out, text+"\n")
		}
	}()
	conn := mcp.NewStreamConn(fromServer, toServer, nil)
	c, err := mcp.Connect(t.Context(), mcp.NewConnTransport(conn),
		&mcp.ClientOptions{Revision: "2025-11-25", Logger: slog.New(slog.DiscardHandler), Timeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		toServer.Close()
		out.Close()
		<-served
	})
	return c
}

// A list whose cursor does not advance contains the pages received so far, and a warning is logged.
func TestCursorThatDoesNotAdvance(t *testing.T) {
	for name, next := range map[string]func(page int) string{
		"empty":     func(int) string { return `""` },
		"the same":  func(int) string { return `"a"` },
		"in a ring": func(page int) string { return fmt.Sprintf(`"%d"`, page%3) },
	} {
		t.Run(name, func(t *testing.T) {
			pages := 0
			c := answering(t, "", func(_, id string, _ json.RawMessage) string {
				pages++
				tool := pages
				if name == "empty" {
					tool = 1
				}
				return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"nextCursor":%s,`+
					`"tools":[{"name":"t%d","inputSchema":{"type":"object"}}]}}`, id, next(pages), tool)
			})
			var names []string
			for tool, err := range c.Tools(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				names = append(names, tool.Name)
			}
			want := map[string]string{"empty": "t1", "the same": "t1 t2", "in a ring": "t1 t2 t3 t4"}[name]
			if got := strings.Join(names, " "); got != want {
				t.Errorf("got the tools %s, want %s", got, want)
			}
		})
	}
}

// If the id of a response is a string with the digits of a numeric request id, the request fails at
// once.
func TestResponseIDIsAString(t *testing.T) {
	c := answering(t, "", func(_, id string, _ json.RawMessage) string {
		return `{"jsonrpc":"2.0","id":"` + id + `","result":{"content":[]}}`
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := c.CallTool(ctx, "x", nil)
	if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "the id of the response is the string") {
		t.Errorf("got error %v, want an error that describes the id", err)
	}
}

// A result with a lone surrogate is accepted, and U+FFFD replaces the surrogate.
func TestResultWithALoneSurrogate(t *testing.T) {
	c := answering(t, "", func(_, id string, _ json.RawMessage) string {
		return `{"jsonrpc":"2.0","id":` + id + `,"result":{"content":[{"type":"text","text":"cut \ud83d"}]}}`
	})
	res, err := c.CallTool(t.Context(), "x", nil)
	if err != nil {
		t.Fatal(err)
	}
	if text := res.Content[0].(*mcp.TextContent).Text; text != "cut \ufffd" {
		t.Errorf("got %q", text)
	}
}

// A stream, of a client or a server, may begin with a byte order mark.
func TestByteOrderMarkBeginsAStream(t *testing.T) {
	const mark = "\ufeff"
	c := answering(t, mark, func(_, id string, _ json.RawMessage) string {
		return `{"jsonrpc":"2.0","id":` + id + `,"result":{}}`
	})
	if err := c.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	input := strings.NewReader(mark + numbered(1) + "\n" + mark + numbered(2) + "\n")
	got := readAll(t, mcp.NewStreamConn(input, nil, nil))
	if len(got) != 2 || got[0] != numbered(1) || got[1] != "refused -32700" {
		t.Errorf("got %q, want the first message and a refusal of the second", got)
	}
}
