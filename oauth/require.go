package oauth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/dpop"
	"github.com/patchbay-mcp/patchbay/internal/netx"
	"github.com/patchbay-mcp/patchbay/internal/oauthwire"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// RequireOptions configures [Require]. The zero value is right for most servers.
type RequireOptions struct {
	// Scopes are needed by every request. The challenge for clients without a token names them.
	// Default: none.
	Scopes Scopes
	// Implies reports whether a granted scope includes a needed scope; see [Hierarchy]. It must be
	// fast and safe for concurrent use. Default: no scope includes another.
	Implies func(granted, needed string) bool
	// Issuers are the authorization servers whose tokens are accepted: the claim iss of a token
	// must equal one of them, byte by byte. Default: the AuthorizationServers of the metadata.
	Issuers []string
	// Audiences are further accepted audiences, for authorization servers that do not put the URL
	// of the resource into tokens. They are compared byte by byte. Default: none.
	Audiences []string
	// MaxStream is how long a stream (GET, or subscriptions/listen) may last before the client must
	// send its token again, so that revoked tokens are noticed. A stream also ends half a minute
	// after its token expired; clients resume it with a new one. Calls are never interrupted.
	// Default: 1 hour for a token without an expiry, else no limit.
	MaxStream time.Duration
	// DPoP configures the verification of DPoP proofs. Default: the zero ProofOptions if the
	// metadata mentions DPoP, else tokens that are bound to a key are refused.
	DPoP *ProofOptions
	// InsecureHTTP allows http URLs of the resource and its authorization servers. Tokens can then
	// be read on the network. Default: http is only allowed at loopback addresses.
	InsecureHTTP bool
	// Logger receives refusals, also those of [RequireScopes] and [CheckScopes], at level info,
	// requests without a token at level debug, and tokens that could not be verified at level
	// error. Default: slog.Default().
	Logger *slog.Logger
	// Audit receives each decision about a request before the request is served or refused, for an
	// audit log. It is called concurrently; the request waits until it returns. A refusal by
	// [RequireScopes] or [CheckScopes] is another decision about an accepted request. Requests that
	// need no token are not reported. Default: none.
	Audit func(ctx context.Context, d Decision)
}

// A Decision is the decision of [Require], [RequireScopes] or [CheckScopes] about a request.
// middleware.AuditRecord of package mcp describes the request that was served afterwards, and
// authserver.AuditEvent an action at the authorization server.
type Decision struct {
	// Principal is the caller. It is nil if the request carries no valid token.
	Principal *mcp.Principal
	// RemoteAddr is the network address that sent the request, with its port, as in [http.Request].
	RemoteAddr string
	// Method and Target are the method and the path of the HTTP request. In refusals of
	// [RequireScopes] and [CheckScopes] they are the MCP method and the name of the tool or prompt
	// or the URI of the resource. Clients choose them; Target contains at most 256 bytes.
	Method, Target string
	// Status is the HTTP status of the refusal: 400, 401, 403, or 503 if the token could not be
	// verified. It is 0 if the request was accepted.
	Status int
	// Err is the reason of the refusal, nil if the request was accepted. It may wrap
	// [ErrInvalidToken], [ErrTokenExpired] or a [*ScopeError]. It does not contain the token.
	Err error
}

func (g *guard) audit(r *http.Request, p *mcp.Principal, no *denial) {
	if g.opts.Audit == nil {
		return
	}
	d := Decision{Principal: p, RemoteAddr: r.RemoteAddr, Method: r.Method, Target: cut(r.URL.EscapedPath())}
	if no != nil {
		d.Status, d.Err = no.status, no.reason()
	}
	g.opts.Audit(r.Context(), d)
}

// methodSubscriptionsListen opens a stream in revision 2026-07-28.
const methodSubscriptionsListen = "subscriptions/listen"

// defaultMaxStream is for tokens without an expiry.
const defaultMaxStream = time.Hour

