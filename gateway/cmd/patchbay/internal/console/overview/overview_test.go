package overview_test

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/consoletest"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// granted is an admin API whose servers grant each person another tool, and nothing to eve.
type granted struct {
	http.RoundTripper
	person string
}

func (g granted) RoundTrip(r *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(r.URL.Path, "/catalogue") {
		return g.RoundTripper.RoundTrip(r)
	}
	status, text := http.StatusOK, `{"kind":"tools","items":[{"name":"tool-of-`+g.person+`"}]}`
	if g.person == "eve" {
		status, text = http.StatusNotFound, `{"status":404,"code":"unknown_route","detail":"unknown server"}`
	}
	return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(text)), Request: r}, nil
}

// The overview and the palette list the tools that a person may use, also when another person opened them first.
func TestToolsAreListedForEachPerson(t *testing.T) {
	mcptest.NoLeaks(t)
	v := consoletest.New(t, func(o *console.Options) {
		admin := o.Admin
		o.Admin = func(p *mcp.Principal) *http.Client {
			if p == nil {
				return admin(p)
			}
			return &http.Client{Transport: granted{admin(p).Transport, p.Subject}}
		}
		o.Authenticate = func(r *http.Request) (*mcp.Principal, page.Role, error) {
			return &mcp.Principal{Subject: r.Header.Get("X-Person")}, page.RoleOperator, nil
		}
	}).Guest()
	v.Send(http.MethodPost, "/servers/restart", url.Values{"server": {"fs"}}, "X-Person", "ann")
	see := func(who, path string) string {
		_, text := v.Send(http.MethodGet, path, nil, "X-Person", who)
		return text
	}
	for _, who := range []string{"ann", "eve", "bob"} {
		palette := consoletest.Await(t, `"loading":false`, func() string { return see(who, "/palette") })
		shown := palette + see(who, "/")
		for _, other := range []string{"ann", "eve", "bob"} {
			if want := other == who && who != "eve"; strings.Contains(shown, "tool-of-"+other) != want {
				t.Errorf("%s: the tool of %s is listed, want %t:\n%s", who, other, want, shown)
			}
		}
	}
}
