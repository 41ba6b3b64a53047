package oauthclient_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/oauth"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// registrationServer returns an authorization server that responds to registrations, and the
// members of the latest request.
func registrationServer(w *network, methods []string, status int, answer string) (*oauth.ServerMetadata,
	*map[string]any) {
	asked := new(map[string]any)
	w.Page(issuer+"/register", func(rw http.ResponseWriter, req *http.Request) {
		data, _ := io.ReadAll(req.Body)
		if err := json.Unmarshal(data, asked); err != nil || req.Method != http.MethodPost ||
			req.Header.Get("Content-Type") != "application/json" {
			w.t.Errorf("got request %s %s, error %v; want a JSON POST", req.Method, data, err)
		}
		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(status)
		_, _ = io.WriteString(rw, answer)
	})
	return &oauth.ServerMetadata{
		Issuer: issuer, RegistrationEndpoint: issuer + "/register", TokenEndpointAuthMethods: methods,
	}, asked
}

const redirectURI = "http://127.0.0.1:4321/callback"

// Requirement: REG-12
func TestRegistrationRequest(t *testing.T) {
	for _, tt := range []struct {
		name    string
		methods []string
		meta    oauth.ClientMetadata
		want    map[string]any
	}{
		{
			"native and public", []string{"client_secret_basic",
				"none"}, oauth.ClientMetadata{RedirectURIs: []string{redirectURI}, ClientID: "https://x.example/c"},
			map[string]any{
				"redirect_uris": []any{redirectURI}, "application_type": "native", "token_endpoint_auth_method": "none",
				"grant_types": []any{"authorization_code", "refresh_token"}, "response_types": []any{"code"},
			},
		},
		{
			"web", []string{"private_key_jwt", "client_secret_post",
				"client_secret_basic"}, oauth.ClientMetadata{RedirectURIs: []string{"https://app.example/cb"}},
			map[string]any{
				"redirect_uris": []any{"https://app.example/cb"}, "application_type": "web",
				"token_endpoint_auth_method": "client_secret_basic",
				"grant_types":                []any{"authorization_code", "refresh_token"},
				"response_types":             []any{"code"},
			},
		},
		{
			"own scheme, post alone", []string{"client_secret_post"},
			oauth.ClientMetadata{RedirectURIs: []string{"com.example.app:/cb"}},
			map[string]any{
				"redirect_uris": []any{"com.example.app:/cb"}, "application_type": "native",
				"token_endpoint_auth_method": "client_secret_post",
				"grant_types":                []any{"authorization_code", "refresh_token"},
				"response_types":             []any{"code"},
			},
		},
		{
			"silent server, chosen values", nil,
			oauth.ClientMetadata{Name: "n", GrantTypes: []string{"client_credentials"}, ApplicationType: "web",
				Scope: "a b"},
			map[string]any{
				"client_name": "n", "application_type": "web", "token_endpoint_auth_method": "client_secret_basic",
				"grant_types": []any{"client_credentials"}, "scope": "a b",
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newNetwork(t)
			server, asked := registrationServer(w, tt.methods, http.StatusCreated,
				`{"client_id":"c","client_secret":"s"}`)
			if _, err := oauthclient.Register(t.Context(), w.fetcher(nil), server, &tt.meta); err != nil {
				t.Fatal(err)
			}
			if got, want := fmt.Sprint(*asked), fmt.Sprint(tt.want); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

func TestRegistrationResponses(t *testing.T) {
	const now = 946684800 // when a synctest bubble begins
	for _, tt := range []struct {
		name, answer string
		status       int // default: 201
		method       string
		want         *oauthclient.Registration // nil for an error; Issuer and RedirectURIs are as expected
	}{
		{"public", `{"client_id":"c"}`, 0, "none", &oauthclient.Registration{ClientID: "c", AuthMethod: "none"}},
		{"200", `{"client_id":"c"}`, 200, "none", &oauthclient.Registration{ClientID: "c", AuthMethod: "none"}},
		{"secret", `{"client_id":"c","client_secret":"s","client_secret_expires_at":0}`, 0, "client_secret_post",
			&oauthclient.Registration{ClientID: "c", ClientSecret: "s", AuthMethod: "client_secret_post"}},
		{
			"secret that expires", fmt.Sprintf(`{"client_id":"c","client_secret":"s","client_secret_expires_at":%d}`,
				now+60), 0, "client_secret_basic",
			&oauthclient.Registration{ClientID: "c", ClientSecret: "s", AuthMethod: "client_secret_basic",
				SecretExpires: time.Unix(now+60, 0).UTC()},
		},
		{"secret with a huge expiry", `{"client_id":"c","client_secret":"s","client_secret_expires_at":1e300}`, 0,
			"client_secret_basic", &oauthclient.Registration{ClientID: "c", ClientSecret: "s",
				AuthMethod: "client_secret_basic"}},
		{"secret that has expired", fmt.Sprintf(`{"client_id":"c","client_secret":"s","client_secret_expires_at":%d}`,
			now), 0, "client_secret_basic", nil},
		{"secret that has a negative expiry", `{"client_id":"c","client_secret":"s","client_secret_expires_at":-1}`,
			0, "client_secret_basic", nil},
		{"expiry that is a string", `{"client_id":"c","client_secret":"s","client_secret_expires_at":"0"}`, 0,
			"client_secret_basic", &oauthclient.Registration{ClientID: "c", ClientSecret: "s", AuthMethod: "client_secret_basic"}},
		{"another method", `{"client_id":"c","client_secret":"s","token_endpoint_auth_method":"client_secret_post"}`,
			0, "none", &oauthclient.Registration{ClientID: "c", ClientSecret: "s", AuthMethod: "client_secret_post"}},
		{"method none with a secret", `{"client_id":"c","client_secret":"s","token_endpoint_auth_method":"none"}`, 0,
			"client_secret_basic", &oauthclient.Registration{ClientID: "c", AuthMethod: "none"}},
		{"unexpected secret", `{"client_id":"c","client_secret":"s"}`, 0, "none",
			&oauthclient.Registration{ClientID: "c", ClientSecret: "s"}},
		{"missing secret", `{"client_id":"c"}`, 0, "client_secret_basic",
			&oauthclient.Registration{ClientID: "c", AuthMethod: "none"}},
		{"missing secret with its method", `{"client_id":"c","token_endpoint_auth_method":"client_secret_basic"}`, 0,
			"client_secret_basic", nil},
		{"unknown method", `{"client_id":"c","token_endpoint_auth_method":"tls_client_auth"}`, 0, "none", nil},
		{"the redirect URIs", `{"client_id":"c","redirect_uris":["https://x.example/","` + redirectURI + `"]}`, 0,
			"none", &oauthclient.Registration{ClientID: "c", AuthMethod: "none"}},
		{"other redirect URIs", `{"client_id":"c","redirect_uris":["https://evil.example/"]}`, 0, "none", nil},
		{"longest id", `{"client_id":"` + strings.Repeat("c", 4<<10) + `"}`, 0, "none",
			&oauthclient.Registration{ClientID: strings.Repeat("c", 4<<10), AuthMethod: "none"}},
		{"id beyond the longest", `{"client_id":"` + strings.Repeat("c", (4<<10)+1) + `"}`, 0, "none", nil},
		{"secret beyond the longest", `{"client_id":"c","client_secret":"` + strings.Repeat("c", (4<<10)+1) + `"}`, 0,
			"client_secret_basic", nil},
		{"no id", `{"client_secret":"s"}`, 0, "none", nil},
		{"id with a line break", `{"client_id":"a\r\nb"}`, 0, "none", nil},
		{"id that is not ASCII", `{"client_id":"ä"}`, 0, "none", nil},
		{"secret with a line break", `{"client_id":"c","client_secret":"a\nb"}`, 0, "client_secret_basic", nil},
		{"id that is a number", `{"client_id":1}`, 0, "none", nil},
		{"two ids", `{"client_id":"a","client_id":"b"}`, 0, "none", nil},
		{"not JSON", `ok`, 0, "none", nil},
		{"empty response", ``, 204, "none", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newNetwork(t)
				if tt.status == 0 {
					tt.status = http.StatusCreated
				}
				server, _ := registrationServer(w, []string{tt.method}, tt.status, tt.answer)
				got, err := oauthclient.Register(t.Context(), w.fetcher(nil), server,
					&oauth.ClientMetadata{RedirectURIs: []string{redirectURI}})
				if tt.want == nil {
					if err == nil {
						t.Errorf("got %+v, want an error", *got)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				tt.want.Issuer, tt.want.RedirectURIs = issuer, []string{redirectURI}
				a, _ := json.Marshal(got)
				b, _ := json.Marshal(tt.want)
				if string(a) != string(b) {
					t.Errorf("got  %s\nwant %s", a, b)
				}
			})
		})
	}
}

// A server may register fewer redirect URIs than requested, if that of the next login is among
// them.
func TestRegistrationOfFewerRedirectURIs(t *testing.T) {
	const other = "http://localhost:7777/callback"
	for answer, want := range map[string][]string{
		`"` + clientRedirect + `"`:                        {clientRedirect},
		`"` + clientRedirect + `","` + other + `"`:        {clientRedirect, other},
		`"https://more.example","` + clientRedirect + `"`: {clientRedirect},
		``:                {clientRedirect, other},
		`"` + other + `"`: nil,
	} {
		w := newNetwork(t)
		server, _ := registrationServer(w, []string{"none"}, http.StatusCreated,
			`{"client_id":"c","redirect_uris":[`+answer+`]}`)
		got, err := oauthclient.Register(t.Context(), w.fetcher(nil), server,
			&oauth.ClientMetadata{RedirectURIs: []string{clientRedirect, other}})
		if (err == nil) != (want != nil) || err == nil && !slices.Equal(got.RedirectURIs, want) {
			t.Errorf("%s: got %v, error %v; want %v", answer, got, err, want)
		}
	}
}

// The second redirect URI, with the host localhost, is optional.
func TestLoginWithRemainingRedirectURI(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		w.Page(clientIssuer+"/register", func(rw http.ResponseWriter, req *http.Request) {
			var m oauth.ClientMetadata
			if err := json.NewDecoder(req.Body).Decode(&m); err != nil || len(m.RedirectURIs) < 2 {
				t.Errorf("got invalid registration %+v, error %v", m, err)
			}
			w.as.set(func(s *fakeServer) { s.clients["c"] = "" })
			rw.Header().Set("Content-Type", "application/json")
			rw.WriteHeader(http.StatusCreated)
			_, _ = rw.Write([]byte(`{"client_id":"c","token_endpoint_auth_method":"none","redirect_uris":["` +
				clientRedirect + `"]}`))
		})
		w.mustPost(w.transport(nil))
	})
}

// The server's error reaches the caller, cut off and without control characters.
//
// Requirement: REG-13
func TestRefusedRegistrationIsReported(t *testing.T) {
	for _, tt := range []struct {
		name   string
		status int
		answer string
		want   oauthclient.RegistrationError
	}{
		{"error", 400, `{"error":"invalid_redirect_uri","error_description":"not this one"}`,
			oauthclient.RegistrationError{Code: "invalid_redirect_uri", Description: "not this one", Status: 400}},
		{"no description", 401, `{"error":"invalid_token"}`,
			oauthclient.RegistrationError{Code: "invalid_token", Status: 401}},
		{"nothing", 403, ``, oauthclient.RegistrationError{Status: 403}},
		{"HTML", 500, `<html>`, oauthclient.RegistrationError{Status: 500}},
		{"escapes", 400, `{"error":"a\u001b[31m","error_description":"b\r\nc\u202e"}`,
			oauthclient.RegistrationError{Code: "a[31m", Description: "bc", Status: 400}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newNetwork(t)
			server, _ := registrationServer(w, nil, tt.status, tt.answer)
			_, err := oauthclient.Register(t.Context(), w.fetcher(nil), server, &oauth.ClientMetadata{})
			var got *oauthclient.RegistrationError
			if !errors.As(err, &got) || *got != tt.want {
				t.Errorf("got %+v, error %v; want %+v", got, err, tt.want)
			}
		})
	}
	w := newNetwork(t)
	server, _ := registrationServer(w, nil, 400,
		`{"error":"`+strings.Repeat("e", 10_000)+`","error_description":"`+strings.Repeat("d", 10_000)+`"}`)
	if _, err := oauthclient.Register(t.Context(), w.fetcher(nil), server, &oauth.ClientMetadata{}); err == nil ||
		len(err.Error()) > 500 {
		t.Errorf("got error %v, want one of at most 500 bytes", err)
	}
	_, err := oauthclient.Register(t.Context(), w.fetcher(nil), &oauth.ServerMetadata{}, &oauth.ClientMetadata{})
	if err == nil {
		t.Error("no registration endpoint: got no error")
	}
	if _, err := oauthclient.Register(t.Context(), w.fetcher(nil), &oauth.ServerMetadata{
		RegistrationEndpoint: issuer + "/register", TokenEndpointAuthMethods: []string{"private_key_jwt"},
	}, &oauth.ClientMetadata{}); err == nil {
		t.Error("no supported authentication method: got no error")
	}
}

