package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"
)

// A login is one authorization of a user and all that follows from it.
type login struct {
	*worker
	user, chain, verifier string
	browser               *http.Client
	ended                 bool // the server has said that something was used twice, which ends the grant
}

// tokens is a token response.
type tokens struct {
	Access  string `json:"access_token"`
	Refresh string `json:"refresh_token"`
}

// authorize logs a user in, uses the tokens, refreshes them, and sometimes uses a code or a refresh
// token twice.
func (w *worker) authorize(ctx context.Context) {
	jar, _ := cookiejar.New(nil)
	l := &login{worker: w, user: fmt.Sprint("user", w.number), chain: w.nonce(), verifier: rand.Text() + rand.Text()}
	l.browser = &http.Client{Transport: w.http, Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	code := l.code(ctx)
	if code == "" {
		return
	}
	l.pause(ctx)
	first := l.exchange(ctx, code)
	if first.Access == "" {
		return
	}
	l.call(ctx, first)
	if w.random.IntN(4) == 0 {
		l.exchangeAgain(ctx, code)
		l.call(ctx, first)
		l.pause(ctx)
		l.call(ctx, first)
		return
	}
	for held := first; held.Refresh != "" && w.random.IntN(5) > 0; {
		l.pause(ctx)
		held = l.refresh(ctx, held)
		if held.Access != "" {
			l.call(ctx, held)
		}
	}
}

// pause waits for a while, in which the server may be restarted.
func (l *login) pause(ctx context.Context) {
	l.sleep(ctx, []time.Duration{200 * time.Millisecond, 600 * time.Millisecond, 3 * time.Second}[l.random.IntN(3)])
}

var hiddenInput = regexp.MustCompile(`<input type="hidden" name="([a-z]+)" value="([^"]*)">`)

// code completes the pages of the authorization server and returns the code, or "" if a request
// failed.
func (l *login) code(ctx context.Context) string {
	sum := sha256.Sum256([]byte(l.verifier))
	query := url.Values{
		"response_type": {"code"}, "client_id": {clientID}, "redirect_uri": {redirectURI}, "state": {l.chain},
		"code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])}, "code_challenge_method": {"S256"},
		"resource": {l.url + "/mcp"}, "scope": {"use"},
	}
	begun := l.page(ctx, http.MethodGet, l.url+"/authorize?"+query.Encode(), nil)
	consent := l.page(ctx, http.MethodGet, begun.header.Get("Location"), nil)
	form := url.Values{"decision": {"allow"}}
	for _, m := range hiddenInput.FindAllStringSubmatch(consent.body, -1) {
		form.Set(m[1], m[2])
	}
	if len(form) != 3 {
		return ""
	}
	allowed := l.page(ctx, http.MethodPost, l.url+"/consent", form)
	done := l.page(ctx, http.MethodGet, allowed.header.Get("Location"), nil)
	answer, err := url.Parse(done.header.Get("Location"))
	if err != nil || done.outcome != answered || !strings.HasPrefix(answer.String(), redirectURI) {
		return ""
	}
	if state := answer.Query().Get("state"); state != l.chain {
		l.history.violate("crossed: a login got the response of another", state+" instead of "+l.chain)
	}
	return answer.Query().Get("code")
}

// page sends a request of the browser; nothing is sent if the page before had no location.
func (l *login) page(ctx context.Context, method, address string, form url.Values) response {
	if address == "" {
		return response{outcome: unsent, header: http.Header{}}
	}
	req, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(form.Encode()))
	if err != nil {
		return response{outcome: unsent, header: http.Header{}}
	}
	req.Header.Set(userHeader, l.user)
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	r := l.send(ctx, l.browser, req, "login page", "")
	if r.header == nil {
		r.header = http.Header{}
	}
	return r
}

// token uses a code or a refresh token, again if it certainly was not used.
func (l *login) token(ctx context.Context, kind, secret string, again bool, form url.Values) (t tokens, r response) {
	for range maxTries {
		if t, r = l.tokenOnce(ctx, kind, secret, again, form); r.outcome != unsent {
			break
		}
		time.Sleep(unsentPause)
	}
	return t, r
}

// unsentPause is the pause after a request that was refused because the server restarts.
const unsentPause = 400 * time.Millisecond

// tokenOnce uses a code or a refresh token and records the use.
func (l *login) tokenOnce(ctx context.Context, kind, secret string, again bool, form url.Values) (t tokens, r response) {
	form.Set("client_id", clientID)
	u := singleUse{Begin: l.history.now(), Chain: l.chain, Kind: kind, Secret: secret, Again: again}
	header := http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}
	r = l.post(ctx, "/token", form.Encode(), header, kind, "")
	u.End, u.Outcome = l.history.now(), r.outcome
	if r.outcome == answered {
		if err := json.Unmarshal([]byte(r.body), &t); err != nil || t.Access == "" || t.Refresh == "" {
			l.history.violate("lost: a token response has no tokens", r.body)
		}
		u.Result = t.Refresh
	}
	l.history.use(u)
	return t, r
}

func (l *login) codeForm(code string) url.Values {
	return url.Values{"grant_type": {"authorization_code"}, "code": {code}, "code_verifier": {l.verifier},
		"redirect_uri": {redirectURI}}
}

// exchange exchanges the code, sometimes with two requests at once.
func (l *login) exchange(ctx context.Context, code string) (t tokens) {
	if l.random.IntN(4) > 0 {
		t, _ = l.token(ctx, "code", code, false, l.codeForm(code))
		return t
	}
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() { l.token(ctx, "code", code, true, l.codeForm(code)) })
	}
	both.Wait()
	return tokens{}
}

// exchangeAgain uses the code a second time.
func (l *login) exchangeAgain(ctx context.Context, code string) {
	if _, r := l.token(ctx, "code", code, true, l.codeForm(code)); r.outcome == failed {
		l.ended = true
	}
}

// refresh uses a refresh token, sometimes twice. Without an answer, it sometimes tries again.
func (l *login) refresh(ctx context.Context, held tokens) tokens {
	form := url.Values{"grant_type": {"refresh_token"}, "refresh_token": {held.Refresh}}
	next, r := l.token(ctx, "refresh", held.Refresh, false, form)
	if l.random.IntN(4) == 0 || r.outcome == unknown {
		l.pause(ctx)
		if again, _ := l.token(ctx, "refresh", held.Refresh, true, form); next.Access == "" {
			next = again
		}
		l.ended = false // with a grace period the grant goes on
	}
	return next
}

// call calls a tool with an access token. It must be accepted as the user, and must not be accepted
// after the grant has ended.
func (l *login) call(ctx context.Context, held tokens) {
	nonce := l.nonce()
	r := l.callRaw(ctx, held.Access, "echo", nonce, "", "call with access token")
	m := r.result()
	if r.outcome != answered {
		return
	}
	if text := m.text(); text != answerText(l.user, nonce) {
		l.history.violate("crossed: an access token got the answer of another", r.body)
	}
	if l.ended {
		l.history.violate("doubled: a token of a grant that has ended was accepted", l.chain+" "+nonce)
	}
}
