package oauth

import (
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
	"github.com/patchbay-mcp/patchbay/mcp"
)

// RequireOptions configures [Require]. The zero value is right for most servers.
type RequireOptions struct {
	// Scopes are what every request needs. They are also what clients without a token are told to ask for. Default: none.
	Scopes Scopes
	// Implies reports whether a scope that was granted includes another one that is needed; see [Hierarchy]. It must be
	// quick and safe for concurrent use. Default: each scope stands for itself alone.
	Implies func(granted, needed string) bool
	// Issuers are those whose tokens are taken, compared byte by byte. Default: the AuthorizationServers of the metadata.
	Issuers []string
	// Audiences are further names of the resource, for authorization servers that do not put its URL into tokens. They are
	// compared byte by byte. Default: none.
	Audiences []string
	// MaxStream is how long a client may listen (with GET, or with subscriptions/listen) before it has to show its token
	// again, which finds out revoked ones. Whatever it is, listening ends when the token expires, within half a minute;
	// clients take it up again with a new one. A call that was let in is never cut off: its token was good when it began,
	// and it gives no more than its own answer. Default: 1 hour, if the token does not say when it expires.
	MaxStream time.Duration
	// DPoP is how proofs are judged that come with tokens which are bound to a key. Default: as its zero value has it, if
	// the metadata speaks of DPoP; else such tokens are refused.
	DPoP *ProofOptions
	// InsecureHTTP allows the resource and its authorization servers to be reached over http at other addresses than
	// loopback. Then everybody on the way can take the tokens.
	InsecureHTTP bool
	// Logger takes refusals at level info, of requests without a token at level debug, and failures to verify as errors.
	// Default: slog.Default().
	Logger *slog.Logger
}

// methodSubscriptionsListen is the request with which clients of 2026-07-28 listen.
const methodSubscriptionsListen = "subscriptions/listen"

// defaultMaxStream is for tokens that do not say when they expire.
const defaultMaxStream = time.Hour

// Require returns middleware that lets requests through to a resource only with an access token for it. For an MCP server
// it is one line:
//
//	protect := oauth.Require(verifier, oauth.ResourceMetadata{
//		Resource:             "https://example.com/mcp",
//		AuthorizationServers: []string{"https://auth.example.com"},
//	}, nil)
//	mcphttp.ListenAndServe(ctx, addr, "/mcp", mcphttp.NewHandler(server, nil), protect)
//
// The token stands in the Authorization header, nowhere else. It must be genuine, as the verifier says, from one of the
// issuers, within its time, and for this resource: its audience is the URL of Resource, where scheme and host may be
// written in either case and one slash may stand at the end. Everyone else is told what to do, by a challenge: to get a
// token (status 401), one with more scopes (403), or to mend the request (400).
//
// The handler does not see the token, only what it says: [mcp.PrincipalFrom] of the request's context. Within a handler of
// the SDK, such as that of a tool, both that and mcp.RequestFrom(ctx).Principal give the caller. The handler also gets
// preflight requests of browsers, which never carry a token. The metadata of the resource is served at its well-known
// address if such requests come this way; see also [NewMetadataHandler].
//
// Require panics if the arguments cannot work: no authorization servers, unless the verifier is a [StaticVerifier], a
// resource that is not the https URL of the server (http at a loopback address), or a scope that is none.
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

// A guard lets requests through to a resource.
type guard struct {
	verifier      Verifier
	opts          RequireOptions
	resource      *protectedResource
	proofs        *dpop.Verifier // nil if no token may be bound to a key
	algs          string         // of proofs
	defaultScopes []string       // scopes that clients without a token are told to ask for
}

