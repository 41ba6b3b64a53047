package oauthclient_test

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/oauthfetch"
	"github.com/patchbay-mcp/patchbay/oauth"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// rebind makes the MCP server's name resolve to a public address in the two lookups of a discovery,
// and then to a private one.
func rebind(w *testEnv) {
	w.At("mcp.example", "10.0.0.1")
	w.Next("mcp.example", "8.8.8.8", "8.8.8.8")
}

// privateEndpoint moves an endpoint of the authorization server to a private address. It returns
// the methods of the requests that arrive there.
func privateEndpoint(w *testEnv, member, path string) *[]string {
	var requests []string
	w.At("intranet.corp", "10.0.0.9")
	w.Page("https://intranet.corp"+path, func(rw http.ResponseWriter, req *http.Request) {
		requests = append(requests, req.Method)
		w.asPage(path)(rw, req)
	})
	w.as.set(func(s *fakeServer) { s.document[member] = "https://intranet.corp" + path })
	return &requests
}

// asPage returns the page of the authorization server at a path.
func (w *testEnv) asPage(path string) http.HandlerFunc {
	return w.Handler(clientIssuer + path)
}

// A server that was public at the discovery causes no request to a private address later, whatever
// its name resolves to then.
//
// Requirement: SEC-08
func TestRebindingBetweenSteps(t *testing.T) {
	for member, path := range map[string]string{"registration_endpoint": "/register", "token_endpoint": "/token"} {
		t.Run(member, func(t *testing.T) {
			withEnv(t, func(t *testing.T, w *testEnv) {
				requests := privateEndpoint(w, member, path)
				rebind(w)
				if _, _, err := post(w.transport(nil), t.Context()); !errors.Is(err, oauth.ErrURLRefused) ||
					len(*requests) != 0 {
					t.Errorf("got error %v and requests to the private address %q, want ErrURLRefused and none", err,
						*requests)
				}
				// A private MCP server may use the private endpoint.
				w.At("mcp.example", "10.0.0.1")
				w.mustPost(w.transport(nil))
				if len(*requests) == 0 {
					t.Error("got no request at the private endpoint")
				}
			})
		})
	}
}

// The network scope of the discovery is stored and applies to renewals.
//
// Requirement: SEC-08
func TestRebindingBeforeRenewal(t *testing.T) {
	for name, record := range map[string]func(text string) string{
		"as it is stored": func(text string) string { return text },
		"without reach":   func(text string) string { return strings.Replace(text, `"reach":"public",`, ``, 1) },
		"invalid reach": func(text string) string {
			return strings.Replace(text, `"reach":"public"`, `"reach":"all"`, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			withEnv(t, func(t *testing.T, w *testEnv) {
				store := oauthclient.NewMemoryStore()
				w.mustPost(w.transport(&oauthclient.TransportOptions{Store: store}))
				requests := privateEndpoint(w, "token_endpoint", "/token")
				err := store.Update(t.Context(), "server https://mcp.example:443/mcp",
					func(old []byte) ([]byte, error) {
						text := strings.Replace(string(old), clientIssuer+"/token", "https://intranet.corp/token", 1)
						if text == string(old) || !strings.Contains(text, `"reach":"public",`) {
							t.Errorf("got record %s, want the token endpoint and a public reach", old)
						}
						return []byte(record(text)), nil
					})
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Hour)
				w.At("mcp.example", "8.8.8.8")
				w.Next("mcp.example", "10.0.0.1") // for the renewal; a discovery after it gets the public address
				if _, _, err := post(w.unattended(store), t.Context()); !errors.Is(err, oauth.ErrURLRefused) ||
					len(*requests) != 0 {
					t.Errorf("got error %v and requests to the private address %q, want ErrURLRefused and none", err,
						*requests)
				}
			})
		})
	}
}

// A company's servers have public addresses on the Internet and private ones inside. Tokens issued
// outside are renewed inside, after a new discovery.
func TestServerNearerAfterNetworkChange(t *testing.T) {
	for name, end := range map[string]func(w *testEnv){
		"expired tokens": func(*testEnv) { time.Sleep(time.Hour) },
		"revoked tokens": func(w *testEnv) { w.as.revokeAccess() },
	} {
		t.Run(name, func(t *testing.T) {
			withEnv(t, func(t *testing.T, w *testEnv) {
				store := oauthclient.NewMemoryStore()
				w.mustPost(w.transport(&oauthclient.TransportOptions{Store: store}))
				w.At("mcp.example", "10.0.0.1")
				w.At("as.example", "10.0.0.2")
				w.Requests()
				for _, discoveries := range []int{1, 0} { // the second renewal uses the stored result
					end(w)
					w.mustPost(w.unattended(store))
					asked := w.Requests()
					found := slices.DeleteFunc(slices.Clone(asked), func(one string) bool {
						return !strings.Contains(one, "oauth-protected-resource")
					})
					if len(found) != discoveries {
						t.Errorf("requested %q, want %d discoveries", asked, discoveries)
					}
				}
				if w.loginCount() != 1 {
					t.Errorf("got %d logins, want 1", w.loginCount())
				}
			})
		})
	}
}