// Require returns middleware that protects a resource: it forwards the requests that carry a valid
// access token to the handler, and refuses others. For an MCP server:
//
//	protect := oauth.Require(verifier, oauth.ResourceMetadata{
//		Resource:             "https://example.com/mcp",
//		AuthorizationServers: []string{"https://auth.example.com"},
//	}, nil)
//	err := mcphttp.ListenAndServe(ctx, addr, "/mcp", mcphttp.NewHandler(server, nil), protect)
//
// The token must be in the Authorization header, and the verifier must accept it. It must not be
// expired for more than 30 seconds, by which clocks may differ. Its issuer (iss), which is an
// authorization server, must be one of RequireOptions.Issuers, and its audience (aud) the URL of
// Resource, up to the case of scheme and host and a slash at the end. Tokens of a [StaticVerifier]
// contain neither issuer nor audience. The refusal is a challenge: status 401 without a valid
// token, 403 if it lacks scopes, 400 for a malformed request.
//
// Two kinds of requests need no token. CORS preflight requests, which never carry a token, are
// forwarded. Requests for the metadata of the resource are answered by the middleware, if they
// reach it, as with mcphttp.ListenAndServe; on a mux that routes only /mcp to it, also register
// [NewMetadataHandler].
//
// Handlers, such as the function of a tool, get the caller with [mcp.PrincipalFrom]: the claims of
// the token, and not the token.
//
// Require panics if the arguments are invalid: no authorization server, unless the verifier itself
// is a [StaticVerifier]; a resource that is not an https URL (http at a loopback address); or an
// invalid scope.
//
// Spec: RFC 6750; RFC 9728; basic/authorization (2025-06-18 and later).
func Require(v Verifier, metadata ResourceMetadata, opts *RequireOptions) func(http.Handler) http.Handler {
	g, err := newGuard(v, &metadata, opts)
	if err != nil {
		panic("oauth: Require: " + err.Error())
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.serve(w, r, next) })
	}
}

type guard struct {
	verifier      Verifier
	opts          RequireOptions
	resource      *protectedResource
	proofs        *dpop.Verifier // nil if DPoP is not supported
	algs          string         // of proofs
	defaultScopes []string       // in challenges without other scopes
}

func newGuard(v Verifier, metadata *ResourceMetadata, opts *RequireOptions) (*guard, error) {
	g := &guard{verifier: v, opts: *cmp.Or(opts, new(RequireOptions))}
	if v == nil {
		return nil, errors.New("the verifier is nil")
	}
	if err := g.opts.Scopes.validate(); err != nil {
		return nil, err
	}
	if g.opts.MaxStream < 0 {
		return nil, fmt.Errorf("invalid MaxStream %v: must not be negative", g.opts.MaxStream)
	}
	g.opts.Logger = cmp.Or(g.opts.Logger, slog.Default())
	described := *metadata
	if err := g.prepareProofs(&described); err != nil {
		return nil, err
	}
	var err error
	if g.resource, err = newProtectedResource(&described); err != nil {
		return nil, err
	}
	// No authorization server that metadata could name issues the tokens of the configuration.
	if _, static := v.(*StaticVerifier); !static || len(metadata.AuthorizationServers) > 0 {
		if err := g.resource.describe(&described); err != nil {
			return nil, err
		}
	}
	if g.opts.Issuers == nil {
		g.opts.Issuers = metadata.AuthorizationServers
	}
	g.opts.Issuers, g.opts.Audiences = slices.Clone(g.opts.Issuers), slices.Clone(g.opts.Audiences)
	g.defaultScopes = new(grantedScopes).required([]Scopes{g.opts.Scopes})
	return g, g.checkSchemes(metadata)
}

// prepareProofs creates the verifier of proofs, if DPoP is supported, and adds it to the metadata.
func (g *guard) prepareProofs(metadata *ResourceMetadata) (err error) {
	var o ProofOptions
	switch {
	case g.opts.DPoP != nil:
		o = *g.opts.DPoP
	case !metadata.DPoPRequired && len(metadata.DPoPAlgorithms) == 0:
		return nil
	}
	o.Required = o.Required || metadata.DPoPRequired
	if len(o.Algorithms) == 0 {
		o.Algorithms = metadata.DPoPAlgorithms
	}
	v := dpop.VerifierOptions{Required: o.Required, Algorithms: o.Algorithms, Nonces: o.Nonces, MaxProofs: o.MaxProofs}
	if o.NonceKeys != nil {
		v.NonceKeys = &o.NonceKeys.keys
	}
	if g.proofs, err = dpop.NewVerifier(&v); err != nil {
		return err
	}
	metadata.DPoPRequired, metadata.DPoPAlgorithms = o.Required, g.proofs.Algorithms()
	g.algs = strings.Join(metadata.DPoPAlgorithms, " ")
	return nil
}

