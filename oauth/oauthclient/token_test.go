package oauthclient_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/oauth"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

func TestClientAuthentication(t *testing.T) {
	const id, secret = "mine: a/b", "s:e%c ret+"
	for name, c := range map[string]struct {
		offered []string
		method  string // of the options
		secret  string
		want    string // the method that the server requires; empty for an error
	}{
		"none":                  {[]string{"none"}, "", "", "none"},
		"none, nothing offered": {nil, "", "", "none"},
		"basic": {[]string{"client_secret_post", "client_secret_basic"}, "", secret,
			"client_secret_basic"},
		"basic, nothing offered": {nil, "", secret, "client_secret_basic"},
		"post":                   {[]string{"client_secret_post"}, "", secret, "client_secret_post"},
		"post, chosen": {[]string{"client_secret_basic"}, "client_secret_post", secret,
			"client_secret_post"},
		"secret of a public client": {[]string{"none"}, "", secret, "none"},
		"no supported method":       {[]string{"tls_client_auth"}, "", secret, ""},
		"unknown configured method": {nil, "tls_client_auth", secret, ""},
	} {
		t.Run(name, func(t *testing.T) {
			withEnv(t, func(t *testing.T, w *testEnv) {
				w.as.method, w.as.clients[id] = c.want, c.secret
				if c.want == "none" {
					w.as.clients[id] = ""
				}
				w.as.document["token_endpoint_auth_methods_supported"] = c.offered
				tr := w.transport(&oauthclient.TransportOptions{
					Client: oauthclient.Identity{ID: id, Secret: c.secret, Issuer: clientIssuer, AuthMethod: c.method},
				})
				if _, _, err := post(tr, t.Context()); (err == nil) != (c.want != "") {
					t.Fatalf("got error %v, want success %t", err, c.want != "")
				}
				if c.want == "" {
					return
				}
				time.Sleep(time.Hour)
				w.mustPost(tr) // renewed with the same method
			})
		})
	}
}

func TestClientAuthenticationByKey(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	withEnv(t, func(t *testing.T, w *testEnv) {
		w.as.clients["mine"] = ""
		w.as.document["token_endpoint_auth_methods_supported"] = []string{"private_key_jwt"}
		var asked url.Values
		w.as.respond = func(form url.Values) (int, string) {
			asked = form
			return 200, `{"access_token":"x","token_type":"Bearer"}`
		}
		tr := w.transport(&oauthclient.TransportOptions{
			Client: oauthclient.Identity{ID: "mine", Key: &oauthclient.AssertionKey{Key: key}, Issuer: clientIssuer},
		})
		_, _, _ = post(tr, t.Context())
		if strings.Count(asked.Get("client_assertion"), ".") != 2 || asked.Has("client_secret") ||
			w.as.lastAuth != "" ||
			asked.Get("client_assertion_type") != "urn:ietf:params:oauth:client-assertion-type:jwt-bearer" {
			t.Errorf("got token request %v, want a client assertion and no secret", asked)
		}
	})
}

