package oauthclient_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// A page is a response as a browser receives it.
type page struct {
	status int
	header http.Header
	body   string
	err    error
}

// get sends a GET request, after change if that is not nil.
func get(t *testing.T, address string, change func(req *http.Request)) page {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(req)
	}
	tr := &http.Transport{DisableKeepAlives: true}
	res, err := tr.RoundTrip(req)
	if err != nil {
		return page{err: err}
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return page{res.StatusCode, res.Header, string(body), err}
}

// openCallback returns a Callback and a login for it, whose state is "right".
func openCallback(t *testing.T, opts *oauthclient.BrowserOptions, uris ...string) (oauthclient.Callback,
	*oauthclient.LoginRequest) {
	t.Helper()
	o := oauthclient.BrowserOptions{
		Open: func(context.Context, string) error { return nil }, Show: func(*oauthclient.LoginRequest) {},
		Logger: slog.New(slog.DiscardHandler),
	}
	if opts != nil {
		o.Timeout = opts.Timeout
		if opts.Open != nil {
			o.Open = opts.Open
		}
	}
	c, err := oauthclient.NewBrowser(&o).Listen(t.Context(), uris)
	if err != nil {
		t.Fatal(err)
	}
	return c, &oauthclient.LoginRequest{
		URL: "https://as.example/authorize?state=right", State: "right",
		Server: "https://mcp.example:8443/mcp", Program: `Editor <script>"x"</script>`,
	}
}

func TestBrowserReceivesResponse(t *testing.T) {
	for name, c := range map[string]struct {
		outcome error
		want    []string
	}{
		"success": {nil, []string{"You are logged in"}},
		"denied":  {&oauthclient.LoginError{Code: "access_denied"}, []string{"You are not logged in", "declined"}},
		"refused": {&oauthclient.LoginError{Code: "server_error", Description: `<script>alert("x")</script>`},
			[]string{"Login failed", "server_error: &lt;script&gt;"}},
		"failed": {errors.New("s3cret <b>"), []string{"Login failed"}},
	} {
		t.Run(name, func(t *testing.T) {
			seen := make(chan page, 1)
			var uri string
			callback, login := openCallback(t, &oauthclient.BrowserOptions{Open: func(context.Context, string) error {
				go func() { seen <- get(t, uri+"?state=right&code=c&iss=i", nil) }()
				return nil
			}})
			uri = callback.RedirectURI()
			answer, err := callback.Authorize(t.Context(), login)
			if err != nil || answer.Get("code") != "c" || answer.Get("iss") != "i" {
				t.Fatalf("got response %v, error %v; want code c and iss i", answer, err)
			}
			callback.Close(c.outcome)
			v := <-seen
			checkPage(t, v)
			for _, want := range append(c.want, "<bdi>mcp.example:8443</bdi>", "<bdi>Editor &lt;script&gt;") {
				if !strings.Contains(v.body, want) {
					t.Errorf("got page %s, want %q in it", v.body, want)
				}
			}
			if strings.Contains(v.body, "s3cret") || strings.Contains(v.body, "<script") {
				t.Errorf("got page %s, want no error text and no script", v.body)
			}
			if v := get(t, uri, nil); v.err == nil {
				t.Error("the callback listens after Close")
			}
		})
	}
}

func checkPage(t *testing.T, v page) {
	t.Helper()
	if v.err != nil {
		t.Fatal(v.err)
	}
	policy := v.header.Get("Content-Security-Policy")
	if !strings.HasPrefix(policy, "default-src 'none'; style-src 'sha256-") ||
		!strings.Contains(policy, "frame-ancestors 'none'") ||
		v.header.Get("Cache-Control") != "no-store" || v.header.Get("Referrer-Policy") != "no-referrer" ||
		v.header.Get("X-Content-Type-Options") != "nosniff" ||
		!strings.HasPrefix(v.header.Get("Content-Type"), "text/html") {
		t.Errorf("got header %v, want a strict policy, no-store, no-referrer, nosniff and HTML", v.header)
	}
}

