package explore_test

import (
	"context"
	"encoding/json"
	"html"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/capture"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/consoletest"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// A recorded request is sent again with its exact text. A request that may change something, or whose record
// hides secrets, is shown first.
func TestRecordedRequestsAreSentAgain(t *testing.T) {
	mcptest.NoLeaks(t)
	received := make(chan string, 8)
	server := mcp.NewServer("fs", "1", nil)
	for name, readOnly := range map[string]bool{"look": true, "drop": false} {
		mcp.AddTool(server, &mcp.Tool{Name: name, Annotations: &mcp.ToolAnnotations{ReadOnly: &readOnly},
			InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(ctx context.Context, _ map[string]any) (string, error) { return name + " done", nil })
	}
	server.Use(func(next mcp.Handler) mcp.Handler {
		return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
			if arguments, ok := req.Param("arguments"); ok {
				received <- string(arguments)
			}
			return next.ServeMCP(ctx, req)
		})
	})
	ring := capture.New(&capture.Options{Always: true})
	ring.SetMask(func(text string) string { return strings.ReplaceAll(text, "hunter2", "[secret]") })
	v := consoletest.New(t, func(o *console.Options) {
		o.Capture = ring
		o.Connect = func(context.Context, string, *mcp.Principal) (mcp.Transport, error) {
			return mcp.InMemory(server), nil
		}
	}).Visitor()
	v.Await("/explore?server=fs", "name=drop")
	c, err := mcp.Connect(t.Context(), ring.Connect(mcp.InMemory(server), "fs", "ann"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	record := func(tool, arguments string) (exchange string) {
		t.Helper()
		if _, err := c.CallTool(t.Context(), tool, json.RawMessage(arguments)); err != nil {
			t.Fatal(err)
		}
		<-received
		q, _ := capture.ParseQuery("method:tools/call")
		return strconv.FormatUint(ring.Find(q, 0, 1)[0].ID, 10)
	}
	const exact = `{ "n":1.50,  "s" : "caf\u00e9 \/" }`

	id := record("look", exact)
	if page := v.See("/traffic?id=" + id); !strings.Contains(page, `action="/explore/replay"`) {
		t.Errorf("the exchange offers no replay:\n%s", page)
	}
	at := v.Post("/explore/replay", url.Values{"exchange": {id}})
	if got := <-received; got != exact {
		t.Errorf("replayed %s, want %s", got, exact)
	}
	v.Await(at, "look done")

	at = v.Post("/explore/replay", url.Values{"exchange": {record("drop", exact)}})
	page := html.UnescapeString(v.See(at))
	if !strings.Contains(page, "drop does not declare readOnlyHint") || !strings.Contains(page, exact+"</textarea>") {
		t.Errorf("the tool that may write is not shown first:\n%s", page)
	}
	at = v.Post("/explore/run", url.Values{"at-server": {"fs"}, "at-kind": {"tools"}, "at-name": {"drop"},
		"at-timeout": {"60"}, "mode": {"json"}, "text": {exact}, "do": {"run"}})
	if got := <-received; got != exact {
		t.Errorf("after the question: replayed %s, want %s", got, exact)
	}
	v.Await(at, "drop done")

	at = v.Post("/explore/replay", url.Values{"exchange": {record("look", `{"password":"hunter2"}`)}})
	if page := v.See(at); !strings.Contains(page, "the record hides secrets") || strings.Contains(page, "hunter2") {
		t.Errorf("a record that hides secrets:\n%s", page)
	}
	if len(received) > 0 {
		t.Errorf("the server received %s, want nothing before the person sends it", <-received)
	}
	q, _ := capture.ParseQuery("-method:tools/call")
	other := strconv.FormatUint(ring.Find(q, 0, 1)[0].ID, 10)
	for _, id := range []string{"9999", "x", other} {
		res, text := v.Send(http.MethodPost, "/explore/replay", url.Values{"exchange": {id}})
		if isOther := id == other; isOther != (res.StatusCode == http.StatusSeeOther) {
			t.Errorf("exchange %s: got %d\n%s", id, res.StatusCode, text)
		}
	}
}