func TestTokenResponses(t *testing.T) {
	long := strings.Repeat("x", 32<<10)
	for name, c := range map[string]struct {
		status   int
		body     string
		ok       bool
		lifetime time.Duration // of the token; 0 for unknown
	}{
		"plain": {200, `{"access_token":"a","token_type":"Bearer"}`, true, 0},
		"upper case": {200, `{"access_token":"a","token_type":"BEARER","expires_in":60}`, true,
			time.Minute},
		"longest token": {200, `{"access_token":"` + long + `","token_type":"Bearer"}`, true, 0},
		"lifetime as text": {200, `{"access_token":"a","token_type":"Bearer","expires_in":"60"}`, true,
			time.Minute},
		"lifetime out of range": {200, `{"access_token":"a","token_type":"Bearer","expires_in":1e300}`, true,
			365 * 24 * time.Hour},
		"lifetime null": {200,
			`{"access_token":"a","token_type":"Bearer","expires_in":null,"refresh_token":null}`, true, 0},
		"lifetime 0":            {200, `{"access_token":"a","token_type":"Bearer","expires_in":0}`, true, 0},
		"negative lifetime":     {200, `{"access_token":"a","token_type":"Bearer","expires_in":-5}`, true, 0},
		"lifetime not a number": {200, `{"access_token":"a","token_type":"Bearer","expires_in":"NaN"}`, true, 0},
		"no type":               {200, `{"access_token":"a"}`, true, 0},
		"another type":          {200, `{"access_token":"a","token_type":"mac"}`, false, 0},
		"bound to a key":        {200, `{"access_token":"a","token_type":"DPoP"}`, false, 0},
		"no token":              {200, `{"token_type":"Bearer"}`, false, 0},
		"in another case":       {200, `{"Access_Token":"a","token_type":"Bearer"}`, false, 0},
		"too long":              {200, `{"access_token":"` + long + `x","token_type":"Bearer"}`, false, 0},
		"with a line break":     {200, `{"access_token":"a\r\nX-Evil: 1","token_type":"Bearer"}`, false, 0},
		"with a space":          {200, `{"access_token":"a b","token_type":"Bearer"}`, false, 0},
		"refresh with a line break": {200, `{"access_token":"a","token_type":"Bearer","refresh_token":"a\nb"}`,
			false, 0},
		"token twice":       {200, `{"access_token":"a","access_token":"b","token_type":"Bearer"}`, false, 0},
		"token is a number": {200, `{"access_token":1,"token_type":"Bearer"}`, false, 0},
		"list":              {200, `[]`, false, 0},
		"form":              {200, `access_token=a&token_type=Bearer`, false, 0},
		"error with status 200": {200, `{"error":"invalid_grant","access_token":"a","token_type":"Bearer"}`,
			false, 0},
		"redirect":           {302, `{"access_token":"a","token_type":"Bearer"}`, false, 0},
		"created":            {201, `{"access_token":"a","token_type":"Bearer"}`, true, 0},
		"a list of scopes":   {200, `{"access_token":"a","token_type":"Bearer","scope":["a","b"]}`, true, 0},
		"error as an object": {400, `{"error":{"code":"invalid_grant"}}`, false, 0},
		"deep": {200,
			`{"access_token":"a","token_type":"Bearer","x":` + strings.Repeat("[", 17) + strings.Repeat("]",
				17) + `}`, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			withEnv(t, func(t *testing.T, w *testEnv) {
				w.as.respond = func(url.Values) (int, string) { return c.status, c.body }
				tr := w.transport(nil)
				if err := tr.Login(t.Context()); (err == nil) != c.ok {
					t.Fatalf("got error %v, want success %t", err, c.ok)
				}
				if !c.ok {
					return
				}
				s, err := tr.Status(t.Context())
				if err != nil || s == nil {
					t.Fatalf("got status %v, error %v; want tokens", s, err)
				}
				if lifetime := time.Until(s.Expires); c.lifetime == 0 && !s.Expires.IsZero() || c.lifetime != 0 &&
					lifetime != c.lifetime {
					t.Errorf("got expiry %v, want it in %v", s.Expires, c.lifetime)
				}
			})
		})
	}
}

// The token endpoint repeats the request in its error.
func TestErrorsContainNoSecrets(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		w.as.method, w.as.clients["mine"] = "client_secret_post", "s3cret-s3cret"
		w.as.document["token_endpoint_auth_methods_supported"] = []string{"client_secret_post"}
		var sent url.Values
		w.as.respond = func(form url.Values) (int, string) {
			sent = form
			text := ""
			for name, values := range form {
				text += name + "=" + values[0] + " "
			}
			return 400, fmt.Sprintf(`{"error":%q,"error_description":%q}`, form.Get("code"), text)
		}
		_, _, err := post(w.transport(&oauthclient.TransportOptions{
			Client: oauthclient.Identity{ID: "mine", Secret: "s3cret-s3cret", Issuer: clientIssuer},
		}), t.Context())
		if err == nil {
			t.Fatal("no error")
		}
		for _, name := range []string{"code", "code_verifier", "client_secret"} {
			if secret := sent.Get(name); secret == "" || strings.Contains(err.Error(), secret) {
				t.Errorf("got error %v, want one without %s", err, name)
			}
		}
	})
}

