package explore_test

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/capture"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/consoletest"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// A request is sent again in another revision, and its results are compared. Each run links to its
// exchange.
func TestRunsAreComparedAndLinked(t *testing.T) {
	mcptest.NoLeaks(t)
	var price atomic.Int64
	price.Store(7)
	server := mcp.NewServer("shop", "1", nil)
	mcp.AddTool(server, &mcp.Tool{Name: "price"}, func(context.Context, struct{}) (map[string]any, error) {
		return map[string]any{"price": price.Load()}, nil
	})
	ring := capture.New(&capture.Options{Always: true})
	connect := func(_ context.Context, server_ string, _ *mcp.Principal) (mcp.Transport, error) {
		return ring.Connect(mcp.InMemory(server), server_, ""), nil
	}
	v := consoletest.New(t, func(o *console.Options) {
		o.Connect, o.Dial, o.Capture = connect, connect, ring
	}).Visitor()
	v.Await("/explore?server=fs", "name=price")
	at := v.Post("/explore/run", url.Values{"at-server": {"fs"}, "at-kind": {"tools"}, "at-name": {"price"},
		"at-timeout": {"60"}, "mode": {"json"}, "text": {"{}"}, "do": {"run"}})
	page := v.Await(at, "Run again and compare")
	if here := strings.ReplaceAll(at, "&", "&amp;"); !strings.Contains(page, `<a href="`+here+`">Refresh</a>`) {
		t.Errorf("no link to %s in\n%s", here, page)
	}
	if !strings.Contains(page, `<option value="">`+mcptest.Modern+", negotiated<") {
		t.Errorf("the editor lacks the revision of the connection:\n%s", page)
	}
	wrong := url.Values{"at-server": {"fs"}, "at-kind": {"tools"}, "at-name": {"price"}, "mode": {"json"},
		"text": {"["}}
	_, part := v.Send(http.MethodPost, "/explore/run", wrong, "X-Console", "1")
	if !strings.Contains(part, mcptest.Modern+", negotiated") {
		t.Errorf("the editor that replaces the editor of the page lacks the revision: %s", part)
	}
	first := runID.FindStringSubmatch(at)[1]
	_, link, _ := strings.Cut(page, `href="/traffic?trace=`)
	link, _, _ = strings.Cut(link, `"`)
	if exchange := v.See("/traffic?trace=" + link); strings.Count(exchange, `aria-selected="true"`) != 1 ||
		!strings.Contains(exchange, "tools/call price") || strings.Contains(exchange, "tools/list") {
		t.Errorf("the link %q of the run shows\n%s", link, exchange)
	}

	again := url.Values{"run": {first}, "to": {"fs"}, "revision": {"2025-06-18"}}
	at = v.Post("/explore/again", again)
	page = v.Await(at, "Compared with run")
	if !strings.Contains(page, "The results are equal") || !strings.Contains(page, "2025-06-18</span>, selected") {
		t.Errorf("the same request in another revision:\n%s", page)
	}
	price.Store(8)
	again.Set("to", "broken")
	page = v.Await(v.Post("/explore/again", again), "Compared with run")
	if !strings.Contains(page, `class="removed"`) || !strings.Contains(page, `class="added"`) {
		t.Errorf("the request to a server with another price:\n%s", page)
	}
	for name, value := range map[string]string{"revision": "2001-01-01", "to": "none", "run": "99"} {
		wrong := url.Values{"run": {first}, "to": {"fs"}}
		wrong.Set(name, value)
		if res, text := v.Send("POST", "/explore/again", wrong); res.StatusCode < 400 || res.StatusCode >= 500 {
			t.Errorf("%s %s: got %d, %s", name, value, res.StatusCode, text)
		}
	}
}
