package oauthfetch_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/oauthfetch"
	"github.com/patchbay-mcp/patchbay/internal/oauthtest"
	"github.com/patchbay-mcp/patchbay/mcptest"
	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
)

func TestMain(m *testing.M) { os.Exit(testhome.Main(m, mcptest.Main)) }

func getJSON(t *testing.T, f *oauthfetch.Fetcher, address string, into any) error {
	t.Helper()
	_, err := f.GetJSON(t.Context(), address, into)
	return err
}

const docURL = "https://as.example/doc"

type document struct {
	Name string `json:"name"`
	Rest any    `json:"rest"`
}

// The request has an Accept header, and no cookie, referrer or encoding.
func TestFetchDocument(t *testing.T) {
	w := oauthtest.NewNetwork(t)
	w.Doc(docURL, `{"name":"a","more":[1]}`)
	var got document
	if err := getJSON(t, w.Fetcher(nil), docURL, &got); err != nil || got.Name != "a" {
		t.Fatalf("got %+v, error %v; want the document", got, err)
	}
	h := w.LastHeader()
	if h.Get("Accept") != "application/json" || h.Get("Cookie") != "" || h.Get("Referer") != "" ||
		h.Get("Accept-Encoding") != "" {
		t.Errorf("got request header %v, want Accept: application/json and no others", h)
	}
}

// A document at a limit is accepted; one beyond it is refused.
func TestFetchLimits(t *testing.T) {
	nested := func(depth int) string {
		return `{"rest":` + strings.Repeat("[", depth-1) + strings.Repeat("]", depth-1) + "}"
	}
	padded := func(size int) string {
		const frame = `{"name":""}`
		return `{"name":"` + strings.Repeat("x", size-len(frame)) + `"}`
	}
	for _, tt := range []struct {
		name, text string
		ok         bool
	}{
		{"size at the limit", padded(oauthfetch.MaxDocument), true},
		{"size over the limit", padded(oauthfetch.MaxDocument + 1), false},
		{"depth at the limit", nested(oauthfetch.MaxDepth), true},
		{"depth over the limit", nested(oauthfetch.MaxDepth + 1), false},
		{"depth of 100,000", nested(100_000), false},
		{"duplicate claim", `{"name":"a","name":"b"}`, false},
		{"nested duplicate member", `{"rest":[{"a":1,"\u0061":2}]}`, false},
		{"a name in another case", `{"Name":"a"}`, true}, // it is another member
		{"bad UTF-8", "{\"name\":\"\xff\"}", false},
		{"a second value", `{}{}`, false},
		{"a byte order mark", "\ufeff{}", false},
		{"an array", `[]`, false},
		{"a string", `"a"`, false},
		{"null", `null`, false},
		{"a wrong type", `{"name":1}`, false},
		{"empty", ``, false},
		{"cut off", `{"name":"a`, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := oauthtest.NewNetwork(t)
			w.Doc(docURL, tt.text)
			var got document
			err := getJSON(t, w.Fetcher(nil), docURL, &got)
			if (err == nil) != tt.ok {
				t.Fatalf("got error %v, want success %t", err, tt.ok)
			}
			if _, is := errors.AsType[*oauthfetch.Error](err); err != nil && !is {
				t.Errorf("got error type %T, want *oauthfetch.Error", err)
			}
			if tt.name == "a name in another case" && got.Name != "" {
				t.Errorf("got name %q, want member names to be case-sensitive", got.Name)
			}
		})
	}
}

func TestFetchMediaTypes(t *testing.T) {
	for _, tt := range []struct {
		kind string
		ok   bool
	}{
		{"application/json", true},
		{"application/json; charset=utf-8", true},
		{"Application/JSON", true},
		{"application/jwk-set+json", true},
		{"", true},
		{"text/html", false},
		{"text/plain", false},
		{"text/evil+json", false},
		{"application/json, text/html", false},
		{";", false},
	} {
		t.Run(tt.kind, func(t *testing.T) {
			w := oauthtest.NewNetwork(t)
			w.Page(docURL, func(rw http.ResponseWriter, _ *http.Request) {
				rw.Header()["Content-Type"] = []string{tt.kind}
				if tt.kind == "" {
					rw.Header()["Content-Type"] = nil
				}
				_, _ = io.WriteString(rw, "{}")
			})
			if err := getJSON(t, w.Fetcher(nil), docURL, new(document)); (err == nil) != tt.ok {
				t.Errorf("got error %v, want success %t", err, tt.ok)
			}
		})
	}
}