func (g *guard) checkSchemes(metadata *ResourceMetadata) error {
	if g.opts.InsecureHTTP {
		return nil
	}
	for _, text := range append([]string{metadata.Resource}, metadata.AuthorizationServers...) {
		if u, err := url.Parse(text); err != nil || u.Scheme != "https" && !netx.IsLoopback(u.Hostname()) {
			return fmt.Errorf("invalid URL %.100q: must be https, or http at a loopback address", text)
		}
	}
	return nil
}

func (g *guard) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	switch {
	case g.resource.isWellKnown(r.URL.Path):
		g.resource.ServeHTTP(w, r) // or 404, so that clients see that there is no metadata
		return
	case r.Method == http.MethodOptions && r.Header.Get("Origin") != "" &&
		r.Header.Get("Access-Control-Request-Method") != "": // CORS preflight
		next.ServeHTTP(w, withoutToken(r.Context(), r))
		return
	}
	creds, no := readCredentials(r)
	if no == nil {
		var authorized *authorizedContext
		if authorized, no = g.authorize(w, r, creds); no == nil && formContainsToken(r) {
			no = badRequest("the access token must be in the Authorization header, not in the body")
			no.principal = authorized.principal
		}
		if no == nil {
			g.audit(r, authorized.principal, nil)
			g.forward(w, r, next, authorized)
			return
		}
	}
	g.audit(r, no.principal, no)
	g.refuse(w, r, creds.scheme, no)
}

type authorizedContext struct {
	context.Context // with the principal
	guard           *guard
	principal       *mcp.Principal
	remote          string // the network address of the caller
	scheme          string
	token           *Token
}

type authorizedContextKey struct{}

func (a *authorizedContext) Value(key any) any {
	if key == (authorizedContextKey{}) {
		return a
	}
	return a.Context.Value(key)
}

func (g *guard) authorize(w http.ResponseWriter, r *http.Request, creds credentials) (*authorizedContext, *denial) {
	if creds.scheme == oauthwire.DPoP && g.proofs == nil {
		return nil, errNoToken
	}
	token, err := g.verifier.Verify(r.Context(), creds.token)
	switch {
	case err == nil && token == nil:
		err = errors.New("the verifier returned neither a token nor an error")
	case err == nil:
		err = g.checkToken(token)
	}
	switch {
	case errors.Is(err, ErrTokenExpired):
		return nil, badToken("the access token has expired", err)
	case errors.Is(err, ErrInvalidToken):
		return nil, badToken("the access token is not valid here", err)
	case err != nil:
		return nil, &denial{status: http.StatusServiceUnavailable, cause: err}
	}
	if no := g.checkProof(w, r, creds, token); no != nil {
		return nil, no
	}
	principal := token.principal()
	granted := grantedScopes{token.Scopes, g.opts.Implies}
	if need := []Scopes{g.opts.Scopes}; !granted.covers(need) {
		needed := granted.required(need)
		return nil, &denial{
			status: http.StatusForbidden, code: oauthwire.InsufficientScope, description: insufficientScope(needed),
			scopes: needed, principal: principal,
		}
	}
	return &authorizedContext{
		Context: mcp.WithPrincipal(r.Context(), principal), guard: g, principal: principal, remote: r.RemoteAddr,
		scheme: creds.scheme, token: token,
	}, nil
}

// checkToken returns an error if a genuine token is not valid for this resource.
func (g *guard) checkToken(t *Token) error {
	if err := t.checkIdentity(); err != nil {
		return err
	}
	switch {
	case t.configured:
	case !slices.Contains(g.opts.Issuers, t.Issuer):
		return invalidToken("invalid issuer %.100q: must be one of the accepted issuers", t.Issuer)
	case slices.ContainsFunc(t.Audience, func(a string) bool { return canonicalURI(a) == g.resource.name }):
	case slices.ContainsFunc(t.Audience, func(a string) bool { return slices.Contains(g.opts.Audiences, a) }):
	default:
		return invalidToken("invalid audience %.200q: must contain the URL of the resource", t.Audience)
	}
	return t.checkTimes(time.Now())
}

