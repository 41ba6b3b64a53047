package authserver_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// newFuzzEnv returns an env without a network for fuzz targets.
func newFuzzEnv(f *testing.F) *env {
	o := options("https://as.example")
	o.Clients[1].RedirectURIs = append(o.Clients[1].RedirectURIs, "com.example.app:/cb", "https://app.example/cb?x=1")
	t := new(testing.T)
	server := newServer(t, o)
	return &env{t, server, o.Issuer, handlerTransport{server, "192.0.2.1"}}
}

// serve calls the server with a request whose target need not be a valid URL.
func serve(w *env, method, target, contentType, body string) *httptest.ResponseRecorder {
	req := &http.Request{
		Method: method, Header: http.Header{"Content-Type": {contentType}}, RemoteAddr: "192.0.2.1:1",
		Host: "as.example", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Body: http.NoBody,
	}
	path, query, _ := strings.Cut(target, "?")
	req.URL = &url.URL{Path: path, RawQuery: query}
	if body != "" {
		req.Body = httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body)).Body
	}
	rec := httptest.NewRecorder()
	w.server.ServeHTTP(rec, req)
	return rec
}

// FuzzAuthorize checks that no parameters make the server fail, and that it redirects only to the
// consent page and to registered URIs.
func FuzzAuthorize(f *testing.F) {
	w := newFuzzEnv(f)
	f.Add(authorizeQuery().Encode(), false)
	f.Add(authorizeQuery("scope", "root").Encode(), true)
	f.Add(authorizeQuery("client_id", secretID, "redirect_uri", "https://app.example/cb?x=1", "response_type",
		"x").Encode(), false)
	f.Add(authorizeQuery("client_id", secretID, "redirect_uri", "com.example.app:/cb", "prompt", "none").Encode(),
		false)
	f.Add(authorizeQuery("redirect_uri", "http://127.0.0.1:1@evil.example/callback", "prompt", "none").Encode(), false)
	f.Add("client_id=public&client_id=public&redirect_uri=//x;y=%zz", false)
	registered := []string{"https://app.example/callback", "com.example.app:/cb", "https://app.example/cb"}
	f.Fuzz(func(t *testing.T, query string, post bool) {
		if values, err := url.ParseQuery(query); err == nil && strings.Contains(values.Get("client_id"), "://") {
			t.Skip("the server would fetch a client metadata document")
		}
		var rec *httptest.ResponseRecorder
		if post {
			rec = serve(w, http.MethodPost, "/authorize", "application/x-www-form-urlencoded", query)
		} else {
			rec = serve(w, http.MethodGet, "/authorize?"+query, "", "")
		}
		if rec.Code >= 500 {
			t.Fatalf("status %d %s, want no server error", rec.Code, rec.Body)
		}
		location := rec.Header().Get("Location")
		if location == "" || strings.HasPrefix(location, "https://as.example/consent?interaction=") {
			return
		}
		u, err := url.Parse(location)
		if err != nil {
			t.Fatal(err)
		}
		q := u.Query()
		if q.Get("iss") != "https://as.example" || q.Get("error") == "" || len(q["iss"]) != 1 {
			t.Errorf("redirect to %s, want an error and one iss", location)
		}
		target, _, _ := strings.Cut(location, "?")
		loopback := u.Scheme == "http" && u.Hostname() == "127.0.0.1" && u.Path == "/callback"
		if !slices.Contains(registered, target) && !loopback {
			t.Errorf("redirect to %s, want a registered URI", location)
		}
	})
}

// FuzzToken checks that no form makes the server fail, and that it returns no token without a valid
// code or token.
func FuzzToken(f *testing.F) {
	w := newFuzzEnv(f)
	f.Add("/token", exchangeForm("x").Encode(), "")
	f.Add("/token", refreshForm("x.y").Encode(), "Basic cHVibGljOng=")
	f.Add("/revoke", "token=a.b.c&client_id=public", "")
	f.Add("/introspect", "token=a.b.c", "Basic Og==")
	f.Add("/token", "client_assertion=e30.eyJzdWIiOiJ4In0.x&client_assertion_type="+url.QueryEscape(jwtBearer), "")
	f.Add("/register", `{"redirect_uris":["http://localhost/"]}`, "")
	f.Fuzz(func(t *testing.T, path, body, authorization string) {
		if !slices.Contains([]string{"/token", "/revoke", "/introspect", "/register"}, path) ||
			strings.Contains(body, "%3A%2F%2F") || strings.Contains(body, "://") && path != "/register" {
			t.Skip("another path, or a URL that the server could fetch")
		}
		kind := "application/x-www-form-urlencoded"
		if path == "/register" {
			kind = "application/json"
		}
		req := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
		req.Header.Set("Content-Type", kind)
		if authorization != "" {
			req.Header.Set("Authorization", authorization)
		}
		rec := httptest.NewRecorder()
		w.server.ServeHTTP(rec, req)
		switch {
		case rec.Code >= 500:
			t.Fatalf("status %d %s, want no server error", rec.Code, rec.Body)
		case strings.Contains(rec.Body.String(), "access_token"), strings.Contains(rec.Body.String(), `"active":true`):
			t.Fatalf("got a token without a valid grant: %s", rec.Body)
		}
		if rec.Code == http.StatusCreated {
			checkRegistered(t, rec.Body.String())
		}
	})
}

// checkRegistered checks the redirect URIs of an accepted registration.
func checkRegistered(t *testing.T, body string) {
	t.Helper()
	r := response{&http.Response{}, body}
	for _, v := range r.json(t)["redirect_uris"].([]any) {
		u, err := url.Parse(v.(string))
		if err != nil || u.Fragment != "" || u.User != nil || u.Scheme == "http" && !strings.EqualFold(u.Hostname(), "localhost") &&
			!strings.HasPrefix(u.Hostname(), "127.") && u.Hostname() != "::1" ||
			u.Scheme != "http" && u.Scheme != "https" && !strings.Contains(u.Scheme, ".") {
			t.Errorf("registered redirect URI %q, want https, a loopback address or a private-use scheme", v)
		}
	}
}
