package explore_test

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/consoletest"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

const notes = "/explore?kind=resources&name=notes%3Aall&server=fs"

// newNotes returns a server with a resource whose changes it announces.
func newNotes(revision string) *mcp.Server {
	server := mcp.NewServer("fs", "1", &mcp.ServerOptions{Revisions: []string{revision}})
	mcp.AddResource(server, &mcp.Resource{URI: "notes:all", Name: "notes"},
		func(context.Context, string) (string, error) { return "a note", nil })
	return server
}

// An update marks the resource in the list, and offers to read it again. The page says if the server refuses
// the subscription.
func TestResourcesAreWatched(t *testing.T) {
	for _, kind := range mcptest.Transports() {
		for _, revision := range []string{"2025-06-18", mcptest.Modern} {
			t.Run(kind+" "+revision, func(t *testing.T) {
				server := newNotes(revision)
				v := newVisitor(t, func() mcp.Transport { return mcptest.Transport(t, server, kind) })
				v.Await(notes, ">Subscribe</button>")
				at := v.Post("/explore/run", url.Values{"at-server": {"fs"}, "at-kind": {"resources"},
					"at-name": {"notes:all"}, "at-timeout": {"60"}, "mode": {"json"}, "text": {"{}"}, "do": {"run"}})
				v.Await(at, "a note")
				watch := url.Values{"server": {"fs"}, "name": {"notes:all"}}
				if at := v.Post("/explore/watch", watch); at != notes {
					t.Errorf("subscribing leads to %s", at)
				}
				v.Await(notes, "no update yet")
				server.ResourceUpdated("notes:all")
				page := v.Await(notes, "1 update since")
				if strings.Count(page, ">updated ") != 2 || !strings.Contains(page, "Read again and compare") {
					t.Errorf("after an update the page shows\n%s", page)
				}
				watch.Set("do", "end")
				v.Post("/explore/watch", watch)
				page = v.See(notes)
				if !strings.Contains(page, ">Subscribe</button>") || strings.Contains(page, ">updated ") {
					t.Errorf("after the end the page shows\n%s", page)
				}
				if revision != mcptest.Modern { // a session accepts any URI
					return
				}
				v.Post("/explore/watch", url.Values{"server": {"fs"}, "name": {"notes:none"}})
				v.Await("/explore?server=fs&kind=resources&name=notes:none", "The subscription ended: ")
			})
		}
	}
}

// A subscription ends when its server disconnects, and the page says why.
func TestSubscriptionsEnd(t *testing.T) {
	mcptest.NoLeaks(t)
	g, _ := consoletest.Gateway(t, `{"mcpServers": {"fs": {"command": "x"}}}`,
		map[string]*mcp.Server{"fs": newNotes(mcptest.Modern)}, nil)
	v := consoletest.New(t, func(o *console.Options) {
		o.Admin = g.AdminClient
		o.Connect = func(_ context.Context, server string, p *mcp.Principal) (mcp.Transport, error) {
			h, err := g.CallerEndpoint(p, gateway.Route{Server: server})
			return mcp.InMemory(h), err
		}
	}).Visitor()
	v.Await(notes, ">Subscribe</button>")
	v.Post("/explore/watch", url.Values{"server": {"fs"}, "name": {"notes:all"}})
	v.Await(notes, "no update yet")
	v.Post("/servers/stop", url.Values{"server": {"fs"}})
	page := v.Await(notes, "The subscription ended: the server disconnected")
	if !strings.Contains(page, ">Subscribe</button>") {
		t.Errorf("a subscription that ended is not offered again:\n%s", page)
	}
	res, _ := v.Send(http.MethodPost, "/explore/watch", url.Values{"server": {"none"}})
	if res.StatusCode != http.StatusNotFound {
		t.Errorf("an unknown server: status %d, want 404", res.StatusCode)
	}
}
