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

// answering connects to a server of 2025-11-25 on a stream whose responses to requests are those of answer, as they are.
// first begins its output.
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
			text := `{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},` +
				`"serverInfo":{"name":"x","version":"1"}}}`
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

// A list whose cursor does not advance ends with a warning: the pages before are the list.
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
				return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"t%d","inputSchema":{"type":"object"}}],"nextCursor":%s}}`,
					id, tool, next(pages))
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

// A response whose id is the number of the request as a string fails the request at once.
func TestResponseWithAnIDAsText(t *testing.T) {
	c := answering(t, "", func(_, id string, _ json.RawMessage) string {
		return `{"jsonrpc":"2.0","id":"` + id + `","result":{"content":[]}}`
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := c.CallTool(ctx, "x", nil)
	if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "the id of the response is the string") {
		t.Errorf("got error %v, want one about the id", err)
	}
}

// A result whose text was cut within a character is used, with U+FFFD in its place.
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

// A byte order mark may begin the stream of a server, and of a client.
func TestByteOrderMarkBeginsAStream(t *testing.T) {
	const mark = "\ufeff"
	c := answering(t, mark, func(_, id string, _ json.RawMessage) string {
		return `{"jsonrpc":"2.0","id":` + id + `,"result":{}}`
	})
	if err := c.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if got := readAll(t, mcp.NewStreamConn(strings.NewReader(mark+numbered(1)+"\n"+mark+numbered(2)+"\n"), nil, nil)); len(got) != 2 ||
		got[0] != numbered(1) || got[1] != "refused -32700" {
		t.Errorf("got %q, want the first message, and the second refused", got)
	}
}