// Body and header are read up to their limits.
func TestFetchEndlessResponse(t *testing.T) {
	w := oauthtest.NewNetwork(t)
	w.Page(docURL, func(rw http.ResponseWriter, _ *http.Request) {
		block := bytes.Repeat([]byte(" "), 64<<10)
		for err := error(nil); err == nil; {
			_, err = rw.Write(block)
		}
	})
	if err := getJSON(t, w.Fetcher(nil), docURL, new(document)); err == nil || !strings.Contains(err.Error(), "1 MiB") {
		t.Errorf("got error %v, want one about the limit of 1 MiB", err)
	}
	w.Page("https://as.example/headers", func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("X-Long", strings.Repeat("x", 70<<10))
		rw.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(rw, "{}")
	})
	if err := getJSON(t, w.Fetcher(nil), "https://as.example/headers", new(document)); err == nil {
		t.Error("a header block of 70 KiB was accepted")
	}
}

// silentPage waits until the client has closed the connection. It then aborts the response: a
// handler that returns sends status 200, which the client may still read while it closes TLS.
func silentPage(_ http.ResponseWriter, req *http.Request) {
	<-req.Context().Done()
	panic(http.ErrAbortHandler)
}

// The timeout covers the whole exchange, including the body and all redirects.
func TestFetchTimeout(t *testing.T) {
	for name, page := range map[string]http.HandlerFunc{
		"slow body": func(rw http.ResponseWriter, req *http.Request) {
			for {
				if _, err := rw.Write([]byte(" ")); err != nil {
					return
				}
				if http.NewResponseController(rw).Flush() != nil {
					return
				}
				time.Sleep(time.Second)
			}
		},
		"silence": silentPage,
		"redirects": func(rw http.ResponseWriter, req *http.Request) {
			time.Sleep(4 * time.Second)
			oauthtest.RedirectPage(docURL)(rw, req)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := oauthtest.NewNetwork(t)
				w.Page(docURL, page)
				start := time.Now()
				err := getJSON(t, w.Fetcher(nil), docURL, new(document))
				if took := time.Since(start); took != 10*time.Second || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("took %v with error %v, want DeadlineExceeded after 10s", took, err)
				}
			})
		})
	}
}

func TestFetchEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := oauthtest.NewNetwork(t)
		w.Page(docURL, silentPage)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		err := getJSONContext(ctx, w.Fetcher(nil), docURL, new(document))
		if took := time.Since(start); took != time.Second || err == nil {
			t.Errorf("took %v with error %v, want an error after 1s", took, err)
		}
	})
}

func TestFetchRedirects(t *testing.T) {
	for _, tt := range []struct {
		name, to string
		ok       bool
	}{
		{"a path of the origin", "/other", true},
		{"a URL of the origin", "https://as.example:443/other", true},
		{"another host", "https://other.example/other", false},
		{"another port", "https://as.example:8443/other", false},
		{"plain http", "http://as.example/other", false},
		{"a private address", "https://10.0.0.1/other", false},
		{"the loopback host", "https://localhost/other", false},
		{"a file", "file:///etc/passwd", false},
		{"a user", "https://user@as.example/other", false},
		{"empty location", "", false},
		{"invalid location", "https://[", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := oauthtest.NewNetwork(t)
			w.Page(docURL, oauthtest.RedirectPage(tt.to))
			for _, at := range []string{"https://as.example/other", "https://as.example:443/other",
				"https://other.example/other"} {
				w.Doc(at, "{}")
			}
			err := getJSON(t, w.Fetcher(nil), docURL, new(document))
			if (err == nil) != tt.ok {
				t.Errorf("got error %v, want success %t", err, tt.ok)
			}
			if n := len(w.Requests()); !tt.ok && n != 1 {
				t.Errorf("got %d requests, want 1", n)
			}
		})
	}
}

