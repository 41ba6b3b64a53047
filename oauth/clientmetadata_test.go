package oauth_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/oauthtest"
	"github.com/patchbay-mcp/patchbay/oauth"
)

// Requirement: AUTH-11
func TestCheckRedirectURI(t *testing.T) {
	for _, text := range []string{
		"https://app.example/cb", "https://app.example:8443/cb?x=y", "https://app.example", "http://localhost/cb",
		"http://localhost:1/cb",
		"http://127.0.0.1:65535/cb", "http://[::1]:80/cb", "https://localhost/cb", "com.example.app:/cb",
		"com.example.app://cb", "https://10.0.0.1/cb",
	} {
		if err := oauth.CheckRedirectURI(text); err != nil {
			t.Errorf("%s: got error %v, want success", text, err)
		}
	}
	for _, text := range []string{
		"", "x", "/cb", "//app.example/cb", "http://app.example/cb", "http://10.0.0.1/cb",
		"http://localhost.evil.example/cb", "https://user@app.example/cb",
		"https://app.example/cb#f", "https://app.example/cb#", "https://*.example/cb", "https://app.example/*",
		"javascript:alert(1)", "data:text/html,x",
		"file:///x", "vbscript:x", "app:/cb", " https://app.example/cb", "https://app.example/cb ",
		"https://app.example/\x00", "https://app.example\\@evil.example/",
		"https://app.example:/", "http://localhost:/", "https://app.example:0/", "https:app.example/cb", "https:///cb", "https://169.254.169.254/cb",
		"https://app.exämple/cb", "com.example.app:/cb#f",
		"https://app.example/" + strings.Repeat("x", 4<<10),
	} {
		if err := oauth.CheckRedirectURI(text); !errors.Is(err, oauth.ErrURLRefused) {
			t.Errorf("%.80q: got error %v, want ErrURLRefused", text, err)
		}
	}
}

const (
	redirectURI = "http://127.0.0.1:4321/callback"
	clientURL   = "https://client.example/client.json"
)

func clientDoc(more string) string {
	return `{"client_id":"` + clientURL + `","client_name":"A client","redirect_uris":["` + redirectURI + `"]` +
		more + `}`
}

// Requirement: REG-08
func TestClientMetadataDocumentIsValidated(t *testing.T) {
	for _, tt := range []struct {
		name, url, text string
		ok              bool
	}{
		{"required members only", clientURL, clientDoc(""), true},
		{"all members", clientURL,
			clientDoc(`,"client_uri":"https://client.example","logo_uri":"https://client.example/logo","token_endpoint_auth_method":"private_key_jwt","jwks_uri":"https://client.example/jwks","unknown":{"a":[1]}`), true},
		{"another client_id", clientURL, strings.Replace(clientDoc(""), "client.json", "other.json", 1), false},
		{"client_id with its port", clientURL,
			strings.Replace(clientDoc(""), "client.example/", "client.example:443/", 1), false},
		{"client_id in another case", clientURL,
			strings.Replace(clientDoc(""), "https://client.example", "https://Client.example", 1), false},
		{"no client_id", clientURL, strings.Replace(clientDoc(""), "client_id", "x", 1), false},
		{"no client_name", clientURL, strings.Replace(clientDoc(""), "client_name", "x", 1), false},
		{"long client_name", clientURL, strings.Replace(clientDoc(""), "A client", strings.Repeat("x", 201), 1), false},
		{"client_name with a bidirectional control", clientURL,
			strings.Replace(clientDoc(""), "A client", `A\u202eclient`, 1), false},
		{"no redirect_uris", clientURL, strings.Replace(clientDoc(""), "redirect_uris", "x", 1), false},
		{"empty redirect_uris", clientURL, strings.Replace(clientDoc(""), `"`+redirectURI+`"`, "", 1), false},
		{"many redirect_uris", clientURL, strings.Replace(clientDoc(""), `"`+redirectURI+`"`,
			strings.Repeat(`"https://a.example",`, 32)+`"https://a.example"`, 1), false},
		{"bad redirect_uris", clientURL, strings.Replace(clientDoc(""), redirectURI, "http://evil.example/", 1), false},
		{"secret", clientURL, clientDoc(`,"client_secret":"s"`), false},
		{"secret that is null", clientURL, clientDoc(`,"client_secret":null`), false},
		{"secret expiry", clientURL, clientDoc(`,"client_secret_expires_at":0`), false},
		{"auth method with a secret", clientURL, clientDoc(`,"token_endpoint_auth_method":"client_secret_jwt"`), false},
		{"logo with http", clientURL, clientDoc(`,"logo_uri":"http://client.example/logo"`), false},
		{"logo as a data URL", clientURL, clientDoc(`,"logo_uri":"data:image/png;base64,"`), false},
		{"client_uri with a script", clientURL, clientDoc(`,"client_uri":"javascript:alert(1)"`), false},
		{"duplicate member", clientURL, clientDoc(`,"client_name":"B"`), false},
		{"not JSON", clientURL, `<html>`, false},
		{"URL without a path", "https://client.example", clientDoc(""), false},
		{"URL with an empty path", "https://client.example/", clientDoc(""), false},
		{"URL with dots", "https://client.example/a/../client.json", clientDoc(""), false},
		{"URL with escaped dots", "https://client.example/a/%2E%2e/client.json", clientDoc(""), false},
		{"URL with http", "http://client.example/client.json", clientDoc(""), false},
		{"URL with a user", "https://u@client.example/client.json", clientDoc(""), false},
		{"URL with a fragment", clientURL + "#f", clientDoc(""), false},
		{"URL with a private address", "https://10.0.0.1/client.json", clientDoc(""), false},
		{"URL on the loopback host", "http://localhost:8000/client.json", clientDoc(""), false},
		{"relative URL", "client", clientDoc(""), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newNetwork(t)
			w.Page(clientURL, oauthtest.JSONPage(tt.text))
			w.Page(strings.TrimSuffix(tt.url, "#f"), oauthtest.JSONPage(strings.ReplaceAll(tt.text, clientURL, tt.url)))
			m, _, err := w.fetcher(nil).FetchClientMetadata(t.Context(), tt.url)
			if (err == nil) != tt.ok || tt.ok && m.Name != "A client" {
				t.Errorf("got %+v, error %v; want success %t", m, err, tt.ok)
			}
		})
	}
}