func TestTokenErrorTextIsCut(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		w.as.respond = func(url.Values) (int, string) {
			return 400, `{"error":"invalid\u001b[31m_thing\u202e` + strings.Repeat("y", 1000) +
				`","error_description":"für\r\nalle` + strings.Repeat("x", 10000) + `"}`
		}
		_, _, err := post(w.transport(nil), t.Context())
		refused, ok := errors.AsType[*oauthclient.TokenError](err)
		if !ok || len(refused.Code) > 64 || len(refused.Description) > 256 ||
			strings.ContainsAny(err.Error(), "\x1b\r\n\u202e") ||
			!strings.Contains(refused.Description, "füralle") {
			t.Errorf("got error %q, want a TokenError, cut off and without control characters", err)
		}
	})
}

func TestTokensAreRedacted(t *testing.T) {
	set := oauthclient.TokenSet{Issuer: clientIssuer, AccessToken: "s3cret1", RefreshToken: "s3cret2",
		Expires: time.Unix(0, 0)}
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "set", set, "pointer", &set)
	for _, text := range []string{
		fmt.Sprint(set), fmt.Sprintf("%+v %#v %s", set, set, &set), fmt.Sprintf("%v %+v", &set,
			[]oauthclient.TokenSet{set}), log.String(),
	} {
		if strings.Contains(text, "s3cret") || !strings.Contains(text, clientIssuer) {
			t.Errorf("got text %s, want the issuer and no token", text)
		}
	}
}

func TestLoginStatusTokenLogout(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		w.rs.wants = []string{"read"}
		store := oauthclient.NewMemoryStore()
		tr := w.transport(&oauthclient.TransportOptions{Store: store})
		if s, err := tr.Status(t.Context()); s != nil || err != nil {
			t.Errorf("before Login: got status %v, error %v; want no tokens", s, err)
		}
		if _, err := tr.Token(t.Context()); !errors.Is(err, oauthclient.ErrLoginRequired) || w.loginCount() != 0 {
			t.Errorf("Token before Login: got error %v, want ErrLoginRequired", err)
		}
		if err := tr.Login(t.Context()); err != nil {
			t.Fatal(err)
		}
		s, err := w.unattended(store).Status(t.Context())
		if err != nil || s.Issuer != clientIssuer || s.Resource != clientMCP || !s.Renewable ||
			s.TokenType != "Bearer" ||
			strings.Join(s.Scopes, " ") != "read" || time.Until(s.Expires) != time.Hour {
			t.Errorf("got status %+v, error %v; want the issuer %s", s, err, otherIssuer)
		}
		time.Sleep(2 * time.Hour)
		set, err := w.unattended(store).Token(t.Context())
		if err != nil || set.AccessToken == "" || w.as.count("refresh_token") != 1 {
			t.Errorf("Token: got %v, error %v; want a renewed token", set, err)
		}
		if err := tr.Logout(t.Context()); err != nil || w.as.count("revoke refresh_token") != 1 ||
			w.as.count("revoke access_token") != 1 {
			t.Errorf("Logout: got error %v", err)
		}
		if s, err := tr.Status(t.Context()); s != nil || err != nil {
			t.Errorf("after Logout: got status %v, error %v; want no tokens", s, err)
		}
		if _, _, err := post(w.unattended(store), t.Context()); !errors.Is(err, oauthclient.ErrLoginRequired) {
			t.Errorf("request after Logout: got error %v, want ErrLoginRequired", err)
		}
		if err := tr.Logout(t.Context()); err != nil {
			t.Errorf("second Logout: got error %v", err)
		}
		w.mustPost(tr)
		if n := w.as.count("register"); n != 2 {
			t.Errorf("got %d registrations, want 2: Logout removes the registration", n)
		}
	})
}

