package mcphttp_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/netx"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// everyMethod sends a valid request with the given headers, with each HTTP method, and returns the
// responses. The GET names an unknown session, so that it opens no stream.
func everyMethod(f *fixture, headers ...string) map[string]response {
	body, modernHeaders := modernCall("tools/call", `"name":"echo"`)
	return map[string]response{
		http.MethodPost:    f.do(http.MethodPost, body, append(modernHeaders, headers...)...),
		http.MethodGet:     f.do(http.MethodGet, "", append([]string{"Mcp-Session-Id: x"}, headers...)...),
		http.MethodDelete:  f.do(http.MethodDelete, "", append([]string{"Mcp-Session-Id: x"}, headers...)...),
		http.MethodOptions: f.do(http.MethodOptions, "", headers...),
	}
}

// allowedStatus has the status of each request of everyMethod if its origin and host are allowed.
var allowedStatus = map[string]int{http.MethodPost: 200, http.MethodGet: 404, http.MethodDelete: 404,
	http.MethodOptions: 204}

// Requirement: HTTP-01, HTTP-02
func TestOriginIsValidated(t *testing.T) {
	f := start(t, newTestCore(), &mcphttp.Options{AllowedOrigins: []string{"https://app.example.com",
		"http://localhost:6274"}})
	for _, test := range []struct {
		origin, site string
		allowed      bool
	}{
		{"", "", true},
		{"http://localhost:8765", "", true},
		{"https://localhost:8765", "", true}, // behind a proxy that terminates TLS
		{"https://app.example.com", "cross-site", true},
		{"http://localhost:6274", "same-site", true},
		{"", "same-origin", true},
		{"", "none", true},

		{"null", "", false},
		{"http://evil.example", "", false},
		{"http://localhost", "", false},
		{"http://localhost:8766", "", false},
		{"http://LOCALHOST:8765", "", false},
		{"http://localhost:8765/", "", false},
		{"ftp://localhost:8765", "", false},
		{"http://app.example.com", "", false},
		{"https://app.example.com:443", "", false},
		{"https://app.example.com.evil.example", "", false},
		{"https://evil.example/https://app.example.com", "", false},
		{"https://app.example.com ", "same-origin", true}, // the space is not part of the value
		{"", "cross-site", false},
		{"", "same-site", false},
		{"", "something-new", false},
	} {
		var headers []string
		if test.origin != "" {
			headers = append(headers, "Origin: "+test.origin)
		}
		if test.site != "" {
			headers = append(headers, "Sec-Fetch-Site: "+test.site)
		}
		for method, got := range everyMethod(f, headers...) {
			want := 403
			if test.allowed {
				want = allowedStatus[method]
			}
			if got.status != want {
				t.Errorf("%s from %q (%s): got %d %s, want %d", method, test.origin, test.site, got.status, got.body,
					want)
			}
			if want == 403 && (got.code() != mcp.CodeInvalidRequest || strings.Contains(got.body, `"id"`) ||
				!strings.Contains(got.body, "AllowedOrigins")) {
				t.Errorf("got %s, want an error without id that names the option", got.body)
			}
		}
	}
}