func newGuard(v Verifier, metadata *ResourceMetadata, opts *RequireOptions) (*guard, error) {
	g := &guard{verifier: v}
	if opts != nil {
		g.opts = *opts
	}
	if v == nil {
		return nil, errors.New("there is no verifier")
	}
	if err := g.opts.Scopes.validate(); err != nil {
		return nil, err
	}
	if g.opts.MaxStream < 0 {
		return nil, fmt.Errorf("MaxStream is %v, want a positive value", g.opts.MaxStream)
	}
	if g.opts.Logger == nil {
		g.opts.Logger = slog.Default()
	}
	described := *metadata
	if err := g.prepareProofs(&described); err != nil {
		return nil, err
	}
	var err error
	if g.resource, err = newProtectedResource(&described); err != nil {
		return nil, err
	}
	// Tokens of the configuration come from no authorization server, and there is nothing to tell about one.
	if _, static := v.(*StaticVerifier); !static || len(metadata.AuthorizationServers) > 0 {
		if err := g.resource.describe(&described); err != nil {
			return nil, err
		}
	}
	if g.opts.Issuers == nil {
		g.opts.Issuers = metadata.AuthorizationServers
	}
	g.opts.Issuers, g.opts.Audiences = slices.Clone(g.opts.Issuers), slices.Clone(g.opts.Audiences)
	g.defaultScopes = new(grantedScopes).wanted([]Scopes{g.opts.Scopes})
	return g, g.checkSchemes(metadata)
}

// prepareProofs makes the judge of proofs, if there is to be one, and has the metadata tell of it.
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
	if g.proofs, err = dpop.NewVerifier((*dpop.VerifierOptions)(&o)); err != nil {
		return err
	}
	metadata.DPoPRequired, metadata.DPoPAlgorithms = o.Required, g.proofs.Algorithms()
	g.algs = strings.Join(metadata.DPoPAlgorithms, " ")
	return nil
}

// checkSchemes refuses plain http but at loopback addresses.
func (g *guard) checkSchemes(metadata *ResourceMetadata) error {
	if g.opts.InsecureHTTP {
		return nil
	}
	for _, text := range append([]string{metadata.Resource}, metadata.AuthorizationServers...) {
		if u, err := url.Parse(text); err != nil || u.Scheme != "https" && !netx.IsLoopback(u.Hostname()) {
			return fmt.Errorf("%.100q is not https, and not at a loopback address", text)
		}
	}
	return nil
}

// serve serves one request.
func (g *guard) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	switch {
	case g.resource.isWellKnown(r.URL.Path):
		g.resource.ServeHTTP(w, r) // or 404: a client must see that there is none
		return
	case isPreflight(r):
		next.ServeHTTP(w, withoutToken(r.Context(), r))
		return
	}
	creds, no := readCredentials(r)
	if no == nil {
		var authorized *authorizedContext
		if authorized, no = g.authorize(w, r, creds); no == nil {
			g.forward(w, r, next, authorized)
			return
		}
	}
	g.refuse(w, r, creds.scheme, no)
}

// isPreflight reports whether a browser asks whether a page may send a request.
func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions &&
		r.Header.Get("Origin") != "" && r.Header.Get("Access-Control-Request-Method") != ""
}

// An authorizedContext is the context of a request that was let through.
type authorizedContext struct {
	context.Context // with the principal
	guard           *guard
	scheme          string
	token           *Token
}

type authorizedContextKey struct{}

func authorizedContextFrom(ctx context.Context) *authorizedContext {
	a, _ := ctx.Value(authorizedContextKey{}).(*authorizedContext)
	return a
}

// Value returns the context itself to whoever asks for it.
func (a *authorizedContext) Value(key any) any {
	if key == (authorizedContextKey{}) {
		return a
	}
	return a.Context.Value(key)
}

