package capture_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/capture"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
	"github.com/patchbay-mcp/patchbay/oauth"
	"github.com/patchbay-mcp/patchbay/oauth/authserver"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// A loginServer is a server that requires tokens of an authorization server, and knows all secrets
// of logins.
type loginServer struct {
	url, issuer string
	sent        atomic.Pointer[string] // the header Authorization of the last request
	refused     atomic.Pointer[string] // the value of the header that the server no longer accepts

	mu      sync.Mutex // guards the field below
	secrets []string
}

func (s *loginServer) keep(secrets ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.secrets = append(s.secrets, secrets...)
}

// An observedResponse keeps the body of a response.
type observedResponse struct {
	http.ResponseWriter
	body bytes.Buffer
}

func (r *observedResponse) Write(b []byte) (int, error) {
	r.body.Write(b)
	return r.ResponseWriter.Write(b)
}

func newLoginServer(t *testing.T) *loginServer {
	t.Helper()
	s := &loginServer{}
	as, rs := httptest.NewUnstartedServer(nil), httptest.NewUnstartedServer(nil)
	s.issuer, s.url = "http://"+as.Listener.Addr().String(), "http://"+rs.Listener.Addr().String()+"/mcp"
	log := slog.New(slog.DiscardHandler)
	a, err := authserver.New(&authserver.Options{Issuer: s.issuer, Logger: log,
		Resources: []authserver.Resource{{URL: s.url, Scopes: []authserver.Scope{{Name: "read"}}}},
		Login: authserver.LoginFunc(func(w http.ResponseWriter, r *http.Request, l *authserver.LoginRequest) {
			l.Finish(w, r, authserver.Subject{ID: "ann"})
		})})
	if err != nil {
		t.Fatal(err)
	}
	as.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		seen := &observedResponse{ResponseWriter: w}
		a.ServeHTTP(seen, r)
		form, _ := url.ParseQuery(string(body))
		s.keep(form.Get("code"), form.Get("code_verifier"), form.Get("refresh_token"), form.Get("client_secret"))
		var issued map[string]any
		if r.Method == http.MethodPost && json.Unmarshal(seen.body.Bytes(), &issued) == nil {
			for _, name := range strings.Fields("access_token refresh_token client_secret registration_access_token") {
				text, _ := issued[name].(string)
				s.keep(text)
			}
		}
	})
	protect := oauth.Require(a.Verifier(s.url), oauth.ResourceMetadata{Resource: s.url,
		AuthorizationServers: []string{s.issuer}}, &oauth.RequireOptions{Scopes: oauth.AllOf("read"), Logger: log})
	ok := protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
	rs.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token := r.Header.Get("Authorization")
		s.sent.Store(&token)
		if old := s.refused.Load(); old != nil && token == *old {
			r.Header.Set("Authorization", "Bearer expired")
		}
		ok.ServeHTTP(w, r)
	})
	for _, server := range []*httptest.Server{as, rs} {
		server.Start()
		t.Cleanup(server.Close)
	}
	return s
}

var (
	formAction = regexp.MustCompile(`<form method="post" action="([^"]*)"`)
	formHidden = regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)"`)
)

const redirect = "http://127.0.0.1:1/callback"

// visit allows the access at a login page, and returns the response.
func (s *loginServer) visit(page string) (url.Values, error) {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return nil, err
	}
	var response url.Values
	base := &http.Transport{DisableKeepAlives: true}
	browser := &http.Client{Jar: jar, Transport: base, CheckRedirect: func(to *http.Request, _ []*http.Request) error {
		if strings.HasPrefix(to.URL.String(), redirect) {
			response = to.URL.Query()
			return http.ErrUseLastResponse
		}
		return nil
	}}
	res, err := browser.Get(page)
	for err == nil && response == nil {
		text, _ := io.ReadAll(res.Body)
		res.Body.Close()
		action := formAction.FindStringSubmatch(string(text))
		if action == nil {
			return nil, fmt.Errorf("unexpected page: %.500s", text)
		}
		form := url.Values{"decision": {"allow"}}
		for _, f := range formHidden.FindAllStringSubmatch(string(text), -1) {
			form.Set(f[1], html.UnescapeString(f[2]))
		}
		to, _ := res.Request.URL.Parse(html.UnescapeString(action[1])) // the page is ours
		res, err = browser.PostForm(to.String(), form)
	}
	if err != nil {
		return nil, err
	}
	res.Body.Close()
	s.keep(response.Get("code"), response.Get("state"))
	return response, nil
}