// Requirement: HTTP-03
func TestHostIsValidated(t *testing.T) {
	loopback := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80}
	public := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 80}
	unix := &net.UnixAddr{Name: "/run/mcp.sock", Net: "unix"}
	listed := &mcphttp.Options{AllowedHosts: []string{"mcp.example.com", "exact.example.com:8443"}}
	for _, test := range []struct {
		addr    net.Addr
		opts    *mcphttp.Options
		host    string
		allowed bool
	}{
		{loopback, nil, "localhost", true},
		{loopback, nil, "localhost:1", true},
		{loopback, nil, "LocalHost:65535", true},
		{loopback, nil, "127.0.0.1:8080", true},
		{loopback, nil, "[::1]:8080", true},
		{loopback, nil, "[::1]", true},
		{&net.TCPAddr{IP: net.IPv6loopback}, nil, "127.0.0.1", true},
		{loopback, nil, "evil.example", false},
		{loopback, nil, "evil.example:8765", false},
		{&net.TCPAddr{IP: net.IPv6loopback}, nil, "evil.example", false},
		{loopback, nil, "localhost.evil.example", false},
		{loopback, nil, "localhost.", false},
		{loopback, nil, "127.0.0.1.evil.example", false},
		{loopback, nil, "192.0.2.1", false},
		{loopback, nil, "0.0.0.0", false},
		{loopback, nil, "::1", false},
		{loopback, nil, "localhost:x", false},
		{loopback, &mcphttp.Options{InsecureAnyHost: true}, "evil.example", true},
		{public, nil, "anything.example", true},
		{unix, nil, "anything.example", true},

		{loopback, listed, "localhost", true},
		{loopback, listed, "mcp.example.com", true},
		{loopback, listed, "MCP.example.com:443", true},
		{loopback, listed, "exact.example.com:8443", true},
		{loopback, listed, "exact.example.com", false},
		{loopback, listed, "exact.example.com:8444", false},
		{public, listed, "mcp.example.com", true},
		{public, listed, "localhost", false},
		{public, listed, "192.0.2.1", false},
	} {
		f := start(t, newTestCore(), test.opts, test.addr)
		for method, got := range everyMethod(f, "Host: "+test.host) {
			want := 403
			if test.allowed {
				want = allowedStatus[method]
			}
			if got.status != want {
				t.Errorf("%s to %s as %q: got %d %s, want %d", method, test.addr, test.host, got.status, got.body, want)
			}
			if want == 403 && !strings.Contains(got.body, "AllowedHosts") {
				t.Errorf("got %s, want an error that names the option", got.body)
			}
		}
	}
}

// With DNS rebinding, a page's own host name resolves to the address of the server. Its origin equals
// the Host header, which therefore does not count unless the host is an address or is allowed.
//
// Requirement: HTTP-02
func TestSameOriginNeedsAnAllowedHost(t *testing.T) {
	lan := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 8080}
	for _, test := range []struct {
		host, origin, site string
		allowed            []string
		want               bool
	}{
		{"evil.example:8080", "http://evil.example:8080", "", nil, false},
		{"evil.example:8080", "", "same-origin", nil, false},
		{"evil.example:8080", "", "", nil, true}, // not a browser
		{"192.0.2.7:8080", "http://192.0.2.7:8080", "", nil, true},
		{"localhost:8080", "http://localhost:8080", "", nil, true},
		{"mcp.example:8080", "http://mcp.example:8080", "", []string{"mcp.example"}, true},
		{"mcp.example:8080", "", "same-origin", []string{"mcp.example"}, true},
		{"mcp.example:8080", "http://evil.example:8080", "", []string{"mcp.example"}, false},
	} {
		h := mcphttp.NewHandler(cannedCore, &mcphttp.Options{AllowedHosts: test.allowed})
		r := httptest.NewRequest(http.MethodPost, "http://"+test.host+"/mcp", strings.NewReader(modernBody))
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(lan)))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Mcp-Protocol-Version", modern)
		r.Header.Set("Mcp-Method", "tools/call")
		r.Header.Set("Mcp-Name", "echo")
		if test.origin != "" {
			r.Header.Set("Origin", test.origin)
		}
		if test.site != "" {
			r.Header.Set("Sec-Fetch-Site", test.site)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if got := w.Code != http.StatusForbidden; got != test.want {
			t.Errorf("%+v: got status %d", test, w.Code)
		}
	}
}