// The document is fetched with the guards of every Fetcher, and no redirect is followed.
//
// Requirement: SEC-22
func TestClientMetadataFetchIsGuarded(t *testing.T) {
	w := newNetwork(t)
	w.Doc("https://client.example/other.json", clientDoc(""))
	w.Page(clientURL, oauthtest.RedirectPage("/other.json"))
	if m, _, err := w.fetcher(nil).FetchClientMetadata(t.Context(), clientURL); err == nil {
		t.Errorf("got %+v after a redirect, want an error", m)
	}
	w.At("inside.example", "192.168.0.1")
	w.Doc("https://inside.example/client.json", strings.ReplaceAll(clientDoc(""), "client.example", "inside.example"))
	m, _, err := w.fetcher(nil).FetchClientMetadata(t.Context(), "https://inside.example/client.json")
	if !errors.Is(err, oauth.ErrURLRefused) {
		t.Errorf("private address: got %+v, error %v; want ErrURLRefused", m, err)
	}
	if got := w.Requests(); !slices.Equal(got, []string{"GET " + clientURL}) {
		t.Errorf("requested %v, want only %s", got, clientURL)
	}
}

// Requirement: REG-07
func TestFreshnessFollowsHTTPHeaders(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		header string
		want   time.Duration
	}{
		{"", 5 * time.Minute},
		{"Cache-Control: max-age=60", time.Minute},
		{"Cache-Control: public, Max-Age=60", time.Minute},
		{`Cache-Control: max-age="60"`, time.Minute},
		{"Cache-Control: max-age=60, s-maxage=120", 2 * time.Minute},
		{"Cache-Control: max-age=60\nAge: 20", 40 * time.Second},
		{"Cache-Control: max-age=60\nAge: 80", 0},
		{"Cache-Control: max-age=0", 0},
		{"Cache-Control: max-age=-1", 0},
		{"Cache-Control: max-age=x", 0},
		{"Cache-Control: max-age=99999999999999999999", 0},
		{"Cache-Control: max-age=2000000000", 24 * time.Hour},
		{"Cache-Control: max-age=60, no-store", 0},
		{"Cache-Control: max-age=60\nCache-Control: no-cache", 0},
		{"Cache-Control: private", 0},
		{`Cache-Control: no-cache="set-cookie", max-age=60`, 0},
		{"Expires: Thu, 01 Jan 2026 00:01:00 GMT", time.Minute},
		{"Expires: Thu, 01 Jan 2026 00:01:00 GMT\nCache-Control: max-age=5", 5 * time.Second},
		{"Expires: Wed, 31 Dec 2025 00:01:00 GMT", 0},
		{"Expires: 0", 0},
		{"Expires: Fri, 01 Jan 2100 00:00:00 GMT", 24 * time.Hour},
	} {
		header := http.Header{}
		for line := range strings.SplitSeq(tt.header, "\n") {
			if name, value, ok := strings.Cut(line, ": "); ok {
				header.Add(name, value)
			}
		}
		if got := oauth.Freshness(header, now); got != tt.want {
			t.Errorf("%q: got %v, want %v", tt.header, got, tt.want)
		}
	}
}
