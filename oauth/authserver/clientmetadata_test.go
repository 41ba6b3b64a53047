package authserver_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/oauth"
	"github.com/patchbay-mcp/patchbay/oauth/authserver"
)

// A documentHost serves Client ID Metadata Documents.
type documentHost struct {
	*httptest.Server

	mu     sync.Mutex
	body   string // "ID" in it stands for the requested URL
	header http.Header
	status int
	calls  int
	jwks   string // the response to /jwks
}

func newDocumentHost(t *testing.T) *documentHost {
	h := &documentHost{status: http.StatusOK, header: http.Header{}, body: document("")}
	h.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.calls++
		for name, values := range h.header {
			w.Header()[name] = values
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(h.status)
		if r.URL.Path == "/jwks" {
			_, _ = w.Write([]byte(h.jwks))
			return
		}
		_, _ = w.Write([]byte(strings.ReplaceAll(h.body, "ID", h.URL+r.URL.Path)))
	}))
	t.Cleanup(h.Close)
	return h
}

// document returns a valid document with additional members.
func document(more string) string {
	return `{"client_id":"ID","client_name":"Doc",` +
		`"redirect_uris":["http://127.0.0.1/cb","https://app.example/cb"]` + more + `}`
}

func (h *documentHost) set(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
}

func (h *documentHost) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.calls
}

// fetcher returns a Fetcher that may connect to the host. It checks the certificate at a time when
// that is valid, because the time of synctest is not.
func (h *documentHost) fetcher() *oauth.Fetcher { return h.slowFetcher(nil) }

// slowFetcher returns a fetcher that calls wait before each request. A slow host would block a
// connection, and so the time of synctest.
func (h *documentHost) slowFetcher(wait func(*http.Request) error) *oauth.Fetcher {
	config := &tls.Config{
		RootCAs: h.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs,
		Time:    func() time.Time { return h.Certificate().NotBefore.Add(time.Hour) },
	}
	o := oauth.FetcherOptions{TLSConfig: config, AllowedHosts: []string{"127.0.0.1"},
		Logger: slog.New(slog.DiscardHandler)}
	if wait != nil {
		o.Proxy = func(r *http.Request) (*url.URL, error) { return nil, wait(r) }
	}
	return oauth.NewFetcher(&o)
}

func (h *documentHost) newEnv(t *testing.T, change func(*authserver.Options)) *env {
	return newInProcessEnv(t, func(o *authserver.Options) {
		o.ClientMetadata.Fetcher = h.fetcher()
		if change != nil {
			change(o)
		}
	})
}

// Requirement: REG-03, REG-07
func TestClientWithADocumentLogsIn(t *testing.T) {
	h := newDocumentHost(t)
	h.body = document(`,"client_uri":"https://famous.example",` +
		`"grant_types":["authorization_code","refresh_token","implicit"]`)
	w := h.newEnv(t, nil)
	id := h.URL + "/client.json"
	q := authorizeQuery("client_id", id, "redirect_uri", "http://127.0.0.1:7/cb")
	page, _ := w.browser().consentPage(q)
	for _, want := range []string{"Published by <strong>127.0.0.1</strong>", "<bdi>Doc</bdi>", "famous.example"} {
		if !strings.Contains(page.body, want) {
			t.Errorf("the page lacks %q: %s", want, page.body)
		}
	}
	code := w.browser().authorize(q).Get("code")
	got := w.tokensOf(w.post("/token", exchangeForm(code, "client_id", id, "redirect_uri", "http://127.0.0.1:7/cb")))
	w.wantValid(got.Access, "of a client with a document")
	if n := h.count(); n != 1 {
		t.Errorf("the document was fetched %d times, want once", n)
	}
}