func TestRefusedOriginIsLogged(t *testing.T) {
	var log bytes.Buffer
	f := start(t, newTestCore(), &mcphttp.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	f.do(http.MethodPost, "{}", "Origin: http://evil.example")
	if !strings.Contains(log.String(), "origin=http://evil.example") {
		t.Errorf("logged %s, want the origin", log.String())
	}
}

func TestInsecureAnyOriginAllowsEveryOrigin(t *testing.T) {
	f := start(t, newTestCore(), &mcphttp.Options{InsecureAnyOrigin: true})
	for method, got := range everyMethod(f, "Origin: http://evil.example") {
		if got.status != allowedStatus[method] || got.header.Get("Access-Control-Allow-Origin") != "http://evil.example" {
			t.Errorf("%s: got %d %s, want %d and the origin", method, got.status, got.header, allowedStatus[method])
		}
	}
}

func TestHeadersThatDecideMustNotRepeat(t *testing.T) {
	f := start(t, newTestCore(), nil)
	body, headers := modernCall("tools/call", `"name":"echo"`)
	for _, name := range []string{"Mcp-Session-Id", "MCP-Protocol-Version", "Mcp-Method", "Mcp-Name",
		"Mcp-Param-Region",
		"Authorization", "Last-Event-ID", "Content-Type", "Content-Encoding", "Origin", "Sec-Fetch-Site"} {
		r := f.request(t.Context(), http.MethodPost, body, headers...)
		value := r.Header.Get(name)
		r.Header[http.CanonicalHeaderKey(name)] = []string{value, value}
		if resp := f.open(r); resp.StatusCode != 400 {
			t.Errorf("%s: got %d, want 400", name, resp.StatusCode)
		}
	}
	if got := f.do(http.MethodPost, body, append(headers, "X-Other: 1", "X-Other: 2")...); got.status != 200 {
		t.Errorf("another header twice: got %d, want 200", got.status)
	}
}

func TestCORS_HeadersForAllowedOrigins(t *testing.T) {
	f := start(t, newTestCore(), &mcphttp.Options{AllowedOrigins: []string{"https://app.example.com"}})
	const origin = "Origin: https://app.example.com"
	got := f.do(http.MethodOptions, "", origin, "Access-Control-Request-Method: POST",
		"Access-Control-Request-Headers: content-type,mcp-protocol-version,mcp-param-region,x-api-key")
	for name, want := range map[string]string{
		"Access-Control-Allow-Origin":  "https://app.example.com",
		"Access-Control-Allow-Methods": "POST, GET, DELETE",
		"Access-Control-Allow-Headers": "content-type,mcp-protocol-version,mcp-param-region,x-api-key",
		"Access-Control-Max-Age":       "600",
		"Vary":                         "Origin",
	} {
		if got.status != 204 || got.header.Get(name) != want {
			t.Errorf("preflight: got %d, %s: %q, want %q", got.status, name, got.header.Get(name), want)
		}
	}
	initialized := f.do(http.MethodPost, initializeBody(november2025), origin)
	if initialized.status != 200 || initialized.header.Get("Access-Control-Allow-Origin") != "https://app.example.com" ||
		!strings.Contains(initialized.header.Get("Access-Control-Expose-Headers"), "Mcp-Session-Id") {
		t.Errorf("initialize: got %d %s, want 200 and CORS headers", initialized.status, initialized.header)
	}
	if plain := f.do(http.MethodOptions, ""); plain.status != 204 || plain.header.Get("Allow") == "" ||
		plain.header.Get("Access-Control-Allow-Origin") != "" || plain.header.Get("Vary") != "Origin" {
		t.Errorf("OPTIONS without an origin: got %d %s, want 204 with Allow and Vary", plain.status, plain.header)
	}
	foreign := f.do(http.MethodOptions, "", "Origin: https://evil.example", "Access-Control-Request-Method: POST")
	if foreign.status != 403 || foreign.header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("preflight of another origin: got %d %s, want 403", foreign.status, foreign.header)
	}
}

func TestNewHandler_InvalidOptionsPanic(t *testing.T) {
	for name, opts := range map[string]mcphttp.Options{
		"origin with a path":   {AllowedOrigins: []string{"https://app.example.com/"}},
		"origin in upper case": {AllowedOrigins: []string{"https://App.example.com"}},
		"any origin":           {AllowedOrigins: []string{"*"}},
		"null origin":          {AllowedOrigins: []string{"null"}},
		"host with a scheme":   {AllowedHosts: []string{"https://mcp.example.com"}},
		"empty host":           {AllowedHosts: []string{""}},
		"negative body":        {MaxBody: -1},
		"negative sessions":    {Sessions: mcphttp.SessionOptions{Max: -1}},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("NewHandler did not panic")
				}
			}()
			mcphttp.NewHandler(newTestCore(), &opts)
		})
	}
}