func TestLogoutWithoutRevocation(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		store := oauthclient.NewMemoryStore()
		w.mustPost(w.transport(&oauthclient.TransportOptions{Store: store}))
		tr := w.unattended(store)
		w.mustPost(tr)
		w.Page(clientIssuer+"/revoke", statusPage(http.StatusServiceUnavailable))
		if err := tr.Logout(t.Context()); err == nil {
			t.Error("got no error")
		}
		if _, _, err := post(tr, t.Context()); !errors.Is(err, oauthclient.ErrLoginRequired) {
			t.Errorf("request after Logout: got error %v, want ErrLoginRequired", err)
		}
		if s, err := tr.Status(t.Context()); s != nil || err != nil {
			t.Errorf("after Logout: got status %v, error %v; want no tokens", s, err)
		}
	})
}

// A recordingStore records the keys of its updates.
type recordingStore struct {
	oauthclient.Store
	keys map[string]bool
}

func (s *recordingStore) Update(ctx context.Context, key string, change func(old []byte) ([]byte, error)) error {
	s.keys[key] = true
	return s.Store.Update(ctx, key, change)
}

func TestTokensOfOtherClientsAreNotUsed(t *testing.T) {
	for name, c := range map[string]struct {
		change func(set *oauthclient.TokenSet)
		opts   oauthclient.TransportOptions
		used   bool
	}{
		"own": {func(*oauthclient.TokenSet) {}, oauthclient.TransportOptions{}, true},
		"bound, without a key": {func(s *oauthclient.TokenSet) {
			s.TokenType = "DPoP"
		}, oauthclient.TransportOptions{}, false},
		"bound, to another key": {func(s *oauthclient.TokenSet) {
			s.TokenType = "DPoP"
		}, oauthclient.TransportOptions{DPoP: &oauthclient.DPoPOptions{}}, false},
		"not bound, DPoP required": {func(*oauthclient.TokenSet) {},
			oauthclient.TransportOptions{DPoP: &oauthclient.DPoPOptions{}}, false},
		"another client's": {func(*oauthclient.TokenSet) {},
			oauthclient.TransportOptions{Client: oauthclient.Identity{ID: "mine", Issuer: clientIssuer}}, false},
		"the client's": {func(s *oauthclient.TokenSet) { s.ClientID = "mine" },
			oauthclient.TransportOptions{Client: oauthclient.Identity{ID: "mine", Issuer: clientIssuer}}, true},
		"another issuer, same client id": {func(s *oauthclient.TokenSet) { s.ClientID = "mine" }, // Requirement: REG-15
			oauthclient.TransportOptions{Client: oauthclient.Identity{ID: "mine", Issuer: otherIssuer}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			withEnv(t, func(t *testing.T, w *testEnv) {
				store := &recordingStore{oauthclient.NewMemoryStore(), map[string]bool{}}
				w.mustPost(w.transport(&oauthclient.TransportOptions{Store: store}))
				for key := range store.keys {
					if strings.HasPrefix(key, "tokens ") {
						changeStored(t, store, key, c.change)
					}
				}
				c.opts.Store = store
				s, err := w.transport(&c.opts).Status(t.Context())
				if err != nil || (s != nil) != c.used {
					t.Errorf("got status %v, error %v; want tokens %t", s, err, c.used)
				}
			})
		})
	}
}