func TestFetchRedirectLimit(t *testing.T) {
	for n := oauthfetch.MaxRedirects; n <= oauthfetch.MaxRedirects+1; n++ {
		w := oauthtest.NewNetwork(t)
		at := docURL
		for i := range n {
			next := docURL + strings.Repeat("x", i+1)
			w.Page(at, oauthtest.RedirectPage(next))
			at = next
		}
		w.Doc(at, "{}")
		err := getJSON(t, w.Fetcher(nil), docURL, new(document))
		if (err == nil) != (n == oauthfetch.MaxRedirects) {
			t.Errorf("%d redirects: got error %v, want success %t", n, err, n == oauthfetch.MaxRedirects)
		}
	}
}

// A form contains secrets, so it is not sent to another URL.
func TestFetchFollowsNoRedirectOfAPost(t *testing.T) {
	for _, status := range []int{301, 302, 303, 307, 308} {
		w := oauthtest.NewNetwork(t)
		w.Page(docURL, func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Location", "/other")
			rw.WriteHeader(status)
		})
		_, err := w.Fetcher(nil).PostForm(t.Context(), docURL, url.Values{"code": {"secret"}}, nil)
		if got := w.Requests(); err == nil || len(got) != 1 {
			t.Errorf("status %d: got requests %v, error %v; want one request and an error", status, got, err)
		}
	}
}

// Errors contain no query, user information or fragment of a URL, no form and no response text.
func TestFetchErrorsContainNoSecrets(t *testing.T) {
	const secret = "s3cret"
	w := oauthtest.NewNetwork(t)
	for path, text := range map[string]string{"broken": "HTTP/1.1 " + secret,
		"header": "HTTP/1.1 200 OK\r\n" + secret} {
		w.Page("https://as.example/"+path, func(rw http.ResponseWriter, req *http.Request) {
			conn, _, err := http.NewResponseController(rw).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.WriteString(conn, text+"\r\n\r\n")
			_, _ = io.Copy(io.Discard, conn)
			_ = conn.Close()
		})
	}
	w.Doc("https://as.example/type", `{"name":["`+secret+`"]}`)
	w.Doc("https://as.example/bad", `{"name":"`+secret+`}`)
	w.Page("https://as.example/away", oauthtest.RedirectPage("https://other.example/?"+secret))
	f := w.Fetcher(nil)
	for _, address := range []string{
		"https://as.example/missing?" + secret, "https://as.example/broken", "https://as.example/header",
		"https://as.example/type", "https://as.example/bad", "https://as.example/away",
		"https://user:" + secret + "@as.example/", "https://as.example/#" + secret, "http://as.example/?" + secret,
		"https://as.example/ " + secret, "https://as.example:" + secret + "/", "?" +
			secret, "https://10.0.0.1/?" + secret,
	} {
		err := getJSON(t, f, address, new(document))
		if err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: got error %v, want one without the secret", address, err)
		}
		_, err = f.PostForm(t.Context(), address, url.Values{"code": {secret}}, nil)
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("%s: got error %v, want one without the secret", address, err)
		}
	}
}

// Each request opens its own connection, since an open one was checked for another Fetcher.
func TestFetchKeepsNoConnections(t *testing.T) {
	w := oauthtest.NewNetwork(t)
	w.Doc(docURL, "{}")
	f := w.Fetcher(nil)
	endpoint, _ := url.Parse("https://mcp.example/mcp")
	for _, f := range []*oauthfetch.Fetcher{f, f, f.For(endpoint)} {
		if err := getJSON(t, f, docURL, new(document)); err != nil {
			t.Fatal(err)
		}
		if got := w.Addresses(); len(got) != 1 {
			t.Errorf("connected to %v, want one new connection", got)
		}
	}
}

