package explore_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/consoletest"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// pinned is an admin API whose definitions wait for approval.
type pinned struct{ http.RoundTripper }

func (p pinned) RoundTrip(r *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(r.URL.Path, "/pins") {
		return p.RoundTripper.RoundTrip(r)
	}
	const text = `{"pins":[
		{"kind":"tool","name":"read","status":"changed","pending":[{"definition":{"name":"read",
			"inputSchema":{"type":"object"}}}]},
		{"kind":"tool","name":"drop","status":"new","pending":[{"definition":{"name":"drop","description":"<b>all</b>",
			"inputSchema":{"type":"object"}}}]},
		{"kind":"prompt","name":"broken","status":"changed","pending":[]},
		{"kind":"server","name":"","status":"new","pending":[]}]}`
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(text)), Request: r}, nil
}

// An item that waits for approval is listed with the reason, unless its approved form is in use.
func TestQuarantinedItemsAreListedWithTheReason(t *testing.T) {
	mcptest.NoLeaks(t)
	server := mcp.NewServer("fs", "1", nil)
	mcp.AddTool(server, &mcp.Tool{Name: "read"}, func(context.Context, struct{}) (string, error) { return "", nil })
	v := consoletest.New(t, func(o *console.Options) {
		admin := o.Admin
		o.Admin = func(p *mcp.Principal) *http.Client { return &http.Client{Transport: pinned{admin(p).Transport}} }
		o.Connect = func(context.Context, string, *mcp.Principal) (mcp.Transport, error) {
			return mcp.InMemory(server), nil
		}
	}).Visitor()
	page := v.Await("/explore?server=fs", "name=drop")
	if strings.Count(page, "quarantined</span>") != 1 {
		t.Errorf("want one quarantined tool:\n%s", page)
	}
	page = v.See("/explore?server=fs&tool=drop")
	if !strings.Contains(page, "is new, and waits for approval") || strings.Contains(page, "<b>all") {
		t.Errorf("the page of the tool lacks the reason:\n%s", page)
	}
	page = v.See("/explore?server=fs&kind=prompts&name=broken")
	if !strings.Contains(page, "differs from the approved definition") {
		t.Errorf("the page of the prompt lacks the reason:\n%s", page)
	}
}
