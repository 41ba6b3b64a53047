package console_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/doctor"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// A site is a console over a host with the servers fs, which has the tool read, and broken.
type site struct {
	t       *testing.T
	console *console.Console
	base    string // the URL without a path
	token   string // unused
}

// newSite serves a console until the test ends. prepare may change its options.
func newSite(t *testing.T, prepare func(*console.Options)) *site {
	t.Helper()
	f, err := config.Parse([]byte(`{"mcpServers": {"fs": {"command": "x"}, "broken": {"command": "x"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	fs := mcp.NewServer("fs", "1", nil)
	mcp.AddTool(fs, &mcp.Tool{Name: "read"}, func(context.Context, struct{}) (string, error) { return "", nil })
	events := gateway.NewEventLog()
	h, err := host.Open(t.Context(), f, &host.Options{Logger: log, Recorder: events.Recorder(nil),
		Dial: func(_ context.Context, s *config.Server) (mcp.Transport, error) {
			if s.Name == "broken" {
				return mcp.Command("/no/such/program"), nil
			}
			return mcp.InMemory(fs), nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	g := gateway.New(h, &gateway.Options{Logger: log, Admin: gateway.AdminOptions{Version: "1", Events: events}})
	o := &console.Options{Admin: g.AdminClient, Addr: "127.0.0.1:0", Version: "1", Logger: log,
		Examine: func(context.Context, string, *doctor.Options) (*doctor.Report, error) { return &doctor.Report{}, nil }}
	if prepare != nil {
		prepare(o)
	}
	c, err := console.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- c.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
		if err := g.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	s := &site{t: t, console: c}
	s.base, s.token = s.link()
	return s
}

// link returns the URL of the console without a path, and a fresh token.
func (s *site) link() (base, token string) {
	s.t.Helper()
	u, err := url.Parse(s.console.URL())
	if err != nil {
		s.t.Fatal(err)
	}
	return "http://" + u.Host, strings.TrimPrefix(u.Fragment, "t=")
}

// browser returns a browser that is logged in, and follows no redirects.
func (s *site) browser() *http.Client {
	s.t.Helper()
	b := s.stranger()
	_, token := s.link()
	res, _ := s.send(b, http.MethodPost, "/login", url.Values{"token": {token}})
	if res.StatusCode != http.StatusSeeOther {
		s.t.Fatalf("login: status %d, want 303", res.StatusCode)
	}
	return b
}

// stranger returns a browser that is not logged in.
func (s *site) stranger() *http.Client {
	s.t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		s.t.Fatal(err)
	}
	transport := &http.Transport{}
	s.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Jar: jar, Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// send sends a request with a form, which may be nil, and headers. The header Host sets the host.
func (s *site) send(b *http.Client, method, path string, form url.Values, header ...string) (*http.Response, string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.base+path, strings.NewReader(form.Encode()))
	if err != nil {
		s.t.Fatal(err)
	}
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for pair := range slices.Chunk(header, 2) {
		req.Header.Set(pair[0], pair[1])
		if pair[0] == "Host" {
			req.Host = pair[1]
		}
	}
	res, err := b.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	if strings.HasPrefix(path, "/stream") && res.StatusCode == http.StatusOK {
		return res, "" // it does not end
	}
	text, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return res, string(text)
}

// A person with the link logs in once; the page then shows the servers.
func TestLinkLogsInOnce(t *testing.T) {
	mcptest.NoLeaks(t)
	s := newSite(t, nil)
	b := s.browser()
	res, page := s.send(b, http.MethodGet, "/", nil)
	if res.StatusCode != http.StatusOK || !strings.Contains(page, `id="server-fs"`) {
		t.Errorf("got %d, %s, want the overview", res.StatusCode, page)
	}
	thief := s.stranger()
	form := url.Values{"token": {s.token}}
	if res, _ := s.send(s.stranger(), http.MethodPost, "/login", form); res.StatusCode != http.StatusSeeOther {
		t.Errorf("first use of the token: got %d, want 303", res.StatusCode)
	}
	if res, page := s.send(thief, http.MethodPost, "/login", form); res.StatusCode != http.StatusForbidden ||
		len(res.Cookies()) > 0 || !strings.Contains(page, "expired or was used") {
		t.Errorf("second use of the token: got %d, %s, want 403 without a cookie", res.StatusCode, page)
	}
	if res, _ := s.send(b, http.MethodPost, "/logout", url.Values{}); res.StatusCode != http.StatusSeeOther {
		t.Errorf("logout: got %d, want 303", res.StatusCode)
	}
	if res, _ := s.send(b, http.MethodGet, "/", nil); res.Header.Get("Location") != "/login?next=%2F" {
		t.Errorf("after logout: got %v, want the login page", res.Header)
	}
}

func TestPathWithoutARoleIsRefused(t *testing.T) {
	mcptest.NoLeaks(t)
	s := newSite(t, nil)
	for path, role := range map[string]console.Role{"/x": "", "/y": "admin", "z": console.RoleViewer} {
		if err := s.console.Register(path, role); err == nil {
			t.Errorf("path %q with role %q was registered", path, role)
		}
	}
}
