// Package consoletest serves consoles for tests of their screens.
package consoletest

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/doctor"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A Site is a console over a host with the servers fs, which offers the tool read, and broken,
// whose program does not exist.
type Site struct {
	Console *console.Console
	Base    string // the URL without a path
	Token   string // for a login, not used yet
	Host    *host.Host
	Keys    *gateway.KeyStore // of the gateway

	t *testing.T
}

// New serves a console until the test ends. prepare may change its options.
func New(t *testing.T, prepare func(*console.Options)) *Site {
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
	keys := gateway.NewKeyStore(&state.Memory{})
	g := gateway.New(h, &gateway.Options{Logger: log, KeyStore: keys,
		Admin: gateway.AdminOptions{Version: "1", Events: events}})
	o := &console.Options{Admin: g.AdminClient, Addr: "127.0.0.1:0", Version: "1", Logger: log,
		Checks: filepath.Join(t.TempDir(), "patchbay-checks.json"), Mask: h.Operator().Mask,
		Examine: func(context.Context, string, *doctor.Options) (*doctor.Report, error) {
			return &doctor.Report{}, nil
		}}
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
	s := &Site{t: t, Console: c, Host: h, Keys: keys}
	s.Base, s.Token = s.Link()
	return s
}

// Link returns the URL of the console without a path, and a fresh token.
func (s *Site) Link() (base, token string) {
	s.t.Helper()
	u, err := url.Parse(s.Console.URL())
	if err != nil {
		s.t.Fatal(err)
	}
	return "http://" + u.Host, strings.TrimPrefix(u.Fragment, "t=")
}

// Browser returns a browser that is logged in, and follows no redirects.
func (s *Site) Browser() *http.Client {
	s.t.Helper()
	b := s.Stranger()
	_, token := s.Link()
	res, _ := s.Send(b, http.MethodPost, "/login", url.Values{"token": {token}}) //nolint:bodyclose // closed by Send
	if res.StatusCode != http.StatusSeeOther {
		s.t.Fatalf("login: status %d, want 303", res.StatusCode)
	}
	return b
}

// Stranger returns a browser that is not logged in.
func (s *Site) Stranger() *http.Client {
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

// Send sends a request with a form, which may be nil, and headers. The header Host sets the host.
// It returns the response and its body, which is empty for a stream.
func (s *Site) Send(b *http.Client, method, path string, form url.Values, header ...string) (*http.Response, string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.Base+path, strings.NewReader(form.Encode()))
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
	if strings.HasPrefix(res.Header.Get("Content-Type"), "text/html") {
		if tag := Inline(string(text)); tag != "" {
			s.t.Errorf("%s %s: the page contains inline code: %q", method, path, tag)
		}
	}
	return res, string(text)
}

var (
	tags   = regexp.MustCompile(`<[^>]*>`)
	values = regexp.MustCompile(`"[^"]*"`)
	code   = regexp.MustCompile(`(?i)^<style|\s(style|srcdoc|on[a-z]+)\s*=`)
	module = regexp.MustCompile(`^<script type="module" src="/assets/[^"]*"></script>`)
)

// Inline returns the first tag of a page with an inline script, an inline style or an event attribute, or "". Templates
// escape < and > in the data of peers, so each of these characters is part of a tag.
func Inline(page string) (tag string) {
	for _, at := range tags.FindAllStringIndex(page, -1) {
		tag := page[at[0]:at[1]]
		isScript := strings.HasPrefix(strings.ToLower(tag), "<script")
		if code.MatchString(values.ReplaceAllString(tag, `""`)) || isScript && !module.MatchString(page[at[0]:]) {
			return tag
		}
	}
	return ""
}

// A Visitor is a browser without scripts, which is logged in.
type Visitor struct {
	*Site
	browser *http.Client
}

// Visitor returns a browser that is logged in.
func (s *Site) Visitor() *Visitor { return &Visitor{s, s.Browser()} }

// Send sends a request as [Site.Send] does.
func (v *Visitor) Send(method, path string, form url.Values, header ...string) (*http.Response, string) {
	v.t.Helper()
	return v.Site.Send(v.browser, method, path, form, header...)
}

// See returns a page. Another status than 200 fails the test.
func (v *Visitor) See(path string) string {
	v.t.Helper()
	res, text := v.Send(http.MethodGet, path, nil) //nolint:bodyclose // Send closes the body
	if res.StatusCode != http.StatusOK {
		v.t.Fatalf("GET %s: status %d\n%s", path, res.StatusCode, text)
	}
	return text
}

// patience bounds the wait for a text on a page, generously for a slow machine.
const patience = 30 * time.Second

// Await fetches a page until it contains a text, and returns the page.
func (v *Visitor) Await(path, text string) string {
	v.t.Helper()
	return Await(v.t, text, func() string { return v.See(path) })
}

// Await calls see until it returns a page with a text, and returns the page.
func Await(t *testing.T, text string, see func() string) string {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		page := see()
		if strings.Contains(page, text) {
			return page
		}
		if time.Now().After(deadline) {
			t.Fatalf("no %q in\n%s", text, page)
		}
	}
}

// Post sends a form and returns the page to which the response redirects.
func (v *Visitor) Post(path string, values url.Values) string {
	v.t.Helper()
	res, text := v.Send(http.MethodPost, path, values) //nolint:bodyclose // Send closes the body
	if res.StatusCode != http.StatusSeeOther {
		v.t.Fatalf("POST %s %v: status %d\n%s", path, values, res.StatusCode, text)
	}
	return res.Header.Get("Location")
}