// The error page says that the document is invalid, and does not repeat its content.
//
// Requirement: REG-08
func TestInvalidDocumentsAreRefused(t *testing.T) {
	h := newDocumentHost(t)
	for name, body := range map[string]string{
		"another client_id":          strings.Replace(document(""), `"ID"`, `"https://evil.example/client.json"`, 1),
		"client_id with a slash":     strings.Replace(document(""), `"ID"`, `"ID/"`, 1),
		"no name":                    strings.Replace(document(""), `"Doc"`, `""`, 1),
		"no redirect URIs":           `{"client_id":"ID","client_name":"Doc"}`,
		"redirect to a script":       `{"client_id":"ID","client_name":"Doc","redirect_uris":["javascript:alert(1)"]}`,
		"redirect over http":         `{"client_id":"ID","client_name":"Doc","redirect_uris":["http://app.example"]}`,
		"a secret":                   document(`,"client_secret":"s"`),
		"authentication by secret":   document(`,"token_endpoint_auth_method":"client_secret_basic"`),
		"unknown authentication":     document(`,"token_endpoint_auth_method":"tls_client_auth"`),
		"no key for private_key_jwt": document(`,"token_endpoint_auth_method":"private_key_jwt"`),
		"a member twice":             document(`,"client_name":"Other"`),
		"not an object":              `["ID"]`,
		"not JSON":                   `<html>`,
		"too deep":                   document(`,"x":` + strings.Repeat("[", 50) + strings.Repeat("]", 50)),
		"too large":                  document(`,"x":"` + strings.Repeat("x", 1<<20) + `"`),
		"bidi control in the name":   strings.Replace(document(""), "Doc", "Doc\u202e", 1),
	} {
		h.set(func() { h.body = body })
		w := h.newEnv(t, nil)
		res := w.browser().get("/authorize?" + authorizeQuery("client_id", h.URL+"/client.json", "redirect_uri",
			"http://127.0.0.1/cb").Encode())
		if res.StatusCode != http.StatusBadRequest || res.Header.Get("Location") != "" || strings.Contains(res.body,
			"evil.example") {
			t.Errorf("%s: %s, Location %q, want 400 without a redirect", name, res.Status, res.Header.Get("Location"))
		}
		if !strings.Contains(res.body, "metadata document") {
			t.Errorf("%s: the page does not name the metadata document: %s", name, res.body)
		}
	}
	for _, status := range []int{
		http.StatusNotFound, http.StatusInternalServerError, http.StatusFound, http.StatusNoContent,
	} {
		h.set(func() { h.status, h.body = status, document(""); h.header.Set("Location", "/other") })
		w := h.newEnv(t, nil)
		if _, err := authserver.DocumentClient(t.Context(), w.server, h.URL+"/client.json"); err == nil {
			t.Errorf("document with status %d was accepted", status)
		}
	}
}

// Requirement: REG-09, SEC-22
func TestDocumentsAreFetchedOnlyFromPublicAddresses(t *testing.T) {
	h := newDocumentHost(t)
	w := newInProcessEnv(t, nil) // with the default Fetcher
	for _, id := range []string{
		h.URL + "/client.json", "https://169.254.169.254/latest/meta-data", "https://10.0.0.1/c", "https://[::1]/c",
		"https://localhost/c",
		"http://example.com/c", "https://example.com", "https://user@example.com/c", "https://example.com/c#f",
		"file:///etc/passwd", "https://[::ffff:127.0.0.1]/c",
		"https://2130706433/c", "https://0/c", "https://example.com/../c", "gopher://example.com/c",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		if _, err := authserver.DocumentClient(ctx, w.server, id); err == nil {
			t.Errorf("%s was accepted", id)
		} else if strings.Contains(err.Error(), "refused") && strings.Contains(err.Error(), "connect") {
			t.Errorf("%s: the error reveals whether the port is open: %v", id, err)
		}
		cancel()
	}
	if n := h.count(); n != 0 {
		t.Errorf("the host on this machine got %d requests, want 0", n)
	}
}

func TestDocumentHostsCanBeRestricted(t *testing.T) {
	for name, c := range map[string]struct {
		allowed, denied []string
		host            string
		accepted        bool
	}{
		"no policy":             {nil, nil, "127.0.0.1", true},
		"allowed":               {[]string{"127.0.0.1"}, nil, "127.0.0.1", true},
		"not allowed":           {[]string{"other.example"}, nil, "127.0.0.1", false},
		"denied":                {nil, []string{"127.0.0.1"}, "127.0.0.1", false},
		"both":                  {[]string{"127.0.0.1"}, []string{"127.0.0.1"}, "127.0.0.1", false},
		"other domain":          {[]string{".example.com"}, nil, "evilexample.com", false},
		"parent domain":         {[]string{".example.com"}, nil, "example.com", false},
		"denied in upper case":  {nil, []string{"Evil.Example"}, "eVIL.example", false},
		"denied with final dot": {nil, []string{"evil.example"}, "evil.example.", false},
		"denied subdomain":      {nil, []string{".evil.example"}, "a.b.evil.example", false},
	} {
		h := newDocumentHost(t)
		w := h.newEnv(t, func(o *authserver.Options) {
			o.ClientMetadata.AllowedHosts, o.ClientMetadata.DeniedHosts = c.allowed, c.denied
		})
		_, err := authserver.DocumentClient(t.Context(), w.server, strings.Replace(h.URL, "127.0.0.1", c.host, 1)+"/c")
		if (err == nil) != c.accepted {
			t.Errorf("%s: got %v, want accepted %v", name, err, c.accepted)
		}
		if !c.accepted && h.count() > 0 {
			t.Errorf("%s: the document was fetched", name)
		}
		if !c.accepted && !strings.Contains(err.Error(), "does not accept") {
			t.Errorf("%s: got %v, want the error of the host policy", name, err)
		}
	}
}