func TestHTTPClientFollowsTheRules(t *testing.T) {
	w := oauthtest.NewNetwork(t)
	w.Doc(docURL, `{"name":"a"}`)
	w.Doc("https://as.example/large", strings.Repeat(" ", oauthfetch.MaxDocument+1))
	w.Page("https://as.example/away", oauthtest.RedirectPage("https://other.example/"))
	client := w.Fetcher(nil).HTTPClient()
	get := func(address string) (int, error) {
		resp, err := client.Get(address)
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		_, err = io.ReadAll(resp.Body)
		return resp.StatusCode, err
	}
	if status, err := get(docURL); status != http.StatusOK || err != nil {
		t.Errorf("got %d, error %v; want 200", status, err)
	}
	if _, err := get("https://as.example/large"); err == nil {
		t.Error("a body beyond the limit was read")
	}
	if status, err := get("https://as.example/away"); status != http.StatusFound || err != nil {
		t.Errorf("redirect to another host: got %d, error %v; want the 302", status, err)
	}
	for _, address := range []string{"http://as.example/doc", "https://10.0.0.1/", "https://169.254.169.254/",
		"https://localhost/"} {
		if _, err := get(address); !errors.Is(err, oauthfetch.ErrURLRefused) {
			t.Errorf("%s: got error %v, want ErrURLRefused", address, err)
		}
	}
	got := w.Requests()
	if slices.ContainsFunc(got, func(r string) bool { return !strings.Contains(r, "//as.example/") }) {
		t.Errorf("requested %v, want only URLs of as.example", got)
	}
}

// A proxy is used only if Options.Proxy is set, and URLs are checked before it.
func TestFetchProxy(t *testing.T) {
	var proxied []string
	at := startRefusingProxy(t, &proxied)
	f := oauthfetch.New(&oauthfetch.Options{Proxy: func(*http.Request) (*url.URL, error) { return at, nil }})
	if err := getJSON(t, f, docURL, new(document)); err == nil ||
		!slices.Equal(proxied, []string{"CONNECT as.example:443"}) {
		t.Errorf("got proxy requests %v, error %v; want one CONNECT and an error", proxied, err)
	}
	for _, address := range []string{"https://10.0.0.1/", "http://as.example/", "https://127.0.0.1/"} {
		if err := getJSON(t, f, address, new(document)); !errors.Is(err, oauthfetch.ErrURLRefused) {
			t.Errorf("%s: got error %v, want ErrURLRefused", address, err)
		}
	}
	server, _ := url.Parse("https://mcp.example/mcp")
	if err := getJSON(t, f.For(server), "https://10.0.0.1/", new(document)); !errors.Is(err, oauthfetch.ErrURLRefused) {
		t.Errorf("For a server with an unknown address: got error %v, want ErrURLRefused", err)
	}
	if len(proxied) != 1 {
		t.Errorf("got proxy requests %v, want only the first", proxied)
	}

	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"} {
		t.Setenv(name, at.String())
	}
	w := oauthtest.NewNetwork(t)
	w.Doc(docURL, "{}")
	if err := getJSON(t, w.Fetcher(nil), docURL, new(document)); err != nil {
		t.Errorf("proxy in the environment: got error %v, want a direct request", err)
	}
}

// The checks also apply to the operating system's resolver and dialer, which the other tests
// replace.
//
// Requirement: SEC-08
func TestFetchGuardsTheRealNetwork(t *testing.T) {
	asked := 0
	s := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		asked++
		oauthtest.JSONPage("{}")(rw, req)
	}))
	defer s.Close()
	at, _ := url.Parse(s.URL)
	f := oauthfetch.New(&oauthfetch.Options{TLSConfig: s.Client().Transport.(*http.Transport).TLSClientConfig})
	remote, _ := url.Parse("https://192.88.99.1/mcp")
	for _, f := range []*oauthfetch.Fetcher{f, f.For(remote)} {
		for _, host := range []string{"127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "127.1", "2130706433",
			"0x7f000001", "[::1]", "0.0.0.0"} {
			err := getJSON(t, f, "https://"+host+":"+at.Port()+"/", new(document))
			if err == nil || asked != 0 {
				t.Errorf("%s: got error %v and %d requests, want an error and none", host, err, asked)
			}
			if host == "localhost" && !errors.Is(err, oauthfetch.ErrURLRefused) {
				t.Errorf("%s: got error %v, want ErrURLRefused", host, err)
			}
		}
	}
	if err := getJSON(t, f.For(at), s.URL, new(document)); err != nil || asked != 1 {
		t.Errorf("For a local server: got error %v, want one request", err)
	}
}

func getJSONContext(ctx context.Context, f *oauthfetch.Fetcher, address string, into any) error {
	_, err := f.GetJSON(ctx, address, into)
	return err
}
