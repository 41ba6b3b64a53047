package explore_test

import (
	"context"
	"net/url"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/capture"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/consoletest"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// Explore shows the last messages of the selected server beside its tools, and of no other server. A long message
// is cut. A request can be edited before it is sent again.
func TestMessagesBesideTool(t *testing.T) {
	mcptest.NoLeaks(t)
	server := mcp.NewServer("fs", "1", nil)
	yes := true
	mcp.AddTool(server, &mcp.Tool{Name: "look", Annotations: &mcp.ToolAnnotations{ReadOnly: &yes}},
		func(_ context.Context, in struct{ Text string }) (string, error) { return "<seen>", nil })
	ring := capture.New(&capture.Options{Always: true})
	v := consoletest.New(t, func(o *console.Options) {
		o.Capture = ring
		o.Connect = func(context.Context, string, *mcp.Principal) (mcp.Transport, error) {
			return mcp.InMemory(server), nil
		}
	}).Visitor()
	v.Await("/explore?server=fs", "name=look")
	for name, text := range map[string]string{"fs": strings.Repeat("long", 2000) + "END", "other": "elsewhere"} {
		c, err := mcp.Connect(t.Context(), ring.Connect(mcp.InMemory(server), name, "ann"), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.CallTool(t.Context(), "look", map[string]string{"Text": text}); err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	page := v.See("/explore?server=fs")
	for _, want := range []string{"tools/call look", "longlong", "…</pre>", "&lt;seen&gt;", "Edit and replay"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	for _, unwanted := range []string{"elsewhere", "longEND"} {
		if strings.Contains(page, unwanted) {
			t.Errorf("the page contains %q", unwanted)
		}
	}
	_, after, _ := strings.Cut(page, `name="exchange" value="`)
	id, _, _ := strings.Cut(after, `"`)
	at := v.Post("/explore/replay", url.Values{"exchange": {id}, "edit": {"yes"}})
	if page := v.See(at); !strings.Contains(page, "Not sent yet: edit the request") || strings.Contains(page, "Run 1") {
		t.Errorf("an edited replay shows\n%s", page)
	}
}