// Requirement: REG-07
func TestDocumentsAreCachedByCacheControl(t *testing.T) {
	for header, lifetime := range map[string]time.Duration{
		"max-age=3600": time.Hour, "no-store": time.Minute, "max-age=0": time.Minute, "": 5 * time.Minute,
		"max-age=31536000": 24 * time.Hour,
	} {
		h := newDocumentHost(t)
		h.header.Set("Cache-Control", header)
		synctest.Test(t, func(t *testing.T) {
			w := h.newEnv(t, nil)
			get := func() []string {
				uris, err := authserver.DocumentClient(t.Context(), w.server, h.URL+"/c")
				if err != nil {
					t.Fatal(err)
				}
				return uris
			}
			get()
			h.set(func() { h.body = strings.Replace(h.body, "app.example", "new.example", 1) })
			time.Sleep(lifetime - 1)
			if uris := get(); uris[1] != "https://app.example/cb" || h.count() != 1 {
				t.Errorf("%q: before %v: %v, fetched %d times, want the cached one", header, lifetime, uris, h.count())
			}
			time.Sleep(1)
			if uris := get(); uris[1] != "https://new.example/cb" || h.count() != 2 {
				t.Errorf("%q: after %v: %v, fetched %d times, want the new one", header, lifetime, uris, h.count())
			}
		})
	}
}

func TestStaleDocumentsAreUsedForADay(t *testing.T) {
	h := newDocumentHost(t)
	synctest.Test(t, func(t *testing.T) {
		w := h.newEnv(t, nil)
		get := func() error {
			_, err := authserver.DocumentClient(t.Context(), w.server, h.URL+"/c")
			return err
		}
		if err := get(); err != nil {
			t.Fatal(err)
		}
		h.set(func() { h.status = http.StatusBadGateway })
		for hour := range 23 {
			time.Sleep(time.Hour)
			if err := get(); err != nil {
				t.Errorf("%d hours into an outage: %v", hour+1, err)
			}
		}
		time.Sleep(time.Hour)
		if err := get(); err == nil {
			t.Error("a day into an outage: the document was accepted")
		}
		h.set(func() { h.status = http.StatusOK })
		time.Sleep(time.Minute)
		if err := get(); err != nil {
			t.Errorf("after the outage: %v", err)
		}
		h.set(func() { h.status = http.StatusGone })
		time.Sleep(time.Hour)
		if err := get(); err == nil {
			t.Error("status 410: the cached document was accepted")
		}
	})
}

func TestDocumentsAreFetchedOnceAndWithinLimits(t *testing.T) {
	h := newDocumentHost(t)
	synctest.Test(t, func(t *testing.T) {
		w := h.newEnv(t, func(o *authserver.Options) { o.Limits.Fetches = authserver.Rate{Count: 5, Per: time.Hour} })
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if _, err := authserver.DocumentClient(t.Context(), w.server, h.URL+"/c"); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n := h.count(); n != 1 {
			t.Errorf("20 concurrent requests made %d fetches, want 1", n)
		}
		for i := range 20 {
			_, _ = authserver.DocumentClient(t.Context(), w.server, fmt.Sprintf("%s/%d", h.URL, i))
		}
		if n := h.count(); n != 5 {
			t.Errorf("the host got %d requests, want 5", n)
		}
		if _, err := authserver.DocumentClient(t.Context(), w.server, h.URL+"/19"); err == nil ||
			!strings.Contains(err.Error(), "temporarily_unavailable") {
			t.Errorf("beyond the limit: %v, want temporarily_unavailable", err)
		}
	})
}
