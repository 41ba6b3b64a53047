package apps_test

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/patchbay-mcp/patchbay/ext/apps"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// TestDocViews runs the code of the doc comments: a server with a view, and a host that shows it.
func TestDocViews(t *testing.T) {
	const clockHTML, uri = "<!DOCTYPE html><title>clock</title>", "ui://clock/face"
	now := func(context.Context, struct{}) (string, error) { return "noon", nil }
	f := now
	s := mcp.NewServer("clock", "1.0.0", nil)
	views := apps.New(s)
	views.Add(&apps.View{URI: "ui://clock/face", Name: "clock"}, clockHTML)
	mcp.AddTool(s, views.WithUI(&mcp.Tool{Name: "time"}, &apps.ToolUI{View: "ui://clock/face"}), now)

	onlyView := []apps.Visibility{apps.VisibilityApp}
	mcp.AddTool(s, views.WithUI(&mcp.Tool{Name: "refresh"}, &apps.ToolUI{View: uri, Visibility: onlyView}), f)

	ctx, transport := t.Context(), mcp.InMemory(s)
	sent := 0
	toFrame := func(context.Context, json.RawMessage) error { sent++; return nil }
	askUser := func(context.Context, *mcp.Tool, json.RawMessage) error { return nil }
	c, err := mcp.Connect(ctx, transport, apps.Declare(nil))
	h := apps.NewHost(c, nil)
	tools, err := h.ModelTools(ctx)  // those that the model may see
	page, err := h.Page(ctx, "time") // the view of a tool, checked
	b := h.Bridge(page, &apps.BridgeOptions{Send: toFrame, AllowTool: askUser})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if len(tools) != 1 || tools[0].Name != "time" {
		t.Errorf("got tools %v", tools)
	}
	if err := b.ToolInput(ctx, nil); err != nil {
		t.Error(err)
	}
	call := json.RawMessage(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"refresh"}}`)
	b.Handle(ctx, json.RawMessage(`{"jsonrpc":"2.0","id":0,"method":"ui/initialize","params":{"appCapabilities":{}}}`))
	b.Handle(ctx, json.RawMessage(`{"jsonrpc":"2.0","method":"ui/notifications/initialized"}`))
	const want = `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"noon"}]}}`
	if answer := string(b.Handle(ctx, call)); answer != want {
		t.Errorf("got %s", answer)
	}
	if sent != 1 {
		t.Errorf("got %d messages to the frame, want the input of the tool", sent)
	}

	w := httptest.NewRecorder()
	header, err := page.Header(nil)
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(w.Header(), header)
	io.WriteString(w, page.HTML)
	if got := w.Result().Header; len(got) == 0 || !slices.Equal(got["Content-Security-Policy"], header["Content-Security-Policy"]) {
		t.Errorf("got header %v", got)
	}
}