// get requests the server with the login of a user, recorded by a ring.
func (s *loginServer) get(t *testing.T, login *oauthclient.Transport) (token string) {
	t.Helper()
	res, err := (&http.Client{Transport: login}).Post(s.url, "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if body, _ := io.ReadAll(res.Body); res.StatusCode != http.StatusOK {
		t.Fatalf("got %s %s, want 200", res.Status, body)
	}
	return *s.sent.Load()
}

func (s *loginServer) transport(ring *capture.Ring, ask oauthclient.Authorizer) *oauthclient.Transport {
	ctx := ring.WithLogin(context.Background(), "acme", &mcp.Principal{Subject: "ann"})
	return oauthclient.NewTransport(s.url, &oauthclient.TransportOptions{Logger: slog.New(slog.DiscardHandler),
		Base: &http.Transport{DisableKeepAlives: true}, Authorizer: ask, Page: capture.LoginPage(ctx),
		Client:  oauthclient.Identity{Metadata: oauth.ClientMetadata{RedirectURIs: []string{redirect}, Name: "test"}},
		Fetcher: oauth.NewFetcher(&oauth.FetcherOptions{InsecureAnyAddress: true, Wrap: capture.Fetches(ctx)})})
}

// The steps of a login and of a renewal appear with their statuses and public parts, and no secret
// appears in an exchange or an export.
func TestLoginsAppearWithoutSecrets(t *testing.T) {
	mcptest.NoLeaks(t)
	s, ring := newLoginServer(t), capture.New(&capture.Options{Always: true})
	login := s.transport(ring, oauthclient.NewAuthorizer(redirect,
		func(_ context.Context, r *oauthclient.LoginRequest) (url.Values, error) { return s.visit(r.URL) }))
	first := s.get(t, login)
	s.refused.Store(&first)
	if s.get(t, login) == first {
		t.Error("the token was not renewed")
	}
	var steps []string
	var ids []uint64
	text := ""
	for _, x := range slices.Backward(ring.Find(nil, 0, 1000)) {
		if x.Hop != capture.OAuth || x.Server != "acme" || x.Caller != "ann" || !x.IsOver() {
			t.Errorf("got %+v, want a step of the login of ann at acme that ended", x)
		}
		steps = append(steps, x.Method+" "+strings.TrimPrefix(strings.TrimPrefix(x.Target, s.issuer),
			strings.TrimSuffix(s.url, "/mcp"))+" "+x.Status)
		ids = append(ids, x.ID)
		_, frames, _ := ring.Get(x.ID)
		text += fmt.Sprintf("%+v %+v\n", x, frames)
	}
	for _, want := range []string{"GET /.well-known/oauth-protected-resource/mcp http 200",
		"GET /.well-known/oauth-authorization-server http 200", "POST /register http 201", "GET /authorize ok",
		"POST /token http 200"} {
		if !slices.Contains(steps, want) {
			t.Errorf("got the steps %q, want %s", steps, want)
		}
	}
	for _, want := range []string{`"grant_type": "authorization_code"`, `"grant_type": "refresh_token"`,
		`"code_verifier": "[hidden]"`, `"access_token": "[hidden]"`, `"token_type": "Bearer"`, `"state": "[hidden]"`,
		`"redirect_uris": ["` + redirect + `"]`, `"token_endpoint":"` + s.issuer + `/token"`} {
		if !strings.Contains(text, want) {
			t.Errorf("got %s, want %s", text, want)
		}
	}
	for _, id := range ids {
		text += string(ring.WireText(id))
	}
	var har strings.Builder
	if err := ring.WriteHAR(&har, ids); err != nil {
		t.Error(err)
	}
	s.checkHidden(t, text+har.String())
}