func changeStored(t *testing.T, store oauthclient.Store, key string, change func(set *oauthclient.TokenSet)) {
	t.Helper()
	err := store.Update(t.Context(), key, func(old []byte) ([]byte, error) {
		var set oauthclient.TokenSet
		if err := json.Unmarshal(old, &set); err != nil {
			return nil, err
		}
		change(&set)
		return json.Marshal(set)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A store that cannot be read fails requests; one that cannot be written does not.
func TestFailingStore(t *testing.T) {
	invalid := errors.New("the disk is full")
	withEnv(t, func(t *testing.T, w *testEnv) {
		unreadable := w.transport(&oauthclient.TransportOptions{Store: &failingStore{oauthclient.NewMemoryStore(),
			invalid, nil}})
		if _, _, err := post(unreadable, t.Context()); !errors.Is(err, invalid) {
			t.Errorf("unreadable store: got error %v, want %v", err, invalid)
		}
		tr := w.transport(&oauthclient.TransportOptions{Store: &failingStore{oauthclient.NewMemoryStore(), nil,
			invalid}})
		w.mustPost(tr)
		if n := w.as.count("authorization_code"); n != 1 {
			t.Errorf("unwritable store: got %d logins, want 1", n)
		}
	})
}

type failingStore struct {
	oauthclient.Store
	load, update error
}

func (s *failingStore) Load(ctx context.Context, key string) ([]byte, error) {
	if s.load != nil {
		return nil, s.load
	}
	return s.Store.Load(ctx, key)
}

func (s *failingStore) Update(ctx context.Context, key string, change func(old []byte) ([]byte, error)) error {
	if s.update == nil {
		return s.Store.Update(ctx, key, change)
	}
	old, err := s.Store.Load(ctx, key)
	if err != nil {
		return err
	}
	if _, err := change(old); err != nil {
		return err
	}
	return s.update
}

func TestLoginAtServerWithoutAuthorization(t *testing.T) {
	withEnv(t, func(t *testing.T, w *testEnv) {
		w.Page(w.rs.path, http.NotFound)
		tr := oauthclient.NewTransport(clientMCP, &oauthclient.TransportOptions{
			Base: roundTripper(func(*http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: http.StatusMethodNotAllowed, Body: http.NoBody,
					Header: http.Header{}}, nil
			}),
			Fetcher: w.fetcher(nil), Authorizer: oauthclient.NewAuthorizer(clientRedirect, w.login),
		})
		if err := tr.Login(t.Context()); err == nil || !strings.Contains(err.Error(), "no login") {
			t.Errorf("got error %v, want \"no login\" in it", err)
		}
	})
}

func TestTransportOptionsAreChecked(t *testing.T) {
	for name, c := range map[string]struct {
		endpoint string
		opts     *oauthclient.TransportOptions
	}{
		"no URL":       {"://", nil},
		"no host":      {"https:///mcp", nil},
		"ftp":          {"ftp://mcp.example/mcp", nil},
		"scope":        {clientMCP, &oauthclient.TransportOptions{Scopes: []string{"a b"}}},
		"secret alone": {clientMCP, &oauthclient.TransportOptions{Client: oauthclient.Identity{Secret: "x"}}},
		"id":           {clientMCP, &oauthclient.TransportOptions{Client: oauthclient.Identity{ID: "x\n"}}},
		"http": {clientMCP, // Requirement: REG-04
			&oauthclient.TransportOptions{Client: oauthclient.Identity{MetadataURL: "http://client.example/id"}}},
		"path": {clientMCP, // Requirement: REG-04
			&oauthclient.TransportOptions{Client: oauthclient.Identity{MetadataURL: "https://client.example"}}},
		"plain": {clientMCP, // Requirement: AUTH-11
			&oauthclient.TransportOptions{Client: oauthclient.Identity{Metadata: oauth.ClientMetadata{RedirectURIs: []string{"http://x.example/"}}}}},
	} {
		t.Run(name, func(t *testing.T) {
			if err := oauthclient.NewTransport(c.endpoint, c.opts).Login(t.Context()); err == nil {
				t.Error("got no error")
			}
		})
	}
}
