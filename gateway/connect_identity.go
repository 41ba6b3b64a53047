package gateway

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/host/operator"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/oauth"
	"github.com/patchbay-mcp/patchbay/oauth/oidcclient"
)

const (
	// pathIdentity is the path, below pathConnect, to which the authorization server of the callers
	// redirects browsers.
	pathIdentity = "identity"
	// maxIdentityChecks limits the identity checks in progress. A login starts at most one check.
	maxIdentityChecks = 10_000
)

// errOtherUser reports that the visitor of a page is not the caller of the login.
var errOtherUser = errors.New("another user has opened the page of the login")

// An identityCheck is an authorization request that identifies the visitor of a login page at the
// authorization server of the callers.
type identityCheck struct {
	oidcclient.Request
	ticket, browser string
}

// client returns the client with which the gateway identifies callers, or nil without a client ID.
// The options must be valid.
func (o *OAuth) client() *oidcclient.Client {
	if o == nil || o.ClientID == "" {
		return nil
	}
	issuer, _ := url.Parse(o.AuthorizationServers[0])
	fetcher := o.Fetcher
	if fetcher == nil {
		fetcher = oauth.NewFetcher(nil)
	}
	return &oidcclient.Client{Issuer: o.AuthorizationServers[0], ID: o.ClientID, Secret: o.ClientSecret,
		Scopes: []string{"openid"}, HTTP: fetcher.For(issuer).HTTPClient()}
}

// asksIssuer reports whether the login page sends its visitor to the authorization server of the
// callers to be identified.
func (p *connectPages) asksIssuer(caller *mcp.Principal) bool {
	return p.gateway.opts.ConnectPrincipal == nil && p.issuer != nil && caller != nil &&
		caller.Issuer == p.issuer.Issuer
}

// identityURL returns the redirect URI of identity checks.
func (p *connectPages) identityURL() string {
	return p.base().String() + pathConnect + "/" + pathIdentity
}

// identify redirects a browser to the authorization server of the callers, which identifies its
// user.
//
// Spec: client/elicitation#phishing.
func (p *connectPages) identify(w http.ResponseWriter, r *http.Request, ticket, browser string) {
	ctx, cancel := context.WithTimeout(r.Context(), connectTime)
	defer cancel()
	ends, err := p.issuer.Endpoints(ctx)
	if err != nil {
		p.failIdentity(w, err)
		return
	}
	sum := sha256.Sum256([]byte(ticket))
	id := hex.EncodeToString(sum[:])
	check := &identityCheck{oidcclient.NewRequest(id), ticket, browser}
	p.addCheck(id, check)
	w.Header().Set("Location", p.issuer.AuthorizationURL(ends, p.identityURL(), &check.Request))
	w.WriteHeader(http.StatusSeeOther)
}

// identified receives the response of the authorization server of the callers. It starts the login
// if the visitor is the caller of the login.
func (p *connectPages) identified(w http.ResponseWriter, r *http.Request) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		p.fail(w, operator.ErrNoLogin)
		return
	}
	check, err := p.takeCheck(query, p.browser(r))
	if err != nil {
		p.fail(w, err)
		return
	}
	l, err := p.gateway.host.Operator().Login(check.ticket)
	if err != nil {
		p.fail(w, err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), connectTime)
	defer cancel()
	switch subject, err := p.subject(ctx, query, check); {
	case err != nil:
		p.failIdentity(w, err)
	case l.Principal() == nil || l.Principal().Issuer != p.issuer.Issuer || l.Principal().Subject != subject:
		p.gateway.recordLogin(l.Principal(), loginDetail{Outcome: outcomeRefused, Remote: remoteIP(r),
			Path: pathConnect, Reason: errOtherUser.Error()})
		p.message(w, http.StatusForbidden, "You are not the caller that the login is for",
			"The login was not started. If another person has sent you its address, tell the operator of this gateway.")
	default:
		p.start(w, r, l, check.browser)
	}
}

// addCheck adds a check. If there are too many, it removes the oldest check.
func (p *connectPages) addCheck(id string, check *identityCheck) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.started = append(slices.DeleteFunc(p.started, func(other string) bool { return other == id }), id)
	if len(p.started) > maxIdentityChecks {
		delete(p.checks, p.started[0])
		p.started = slices.Delete(p.started, 0, 1)
	}
	p.checks[id] = check
}

// takeCheck removes and returns the check that a response belongs to.
func (p *connectPages) takeCheck(response url.Values, browser string) (*identityCheck, error) {
	state := response.Get("state")
	id, _, _ := strings.Cut(state, ".")
	p.mu.Lock()
	defer p.mu.Unlock()
	check := p.checks[id]
	switch {
	case check == nil || subtle.ConstantTimeCompare([]byte(state), []byte(check.State)) != 1:
		return nil, operator.ErrNoLogin
	case subtle.ConstantTimeCompare([]byte(browser), []byte(check.browser)) != 1:
		return nil, operator.ErrOtherBrowser
	}
	delete(p.checks, id)
	return check, nil
}

// subject exchanges the code of a response and returns the verified subject of the ID token.
func (p *connectPages) subject(ctx context.Context, response url.Values, check *identityCheck) (string, error) {
	ends, err := p.issuer.Endpoints(ctx)
	if err != nil {
		return "", err
	}
	if err := p.issuer.CheckIssuer(ends, response["iss"]); err != nil {
		return "", err
	}
	if code := response.Get("error"); code != "" {
		return "", errors.New("the authorization server refused the login")
	}
	if len(response["code"]) != 1 {
		return "", errors.New("invalid authorization response: must contain one code")
	}
	token, err := p.issuer.Exchange(ctx, ends, p.identityURL(), response.Get("code"), check.Verifier)
	if err != nil {
		return "", err
	}
	id, err := p.issuer.VerifyIDToken(ctx, ends, token, check.Nonce)
	if err != nil {
		return "", err
	}
	return id.Subject, nil
}

// failIdentity shows that the visitor was not identified.
func (p *connectPages) failIdentity(w http.ResponseWriter, err error) {
	p.gateway.opts.Logger.Warn("gateway: the visitor of a login page was not identified", "error", err)
	p.message(w, http.StatusBadGateway, "You could not be identified",
		"The authorization server of this gateway did not confirm who you are, so the login was not started. Repeat "+
			"the request in your client to try again.")
}