// checkProof verifies the proof for a token that is bound to a key. Spec: RFC 9449, section 7.
func (g *guard) checkProof(w http.ResponseWriter, r *http.Request, creds credentials, t *Token) *denial {
	isBound := t.KeyThumbprint != ""
	switch {
	case isBound && creds.scheme != oauthwire.DPoP:
		return badBinding("the access token is bound to a key: send it with the DPoP scheme and a proof")
	case !isBound && (creds.scheme == oauthwire.DPoP || g.proofs.Required()):
		return badBinding("the access token is not bound to a key")
	case !isBound:
		return nil
	}
	nonce, err := g.proofs.Verify(r, g.resource.target(r), creds.token, t.KeyThumbprint)
	if nonce != "" {
		w.Header().Set(dpop.HeaderNonce, nonce)
	}
	if invalid, ok := errors.AsType[*dpop.ProofError](err); ok {
		return &denial{status: http.StatusUnauthorized, code: invalid.Code, description: invalid.Reason, cause: err}
	}
	if err != nil {
		return &denial{status: http.StatusServiceUnavailable, cause: err}
	}
	return nil
}

func (g *guard) forward(w http.ResponseWriter, r *http.Request, next http.Handler, authorized *authorizedContext) {
	// The header can be trusted: a body that differs from it is refused.
	if r.Method == http.MethodGet || wire.Lasts(r.Header.Get("Mcp-Method")) {
		if end, bounded := g.streamEnd(authorized.token); bounded {
			ctx, stop := context.WithDeadlineCause(authorized.Context, end, errTokenRecheck)
			defer stop()
			authorized.Context = ctx
		}
	}
	next.ServeHTTP(w, withoutToken(authorized, r))
}

var errTokenRecheck = fmt.Errorf("%w: the access token must be sent again", mcp.ErrClosed)

func (g *guard) streamEnd(t *Token) (end time.Time, bounded bool) {
	longest := g.opts.MaxStream
	if longest == 0 && t.Expires.IsZero() && !t.configured {
		longest = defaultMaxStream
	}
	if !t.Expires.IsZero() {
		end = t.Expires.Add(clockSkew)
	}
	if latest := time.Now().Add(longest); longest > 0 && (end.IsZero() || latest.Before(end)) {
		end = latest
	}
	return end, !end.IsZero()
}

// withoutToken returns the request for handlers, which must not be able to pass the token on.
// Spec: basic/authorization (2025-06-18 and later), Token Passthrough.
func withoutToken(ctx context.Context, r *http.Request) *http.Request {
	r = r.WithContext(ctx)
	r.Header = maps.Clone(r.Header)
	delete(r.Header, "Authorization")
	delete(r.Header, "Dpop") // useless without the token
	return r
}

// ProofOptions configures how a resource verifies the DPoP proofs of access tokens that are bound
// to a key. The zero value is right for most servers.
//
// Spec: RFC 9449, sections 4.3 and 7 to 9; extension io.modelcontextprotocol/auth/dpop.
type ProofOptions struct {
	// Required refuses tokens that are not bound to a key. Default: they are accepted as bearer
	// tokens. A token that is bound to a key is never accepted without a proof.
	Required bool
	// Algorithms are the algorithms with which proofs may be signed. Default: ES256, ES384, ES512,
	// EdDSA, PS256, PS384, PS512, RS256, RS384 and RS512. Other values are an error.
	Algorithms []string
	// Nonces requires in every proof a nonce that the server issued 5 to 10 minutes ago at most, so
	// that proofs cannot be made in advance. A client without a nonce needs another request.
	Nonces bool
	// NonceKeys are the secrets that nonces are derived from. All processes that serve a resource
	// need the same keys. Default: a random key.
	NonceKeys *NonceKeys
	// MaxProofs bounds the proofs of three minutes, which are stored to detect replay, and half of
	// it the proofs of a key; each takes about 40 bytes. Further requests are refused with status
	// 503. Default: 1,048,576.
	MaxProofs int
}

// NonceKeys are the secrets that the nonces of DPoP proofs are derived from. The zero value holds a
// random key. It is safe for concurrent use and must not be copied.
type NonceKeys struct{ keys dpop.NonceKeys }

// Replace replaces the keys, each of at least 32 bytes, also while servers use them. The first one
// derives new nonces; nonces of all keys are accepted. To rotate keys, first add the new key behind
// the old key in all processes, then move it to the front, and remove the old key after 10 minutes.
// On an error the keys stay as they were.
func (k *NonceKeys) Replace(keys [][]byte) error { return k.keys.Replace(keys) }