// The network scope is fixed at the start of a discovery.
//
// Requirement: SEC-08
func TestRebindingDuringDiscovery(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		w.At("mcp.example", "8.8.8.8")
		w.At("intranet.corp", "10.0.0.9")
		w.Doc("https://mcp.example/.well-known/oauth-protected-resource/mcp",
			`{"resource":"https://mcp.example/mcp","authorization_servers":["https://slow.example","https://intranet.corp"]}`)
		w.Page("https://slow.example/.well-known/oauth-authorization-server",
			func(rw http.ResponseWriter, _ *http.Request) {
				time.Sleep(2 * time.Minute)
				w.At("mcp.example", "10.0.0.1")
				rw.WriteHeader(http.StatusNotFound)
			})
		f := w.fetcher(&oauth.FetcherOptions{Timeout: time.Hour})
		_, err := oauthclient.Discover(t.Context(), f, &oauthclient.DiscoveryQuery{Endpoint: clientMCP})
		if !errors.Is(err, oauth.ErrURLRefused) {
			t.Errorf("got error %v, want ErrURLRefused", err)
		}
	})
}

func TestWithinLimitsScope(t *testing.T) {
	for _, tt := range []struct {
		endpoint, seen string
		names          map[string]string
		open           []string
	}{
		{"https://mcp.corp/mcp", "public", map[string]string{"mcp.corp": "10.0.0.1"},
			[]string{"https://as.example/doc", "https://mcp.corp/doc"}},
		{"https://mcp.corp/mcp", "", map[string]string{"mcp.corp": "10.0.0.1"},
			[]string{"https://as.example/doc", "https://mcp.corp/doc"}},
		{"https://mcp.corp/mcp", "private", map[string]string{"mcp.corp": "10.0.0.1"},
			[]string{"https://as.example/doc", "https://idp.corp/doc", "https://192.168.1.1/doc",
				"https://mcp.corp/doc"}},
		{"https://mcp.corp/mcp", "private", map[string]string{"mcp.corp": "8.8.8.8"},
			[]string{"https://as.example/doc", "https://mcp.corp/doc"}},
		{"https://mcp.corp/mcp", "private", map[string]string{"mcp.corp": "127.0.0.1"},
			[]string{"https://as.example/doc", "https://idp.corp/doc", "https://192.168.1.1/doc",
				"https://mcp.corp/doc"}},
		{"http://localhost:8000/mcp", "", nil,
			[]string{"https://as.example/doc", "https://idp.corp/doc", "https://192.168.1.1/doc",
				"https://here.test/doc"}},
		{"https://10.0.0.1/mcp", "", nil, []string{"https://as.example/doc", "https://idp.corp/doc",
			"https://192.168.1.1/doc"}},
	} {
		t.Run(tt.endpoint+" "+tt.seen, func(t *testing.T) {
			w := newNetwork(t)
			w.At("idp.corp", "10.9.9.9")
			w.At("here.test", "127.0.0.1")
			for name, address := range tt.names {
				w.At(name, address)
			}
			endpoint, err := url.Parse(tt.endpoint)
			if err != nil {
				t.Fatal(err)
			}
			f := oauthclient.Within(w.fetcher(nil), endpoint, tt.seen)
			for _, address := range []string{
				"https://as.example/doc", "https://idp.corp/doc", "https://192.168.1.1/doc", "https://here.test/doc",
				"https://mcp.corp/doc",
			} {
				w.Doc(address, "{}")
				_, err := (*oauthfetch.Fetcher)(f).GetJSON(t.Context(), address, new(struct{}))
				if open := slices.Contains(tt.open, address) || address == "https://mcp.corp/doc" &&
					tt.names == nil; open != (err == nil) {
					t.Errorf("%s: got error %v, want success %t", address, err, open)
				}
			}
		})
	}
}
