//go:build linux

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/oauth/authserver"
)

// The authorization server has one resource, a user and a public client.
const (
	resourceURL  = "https://mcp.example/mcp"
	redirectURI  = "https://app.example/callback"
	publicClient = "public"
	userName     = "ann"
	password     = "correct horse battery staple"
	verifier     = "a-verifier-of-43-characters-at-the-very-least-"
)

func serveAuthorization(l net.Listener, _ string) error {
	hash, err := authserver.HashPassword(password)
	if err != nil {
		return err
	}
	login, err := authserver.NewPasswordLogin(&authserver.PasswordOptions{
		Users: []authserver.PasswordUser{{Name: userName, Hash: hash}},
	})
	if err != nil {
		return err
	}
	server, err := authserver.New(&authserver.Options{
		Issuer:    "http://" + l.Addr().String(),
		Resources: []authserver.Resource{{URL: resourceURL, Scopes: []authserver.Scope{{Name: "read"}}}},
		Clients:   []authserver.Client{{ID: publicClient, RedirectURIs: []string{redirectURI}}},
		Login:     login, Logger: discardLogger,
	})
	if err != nil {
		return err
	}
	return serveBounded(l, server)
}

// serveBareAuthorization serves a handler that reads and discards requests.
func serveBareAuthorization(l net.Listener, _ string) error {
	return serveBounded(l, http.HandlerFunc(discard))
}

func discard(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	_, _ = io.WriteString(w, `{"access_token": "a", "refresh_token": "r"}`)
}

// serveBareHash does the same, and computes the hash of one password at a time, as a login must.
func serveBareHash(l net.Listener, _ string) error {
	var hashing sync.Mutex
	return serveBounded(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/login" && hashing.TryLock() {
			_, _ = authserver.HashPassword(password)
			hashing.Unlock()
		}
		discard(w, r)
	}))
}

func serveBounded(l net.Listener, h http.Handler) error {
	server := &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		ErrorLog: slog.NewLogLogger(discardLogger.Handler(), slog.LevelWarn),
	}
	return server.Serve(l)
}

// A browser has cookies and an address of 127.0.0.0/8 of its own.
type browser struct {
	*http.Client
	base string
	form url.Values // the hidden fields of the login page
}