// admit judges the token of a request.
func (g *guard) authorize(w http.ResponseWriter, r *http.Request, creds credentials) (*authorizedContext, *denial) {
	if creds.scheme == oauthwire.DPoP && g.proofs == nil {
		return nil, errNoToken
	}
	token, err := g.verifier.Verify(r.Context(), creds.token)
	switch {
	case err == nil && token == nil:
		return nil, &denial{status: http.StatusServiceUnavailable, cause: errors.New("the verifier gave neither token nor error")}
	case err == nil:
		err = g.checkToken(token)
	}
	switch {
	case errors.Is(err, ErrTokenExpired):
		return nil, &denial{http.StatusUnauthorized, oauthwire.InvalidToken, "the access token has expired", nil, err}
	case errors.Is(err, ErrInvalidToken):
		return nil, &denial{http.StatusUnauthorized, oauthwire.InvalidToken, "the access token is not valid here", nil, err}
	case err != nil:
		return nil, &denial{status: http.StatusServiceUnavailable, cause: err}
	}
	if no := g.checkProof(w, r, creds, token); no != nil {
		return nil, no
	}
	held := grantedScopes{token.Scopes, g.opts.Implies}
	if need := []Scopes{g.opts.Scopes}; !held.covers(need) {
		return nil, &denial{http.StatusForbidden, oauthwire.InsufficientScope, insufficientScope, held.wanted(need), nil}
	}
	ctx := mcp.WithPrincipal(r.Context(), token.principal())
	return &authorizedContext{Context: ctx, guard: g, scheme: creds.scheme, token: token}, nil
}

// judge says why a token that is genuine is no good here.
func (g *guard) checkToken(t *Token) error {
	if err := t.checkIdentity(); err != nil {
		return err
	}
	switch {
	case t.configured:
	case !slices.Contains(g.opts.Issuers, t.Issuer):
		return invalidToken("its issuer %.100q is none of ours", t.Issuer)
	case g.resource.isFor(t.Audience):
	case slices.ContainsFunc(t.Audience, func(a string) bool { return slices.Contains(g.opts.Audiences, a) }):
	default:
		return invalidToken("it is for another audience")
	}
	return t.checkTimes(time.Now())
}

// checkProof demands the proof of a token that is bound to a key.
//
// Spec: RFC 9449, section 7.
func (g *guard) checkProof(w http.ResponseWriter, r *http.Request, creds credentials, t *Token) *denial {
	isBound := t.KeyThumbprint != ""
	switch {
	case isBound && creds.scheme != oauthwire.DPoP:
		return badBinding("the access token is bound to a key and needs a proof")
	case !isBound && (creds.scheme == oauthwire.DPoP || g.proofs.Required()):
		return badBinding("the access token is not bound to a key")
	case !isBound:
		return nil
	}
	nonce, err := g.proofs.Verify(r, g.resource.target(r), creds.token, t.KeyThumbprint)
	if nonce != "" {
		w.Header().Set(dpop.HeaderNonce, nonce)
	}
	var bad *dpop.ProofError
	switch {
	case errors.As(err, &bad):
		return &denial{http.StatusUnauthorized, bad.Code, bad.Reason, nil, err}
	case err != nil:
		return &denial{status: http.StatusServiceUnavailable, cause: err}
	}
	return nil
}

// pass hands the request on.
func (g *guard) forward(w http.ResponseWriter, r *http.Request, next http.Handler, authorized *authorizedContext) {
	if isStream(r) {
		if end, bounded := g.streamEnd(authorized.token); bounded {
			ctx, stop := context.WithDeadlineCause(authorized.Context, end, errTokenRecheck)
			defer stop()
			authorized.Context = ctx
		}
	}
	next.ServeHTTP(w, withoutToken(authorized, r))
}

// errTokenRecheck is the cause of a context that ended because its token has to be creds again. It is an end that the server
// wanted.
var errTokenRecheck = fmt.Errorf("%w: the access token has to be creds again", mcp.ErrClosed)

// isStream reports whether a request only listens, for as long as it may. The header says so reliably: what differs
// from it in the body is refused.
func isStream(r *http.Request) bool {
	return r.Method == http.MethodGet || r.Header.Get("Mcp-Method") == methodSubscriptionsListen
}

// streamEnd returns the time until which a client may listen.
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

// withoutToken returns the request as handlers see it: they need to know who the caller is, and whoever holds a token can
// pass it on.
//
// Spec: basic/authorization (2025-06-18 and later), Token Passthrough.
func withoutToken(ctx context.Context, r *http.Request) *http.Request {
	r = r.WithContext(ctx)
	r.Header = maps.Clone(r.Header)
	delete(r.Header, "Authorization")
	delete(r.Header, "Dpop") // a proof is of no use but with the token
	return r
}