// Requests that are not the authorization response are refused, and the response is accepted after
// them.
func TestCallbackIgnoresOtherRequests(t *testing.T) {
	ready := make(chan struct{})
	callback, login := openCallback(t, &oauthclient.BrowserOptions{Open: func(context.Context, string) error {
		close(ready)
		return nil
	}})
	uri := callback.RedirectURI()
	right := uri + "?state=right&code=c"
	if v := get(t, right, nil); v.status != http.StatusBadRequest {
		t.Errorf("before the login: got %d, want 400", v.status)
	}
	answered := make(chan url.Values)
	go func() {
		answer, err := callback.Authorize(t.Context(), login)
		if err != nil {
			t.Error(err)
		}
		answered <- answer
	}()
	<-ready
	host, _ := url.Parse(uri)
	for name, c := range map[string]struct {
		address string
		change  func(req *http.Request)
		want    int
	}{
		"wrong state":    {uri + "?state=wrong&code=evil", nil, 400},
		"no state":       {uri + "?code=evil", nil, 400},
		"state twice":    {uri + "?state=right&state=right&code=evil", nil, 400},
		"broken query":   {uri + "?state=right&code=%zz", nil, 400},
		"semicolons":     {uri + "?state=right;code=evil", nil, 400},
		"another path":   {strings.Replace(right, "/callback", "/other", 1), nil, 404},
		"icon":           {"http://" + host.Host + "/favicon.ico", nil, 404},
		"another method": {right, func(r *http.Request) { r.Method = http.MethodPost }, 405},
		"head":           {right, func(r *http.Request) { r.Method = http.MethodHead }, 405},
		"another host":   {right, func(r *http.Request) { r.Host = "evil.example" }, 421},
		"host, no port":  {right, func(r *http.Request) { r.Host = "127.0.0.1" }, 421},
		"host as a name": {right, func(r *http.Request) { r.Host = "localhost:" + host.Port() }, 421},
		"rebound name":   {right, func(r *http.Request) { r.Host = "evil.example:" + host.Port() }, 421},
	} {
		if v := get(t, c.address, c.change); v.err != nil || v.status != c.want {
			t.Errorf("%s: got %d, error %v; want %d", name, v.status, v.err, c.want)
		} else {
			checkPage(t, v)
			if strings.Contains(v.body, "mcp.example") || strings.Contains(v.body, "Editor") {
				t.Errorf("%s: the page names the server or the program: %s", name, v.body)
			}
		}
	}
	first := make(chan page, 1)
	go func() { first <- get(t, right, nil) }()
	if answer := <-answered; answer.Get("code") != "c" {
		t.Errorf("got response %v, want code c", answer)
	}
	if v := get(t, uri+"?state=right&code=second", nil); v.status != http.StatusGone {
		t.Errorf("second response: got %d, want 410", v.status)
	}
	callback.Close(nil)
	if v := <-first; v.status != http.StatusOK {
		t.Errorf("page of the first response: got %+v, want 200", v)
	}
}

func TestBrowserTimeout(t *testing.T) {
	callback, login := openCallback(t, &oauthclient.BrowserOptions{Timeout: time.Millisecond})
	if _, err := callback.Authorize(t.Context(), login); !errors.Is(err, oauthclient.ErrLoginTimeout) {
		t.Errorf("after the timeout: got error %v, want ErrLoginTimeout", err)
	}
	callback.Close(oauthclient.ErrLoginTimeout)

	stop := errors.New("stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	callback, login = openCallback(t, &oauthclient.BrowserOptions{Open: func(context.Context, string) error {
		cancel(stop)
		return nil
	}})
	if _, err := callback.Authorize(ctx, login); !errors.Is(err, stop) {
		t.Errorf("cancelled: got error %v, want %v", err, stop)
	}
	callback.Close(stop)
	callback.Close(stop)
}