// checkHidden checks that a text contains no secret of the logins.
func (s *loginServer) checkHidden(t *testing.T, text string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	known := 0
	for _, secret := range s.secrets {
		if secret == "" {
			continue
		}
		if known++; strings.Contains(text, secret) {
			t.Errorf("the secret %.8s… appears in %s", secret, text)
		}
	}
	if known < 4 { // code, state, verifier, token
		t.Errorf("the fixture knows only %d secrets", known)
	}
}

// The error of a server that repeats secrets, also in escaped form, is recorded without the
// secrets.
func TestRefusedLoginsRepeatNoSecrets(t *testing.T) {
	mcptest.NoLeaks(t)
	s, ring := newLoginServer(t), capture.New(&capture.Options{Always: true})
	as := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		code := r.PostFormValue("code")
		escaped := strings.ReplaceAll(code, "c", `\u0063`)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Server", code)
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `{"error":"invalid_grant","error_description":"no %s","scope":["%s"],"%s":1}`,
			escaped, code, escaped)
	}))
	t.Cleanup(as.Close)
	base := &http.Transport{DisableKeepAlives: true}
	client := &http.Client{Transport: capture.Fetches(ring.WithLogin(t.Context(), "acme", nil))(base)}
	res, err := client.PostForm(as.URL+"/token?code=c-secret-code", url.Values{"code": {"c-secret-code"},
		"grant_type": {"authorization_code"}})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, res.Body)
	res.Body.Close()
	s.keep("c-secret-code", `\u0063-se\u0063ret-\u0063ode`, "secret-", "-code")
	x, frames, _ := ring.Get(ring.Find(nil, 0, 1)[0].ID)
	text := fmt.Sprintf("%+v %+v", x, frames)
	s.checkHidden(t, strings.ReplaceAll(text, "error_description", ""))
	if !strings.Contains(text, `"error": "invalid_grant"`) || x.Status != "http 400" || !x.IsError() {
		t.Errorf("got %s, want the error", text)
	}
}

// An error that repeats the credentials of the header Authorization does not show the credentials.
func TestRefusedCredentialsAreHidden(t *testing.T) {
	mcptest.NoLeaks(t)
	ring := capture.New(&capture.Options{Always: true})
	as := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, credentials, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		_, encoded, _ := r.BasicAuth()
		decoded, _ := url.QueryUnescape(encoded)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprintf(w, `{"error":"invalid_client","error_description":"wrong: %s, %s, %s"}`,
			credentials, encoded, decoded)
	}))
	t.Cleanup(as.Close)
	ctx := ring.WithLogin(t.Context(), "acme", nil)
	client := &http.Client{Transport: capture.Fetches(ctx)(&http.Transport{DisableKeepAlives: true})}
	basic := &http.Request{Header: http.Header{}}
	basic.SetBasicAuth("client", "s3cret%2Bvalue")
	for _, value := range []string{basic.Header.Get("Authorization"), "Bearer s3cret-token", "DPoP s3cret-token"} {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, as.URL, strings.NewReader("grant_type=x"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", value)
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		res.Body.Close()
		id := ring.Find(nil, 0, 1)[0].ID
		text := string(ring.WireText(id))
		_, credentials, _ := strings.Cut(value, " ")
		if !strings.Contains(text, "wrong: [hidden]") || strings.Contains(text, "s3cret") ||
			strings.Contains(text, credentials) {
			t.Errorf("got %s, want the error without the credentials", text)
		}
	}
}

// Without a reader the steps are listed, and no text is kept.
func TestLoginsWithoutReader(t *testing.T) {
	mcptest.NoLeaks(t)
	s, ring := newLoginServer(t), capture.New(nil)
	login := s.transport(ring, oauthclient.NewAuthorizer(redirect,
		func(context.Context, *oauthclient.LoginRequest) (url.Values, error) {
			return url.Values{"error": {"access_denied"}}, nil
		}))
	if err := login.Login(t.Context()); err == nil {
		t.Error("got no error, want that the user denied the access")
	}
	x, frames := find(t, ring, "method:GET status:error")
	if !strings.HasSuffix(x.Target, "/authorize?***") && !strings.HasSuffix(x.Target, "/authorize") ||
		x.Status != "error access_denied" || len(frames) > 0 {
		t.Errorf("got %+v, %+v, want a denied login page without frames", x, frames)
	}
}