// The client secret is in the JSON encoding, for the store, and in no other text.
func TestRegistrationIsRedacted(t *testing.T) {
	r := oauthclient.Registration{Issuer: issuer, ClientID: "c", ClientSecret: "s3cret",
		AuthMethod: "client_secret_basic"}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "a", r, "b", &r)
	for _, text := range []string{fmt.Sprint(r), fmt.Sprint(&r), fmt.Sprintf("%+v %#v %s %q", r, r, r, &r),
		log.String()} {
		if strings.Contains(text, "s3cret") {
			t.Errorf("the text contains the secret: %s", text)
		}
	}
	data, err := json.Marshal(r)
	var back oauthclient.Registration
	if err != nil || json.Unmarshal(data, &back) != nil || back.ClientSecret != "s3cret" {
		t.Errorf("got JSON %s, error %v; want the secret in it", data, err)
	}
}

const clientURL = "https://client.example/client.json"

// The served document passes the checks of an authorization server.
//
// Requirement: REG-05
func TestServingClientMetadata(t *testing.T) {
	meta := &oauth.ClientMetadata{ClientID: clientURL, Name: "A client", RedirectURIs: []string{redirectURI}}
	h, err := oauthclient.NewMetadataHandler(meta)
	if err != nil {
		t.Fatal(err)
	}
	meta.Name = "changed" // must not change the document
	w := newNetwork(t)
	w.Page(clientURL, h.ServeHTTP)
	got, lifetime, err := w.fetcher(nil).FetchClientMetadata(t.Context(), clientURL)
	if err != nil || got.Name != "A client" || got.ClientID != clientURL || lifetime != time.Hour {
		t.Errorf("got %+v for %v, error %v; want the document for an hour", got, lifetime, err)
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest(http.MethodPost, clientURL, nil))
	if rec.Code != http.StatusMethodNotAllowed || rec.Header().Get("Allow") == "" {
		t.Errorf("POST: got %d, want 405 with Allow", rec.Code)
	}
	rec = httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest(http.MethodHead, clientURL, nil))
	if rec.Code != http.StatusOK || rec.Body.Len() != 0 {
		t.Errorf("HEAD: got %d %s, want 200 without a body", rec.Code, rec.Body)
	}
	for _, bad := range []*oauth.ClientMetadata{
		{ClientID: "https://client.example", Name: "A client", RedirectURIs: []string{redirectURI}},
		{ClientID: "http://localhost/c", Name: "A client", RedirectURIs: []string{redirectURI}},
		{ClientID: clientURL, RedirectURIs: []string{redirectURI}},
		{ClientID: clientURL, Name: "A client"},
	} {
		if _, err := oauthclient.NewMetadataHandler(bad); err == nil {
			t.Errorf("%+v: got a handler, want an error", bad)
		}
	}
}