func FuzzOrigin(f *testing.F) {
	for _, seed := range []string{"http://localhost:8765", "https://localhost:8765", "null", "",
		"http://localhost:8765@evil",
		"http://evil#localhost:8765", "http://localhost:8765\x00", "http:///localhost:8765", "HTTP://localhost:8765"} {
		f.Add(seed, "localhost:8765", false)
		f.Add(seed, "localhost:8765", true)
	}
	f.Add("http://example.com", "example.com:80", false)
	f.Fuzz(func(t *testing.T, origin, host string, encrypted bool) {
		r := &http.Request{Host: host}
		if encrypted {
			r.TLS = &tls.ConnectionState{}
		}
		if !mcphttp.IsSameOrigin(origin, r) {
			return
		}
		// An accepted origin is a scheme and the host of the request, but for a default port.
		name, _ := strings.CutSuffix(strings.TrimSuffix(host, ":80"), ":443")
		if origin != "http://"+host && origin != "https://"+host && origin != "http://"+name &&
			origin != "https://"+name || host == "" {
			t.Errorf("%q is the same origin as host %q, want another", origin, host)
		}
		if encrypted && strings.HasPrefix(origin, "http:") {
			t.Errorf("%q is the same origin as an encrypted connection, want another", origin)
		}
		if u, err := url.Parse(origin); err == nil && u.Host != host && u.Host != name {
			t.Errorf("%q is the same origin as host %q, but its host is %q", origin, host, u.Host)
		}
	})
}

func FuzzHost(f *testing.F) {
	for _, seed := range []string{"localhost", "localhost:80", "[::1]:80", "[::1]", "::1", "127.0.0.1", "127.1",
		"0x7f.1", "[::1%lo]",
		"[::ffff:127.0.0.1]", "localhost:", "localhost:99999", "localhost:80:80", "evil.example", "ſocalhost",
		"localhoſt", "[localhost]"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, host string) {
		name, port, ok := mcphttp.SplitHost(host)
		if !ok {
			return
		}
		if joined := name + ":" + port; port != "" && joined != host && "["+name+"]:"+port != host {
			t.Errorf("%q is split into %q and %q", host, name, port)
		}
		if !netx.IsLoopback(name) {
			return
		}
		ip, err := netip.ParseAddr(name)
		isASCII := strings.IndexFunc(name, func(c rune) bool { return c > 127 }) < 0
		if !(err == nil && ip.IsLoopback() || isASCII && strings.EqualFold(name, "localhost")) {
			t.Errorf("%q is a loopback host, want another", name)
		}
	})
}

// Many refused requests are summed up in the log.
func TestGuard_RefusalsAreSummedUpInTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log syncBuffer
		f := start(t, newTestCore(), &mcphttp.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		send := func(requests int) {
			for n := range requests {
				header := "Origin: http://evil.example\x1b[31m"
				if n%2 == 0 {
					header = "Host: evil.example"
				}
				w := httptest.NewRecorder()
				r := f.request(t.Context(), http.MethodPost, "{}", header)
				addr := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}
				r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(addr)))
				if f.handler.ServeHTTP(w, r); w.Code != 403 {
					t.Fatalf("%s: got %d, want 403", header, w.Code)
				}
			}
		}
		send(1000)
		if got := strings.Count(log.String(), "request refused"); got != 10 {
			t.Errorf("%d lines for 1000 requests, want 10", got)
		}
		time.Sleep(11 * time.Second)
		if got := log.String(); strings.Count(got, "\n") != 11 || !strings.Contains(got, "requests=990") {
			t.Errorf("got %s, want 11 lines and the sum", got)
		}
		send(5)
		time.Sleep(time.Minute)
		if got := log.String(); strings.Count(got, "\n") != 16 || strings.Contains(got, "\x1b") {
			t.Errorf("got %s, want 5 more lines, and no control characters", got)
		}
	})
}