func TestLoginIsShownIfNoBrowserOpens(t *testing.T) {
	var shown *oauthclient.LoginRequest
	opts := &oauthclient.BrowserOptions{
		Open: func(context.Context, string) error { return errors.New("no display") },
		Show: func(l *oauthclient.LoginRequest) { shown = l }, Logger: slog.New(slog.DiscardHandler),
	}
	callback, err := oauthclient.NewBrowser(opts).Listen(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	login := &oauthclient.LoginRequest{URL: "https://as.example/authorize", State: "right"}
	done := make(chan page, 1)
	go func() {
		v := page{status: http.StatusBadRequest}
		for v.status == http.StatusBadRequest { // until the login has begun
			v = get(t, callback.RedirectURI()+"?state=right&code=c", nil)
		}
		done <- v
	}()
	if answer, err := callback.Authorize(t.Context(), login); err != nil || answer.Get("code") != "c" ||
		shown != login {
		t.Errorf("got response %v, error %v, shown login %v; want code c and %v", answer, err, shown, login)
	}
	callback.Close(nil)
	<-done
}

// Requirement: SEC-15, SEC-17
func TestRefusedLoginPages(t *testing.T) {
	for _, page := range []string{
		"javascript:alert(1)", "file:///etc/passwd", "http://as.example/authorize", "https://user:pw@as.example/",
		"https:///x",
		"vbscript:x", "data:text/html,x", "https://аs.example/", "-https://as.example/", "",
	} {
		callback, login := openCallback(t, &oauthclient.BrowserOptions{Open: func(context.Context, string) error {
			t.Errorf("the browser opened %q", page)
			return nil
		}, Timeout: time.Millisecond})
		login.URL = page
		if _, err := callback.Authorize(t.Context(), login); err == nil || errors.Is(err, oauthclient.ErrLoginTimeout) {
			t.Errorf("%q: got error %v, want one other than ErrLoginTimeout", page, err)
		}
		callback.Close(nil)
	}
}

func TestBrowserListensAtRedirectURI(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	busy := "http://" + taken.Addr().String() + "/callback"
	browser := oauthclient.NewBrowser(nil)
	for _, uris := range [][]string{{busy}, {"https://client.example/callback"}, {"com.example.app:/callback"},
		{"http://client.example/x"}} {
		if c, err := browser.Listen(t.Context(), uris); err == nil {
			t.Errorf("%q: got a callback at %s, want an error", uris, c.RedirectURI())
			c.Close(nil)
		}
	}
	for want, uris := range map[string][]string{
		"http://127.0.0.1:/callback": nil,
		"http://localhost:/cb":       {"https://client.example/x", busy, "http://localhost/cb"},
		"http://127.0.0.1:/a/b":      {"http://127.0.0.1/a/b"},
		"http://127.0.0.1:/":         {"http://127.0.0.1"},
	} {
		c, err := browser.Listen(t.Context(), uris)
		if err != nil {
			t.Errorf("%q: got error %v, want a callback", uris, err)
			continue
		}
		u, _ := url.Parse(c.RedirectURI())
		if u.Port() == "" || u.Port() == "0" || u.Scheme+"://"+u.Hostname()+":"+u.Path != want {
			t.Errorf("%q: got a callback at %s, want one at %s with a port", uris, u, want)
		}
		if v := get(t, c.RedirectURI(), nil); v.status != http.StatusBadRequest {
			t.Errorf("%s: got %d, error %v; want 400", u, v.status, v.err)
		}
		again, err := browser.Listen(t.Context(), []string{c.RedirectURI()})
		if err == nil {
			t.Errorf("got a second callback at %s, want an error", u)
			again.Close(nil)
		}
		c.Close(nil)
		if again, err = browser.Listen(t.Context(), []string{u.String()}); err != nil ||
			again.RedirectURI() != u.String() {
			t.Errorf("%s after Close: got error %v, want a callback", u, err)
		} else {
			again.Close(nil)
		}
	}
}

// The name localhost has two addresses. If another program listens at one of them, the response
// could go there.
func TestBrowserListensAtBothAddresses(t *testing.T) {
	taken, port := listenOnIPv6Only(t)
	defer taken.Close()
	browser := oauthclient.NewBrowser(nil)
	if c, err := browser.Listen(t.Context(), []string{"http://localhost:" + port + "/callback"}); err == nil {
		t.Errorf("got a callback at %s while %s is taken, want an error", c.RedirectURI(), taken.Addr())
		c.Close(nil)
	}
	if again, err := net.Listen("tcp", "127.0.0.1:"+port); err != nil {
		t.Errorf("the failed callback still listens at 127.0.0.1: %v", err)
	} else {
		_ = again.Close()
	}
	c, err := browser.Listen(t.Context(), []string{"http://localhost/callback"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(nil)
	for _, address := range []string{"127.0.0.1", "[::1]"} {
		at, _ := url.Parse(c.RedirectURI())
		host := at.Host
		at.Host = address + ":" + at.Port()
		if v := get(t, at.String(), func(r *http.Request) { r.Host = host }); v.status != http.StatusBadRequest {
			t.Errorf("at %s: got %d, error %v; want 400", address, v.status, v.err)
		}
	}
}

// listenOnIPv6Only listens at [::1], at a port that no program has at 127.0.0.1.
func listenOnIPv6Only(t *testing.T) (l net.Listener, port string) {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", "[::1]:0")
		if err != nil {
			t.Skip("no IPv6: ", err)
		}
		_, port, _ = net.SplitHostPort(l.Addr().String())
		if other, err := net.Listen("tcp", "127.0.0.1:"+port); err == nil {
			_ = other.Close()
			return l, port
		}
		_ = l.Close()
	}
	t.Fatal("no port is free at 127.0.0.1")
	return nil, ""
}

func TestCallbackHost(t *testing.T) {
	for _, tt := range []struct {
		uri, host string
		want      bool
	}{
		{"http://127.0.0.1:7777/", "127.0.0.1:7777", true},
		{"http://127.0.0.1:7777/", "127.0.0.1", false},
		{"http://127.0.0.1:7777/", "127.0.0.1:80", false},
		{"http://127.0.0.1:80/", "127.0.0.1", true},
		{"http://127.0.0.1:80/", "127.0.0.1:80", true},
		{"http://127.0.0.1:80/", "127.0.0.1:7777", false},
		{"http://127.0.0.1:80/", "evil.example", false},
		{"http://127.0.0.1:80/", "127.0.0.1:80:80", false},
		{"http://[::1]:80/", "[::1]", true},
		{"http://[::1]:80/", "::1", false},
		{"http://LocalHost:7777/", "localhost:7777", true},
		{"http://localhost:7777/", "localhost.evil.example:7777", false},
		{"http://localhost:80/", "", false},
	} {
		u, err := url.Parse(tt.uri)
		if err != nil || oauthclient.IsHostOf(u, tt.host) != tt.want {
			t.Errorf("%s, Host %q: got %t, error %v; want %t", tt.uri, tt.host, !tt.want, err, tt.want)
		}
	}
}
