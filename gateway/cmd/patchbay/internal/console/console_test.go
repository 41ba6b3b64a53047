package console_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/consoletest"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// A person with the link logs in once; the page then shows the servers.
func TestLinkLogsInOnce(t *testing.T) {
	mcptest.NoLeaks(t)
	s := consoletest.New(t, nil)
	b := s.Browser()
	res, page := s.Send(b, http.MethodGet, "/", nil)
	if res.StatusCode != http.StatusOK || !strings.Contains(page, `id="server-fs"`) {
		t.Errorf("got %d, %s, want the overview", res.StatusCode, page)
	}
	thief := s.Stranger()
	form := url.Values{"token": {s.Token}}
	if res, _ := s.Send(s.Stranger(), http.MethodPost, "/login", form); res.StatusCode != http.StatusSeeOther {
		t.Errorf("first use of the token: got %d, want 303", res.StatusCode)
	}
	if res, page := s.Send(thief, http.MethodPost, "/login", form); res.StatusCode != http.StatusForbidden ||
		len(res.Cookies()) > 0 || !strings.Contains(page, "expired or was used") {
		t.Errorf("second use of the token: got %d, %s, want 403 without a cookie", res.StatusCode, page)
	}
	if res, _ := s.Send(b, http.MethodPost, "/logout", url.Values{}); res.StatusCode != http.StatusSeeOther {
		t.Errorf("logout: got %d, want 303", res.StatusCode)
	}
	if res, _ := s.Send(b, http.MethodGet, "/", nil); res.Header.Get("Location") != "/login?next=%2F" {
		t.Errorf("after logout: got %v, want the login page", res.Header)
	}
}

func TestPathWithoutARoleIsRefused(t *testing.T) {
	mcptest.NoLeaks(t)
	s := consoletest.New(t, nil)
	for path, role := range map[string]page.Role{"/x": "", "/y": "admin", "z": page.RoleViewer} {
		if err := s.Console.Register(path, role); err == nil {
			t.Errorf("path %q with role %q was registered", path, role)
		}
	}
}