// newBrowser returns a browser whose address has three numbers of its own.
func newBrowser(server string, a, b, c byte) *browser {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, a, b, c)}}
	jar, _ := cookiejar.New(nil)
	return &browser{base: "http://" + server, Client: &http.Client{
		Jar: jar, Timeout: time.Minute,
		Transport:     &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// fetch sends a GET, or a POST with a body, and returns the response with its body.
func (b *browser) fetch(ctx context.Context, target, contentType, body string) (*http.Response, string, error) {
	method := http.MethodGet
	if contentType != "" {
		method = http.MethodPost
	}
	if strings.HasPrefix(target, "/") {
		target = b.base + target
	}
	req, err := http.NewRequestWithContext(ctx, method, target, strings.NewReader(body))
	if err != nil {
		return nil, "", err
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := b.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp, string(text), err
}

const formType = "application/x-www-form-urlencoded"

func (b *browser) post(ctx context.Context, target string, form url.Values) (*http.Response, string, error) {
	return b.fetch(ctx, target, formType, form.Encode())
}

func authorizeURL() string {
	sum := sha256.Sum256([]byte(verifier))
	return "/authorize?" + url.Values{
		"response_type": {"code"}, "client_id": {publicClient}, "redirect_uri": {redirectURI}, "state": {"s"},
		"code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}, "code_challenge_method": {"S256"},
		"resource": {resourceURL}, "scope": {"read"},
	}.Encode()
}

var hiddenInput = regexp.MustCompile(`<input type="hidden" name="([a-z]+)" value="([^"]*)">`)

// openLogin authorizes until the login page is shown.
func (b *browser) openLogin(ctx context.Context) (status int, err error) {
	resp, text, err := b.fetch(ctx, authorizeURL(), "", "")
	if err == nil && resp.StatusCode == http.StatusSeeOther {
		resp, text, err = b.fetch(ctx, resp.Header.Get("Location"), "", "")
	}
	if err != nil || resp.StatusCode != http.StatusOK {
		return statusOf(resp), err
	}
	form := url.Values{"decision": {"allow"}}
	for _, m := range hiddenInput.FindAllStringSubmatch(text, -1) {
		form.Set(m[1], m[2])
	}
	resp, _, err = b.post(ctx, "/consent", form)
	if err == nil && resp.StatusCode == http.StatusSeeOther {
		resp, _, err = b.fetch(ctx, resp.Header.Get("Location"), "", "")
	}
	if err == nil && resp.StatusCode == http.StatusOK {
		form.Del("decision")
		b.form = form
	}
	return statusOf(resp), err
}

func statusOf(resp *http.Response) int {
	if resp == nil {
		return 0
	}
	return resp.StatusCode
}

func (b *browser) submitPassword(ctx context.Context, user, password string) (*http.Response, string, error) {
	b.form.Set("username", user)
	b.form.Set("password", password)
	return b.post(ctx, "/login", b.form)
}

// login logs the user in and returns the code.
func (b *browser) login(ctx context.Context) (code string, err error) {
	if status, err := b.openLogin(ctx); err != nil || status != http.StatusOK {
		return "", fmt.Errorf("login page: status %d, %v", status, err)
	}
	resp, text, err := b.submitPassword(ctx, userName, password)
	if err != nil {
		return "", err
	}
	target, err := resp.Location()
	if err != nil {
		return "", fmt.Errorf("login: status %d: %s", resp.StatusCode, text)
	}
	return target.Query().Get("code"), nil
}

// newLoginProbe returns the login of a user who has logged in before, from several addresses so that
// it stays below the limit of each.
func newLoginProbe(address string) (func() error, error) {
	const addresses = 24
	var browsers []*browser
	for i := range addresses {
		b := newBrowser(address, 250, 0, byte(i+1))
		if _, err := b.login(context.Background()); err != nil {
			return nil, err
		}
		browsers = append(browsers, b)
	}
	next := 0
	return func() error {
		next++
		_, err := browsers[next%addresses].login(context.Background())
		return err
	}, nil
}

// newRefreshProbe returns a refresh of the tokens of one client, which has logged in once.
func newRefreshProbe(address string) (func() error, error) {
	b := newBrowser(address, 250, 0, 100)
	code, err := b.login(context.Background())
	if err != nil {
		return nil, err
	}
	return b.refresh(url.Values{
		"grant_type": {"authorization_code"}, "code": {code}, "client_id": {publicClient},
		"code_verifier": {verifier}, "redirect_uri": {redirectURI},
	})
}

// newBareRefreshProbe sends the same requests to a server that does not check them.
func newBareRefreshProbe(address string) (func() error, error) {
	return newBrowser(address, 250, 0, 100).refresh(url.Values{})
}

// refresh sends a token request and returns the function that refreshes. Each request has another
// address, because public clients are limited by address.
func (b *browser) refresh(first url.Values) (func() error, error) {
	var tokens struct {
		Refresh string `json:"refresh_token"`
	}
	n := 0
	server := strings.TrimPrefix(b.base, "http://")
	send := func(form url.Values) error {
		n++
		resp, text, err := newBrowser(server, 251, byte(n>>8), byte(n)).post(context.Background(), "/token", form)
		switch {
		case err != nil:
			return err
		case resp.StatusCode != http.StatusOK:
			return fmt.Errorf("token request: status %d: %s", resp.StatusCode, text)
		}
		return json.Unmarshal([]byte(text), &tokens)
	}
	if err := send(first); err != nil {
		return nil, err
	}
	return func() error {
		return send(url.Values{
			"grant_type": {"refresh_token"}, "refresh_token": {tokens.Refresh}, "client_id": {publicClient},
		})
	}, nil
}

// attackAuthorization is one attack on the authorization server, from a network of its own.
func (a *attack) attackAuthorization(b *browser, i, n int) (status int, err error) {
	var resp *http.Response
	switch i % 5 {
	case 0: // an authorization request
		resp, _, err = b.fetch(a.ctx, authorizeURL()+"&x="+strings.Repeat("x", 8<<10), "", "")
	case 1: // a registration that is as large as possible
		resp, _, err = b.fetch(a.ctx, "/register", "application/json", registration(n))
	case 2: // an unknown code, or an unknown refresh token
		form := url.Values{
			"grant_type": {"authorization_code"}, "code": {fmt.Sprintf("%032d", n)}, "client_id": {publicClient},
			"code_verifier": {verifier}, "redirect_uri": {redirectURI},
		}
		if n%2 == 0 {
			form = url.Values{
				"grant_type": {"refresh_token"}, "refresh_token": {fmt.Sprintf("%032d", n)}, "client_id": {publicClient},
			}
		}
		resp, _, err = b.post(a.ctx, "/token", form)
	case 3: // a wrong password
		if b.form == nil {
			return b.openLogin(a.ctx)
		}
		resp, _, err = b.submitPassword(a.ctx, fmt.Sprintf("user%d-%d", i, n), "wrong")
	default: // a large token request with an invalid assertion
		resp, _, err = b.post(a.ctx, "/token", url.Values{
			"grant_type": {"authorization_code"}, "client_assertion": {strings.Repeat("x.", 30<<10)[:60<<10]},
			"client_assertion_type": {"urn:ietf:params:oauth:client-assertion-type:jwt-bearer"},
		})
	}
	return statusOf(resp), err
}

func registration(n int) string {
	var uris bytes.Buffer
	for i := range 19 {
		fmt.Fprintf(&uris, `%q,`, fmt.Sprintf("https://site%d.example/%d/%s", n, i, strings.Repeat("x", 150)))
	}
	return `{"token_endpoint_auth_method":"none","grant_types":["authorization_code"],"redirect_uris":[` +
		strings.TrimSuffix(uris.String(), ",") + `]}`
}
