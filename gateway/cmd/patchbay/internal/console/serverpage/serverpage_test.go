package serverpage_test

import (
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

// The page of a server shows its parts, also for a server that does not start.
func TestServerHasItsPage(t *testing.T) {
	mcptest.NoLeaks(t)
	v := consoletest.New(t, nil).Visitor()
	const back = "/server?server=fs"
	if at := v.Post("/servers/restart", url.Values{"server": {"fs"}, "back": {back}}); at != back {
		t.Errorf("after the restart the browser is at %s", at)
	}
	v.Send(http.MethodPost, "/servers/restart", url.Values{"server": {"broken"}})
	for path, want := range map[string]string{
		"/server?server=fs":                   "2026-07-28",
		"/server?server=fs&tab=instances":     `<td>ready</td>`,
		"/server?server=fs&tab=stderr":        "printed nothing",
		"/server?server=fs&tab=login":         "Log in</button>",
		"/server?server=fs&tab=configuration": "does not support showing the configuration",
		"/server?server=fs&tab=unknown":       "in progress",
		"/server?server=broken":               "/no/such/program",
	} {
		if shown := v.See(path); !strings.Contains(shown, want) {
			t.Errorf("%s: no %q in\n%s", path, want, shown)
		}
	}
	for _, path := range []string{"/server", "/server?server=none"} {
		if res, _ := v.Send(http.MethodGet, path, nil); res.StatusCode != http.StatusNotFound {
			t.Errorf("%s: status %d, want 404", path, res.StatusCode)
		}
	}
	res, text := v.Send(http.MethodPost, "/server/login", url.Values{"server": {"fs"}})
	if res.StatusCode < http.StatusBadRequest || !strings.Contains(text, "login") {
		t.Errorf("a login at a server in the process: status %d, %s", res.StatusCode, text)
	}
}

// Standard error may describe requests of other callers, so viewers do not see it.
func TestStandardErrorIsForOperators(t *testing.T) {
	mcptest.NoLeaks(t)
	v := consoletest.New(t, func(o *console.Options) {
		o.Authenticate = func(r *http.Request) (*mcp.Principal, page.Role, error) {
			return &mcp.Principal{Subject: "bob"}, page.Role(r.Header.Get("X-Role")), nil
		}
	}).Guest()
	for role, want := range map[string]int{"viewer": http.StatusForbidden, "operator": http.StatusOK} {
		res, _ := v.Send(http.MethodGet, "/server?server=fs&tab=stderr", nil, "X-Role", role)
		if res.StatusCode != want {
			t.Errorf("standard error as %s: status %d, want %d", role, res.StatusCode, want)
		}
		_, text := v.Send(http.MethodGet, "/server?server=fs", nil, "X-Role", role)
		if strings.Contains(text, "tab=stderr") != (want == http.StatusOK) {
			t.Errorf("the page for a %s: link to standard error: %t", role, want != http.StatusOK)
		}
	}
}
