package gateway

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/host/operator"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A grant is the set of profiles, servers and request kinds that a credential allows. The zero
// value is the local user's, which allows everything. The request's principal is in its context;
// see [mcp.PrincipalFrom].
type grant struct {
	profiles []string // allowed profiles, the default first; nil allows all
	limits   limits
}

// localGrant is the grant of the local user, which allows everything.
var localGrant = &grant{}

// Limits restrict the requests of a caller on a route.
type limits struct {
	servers  []string
	only     []policy.ActionKind
	readOnly bool
	id       string // differs between different limits; empty without limits
}

// grant returns the profiles, servers and request kinds that the key allows.
func (k *Key) grant() *grant {
	a := &grant{limits: limits{servers: k.Servers, only: k.Only, readOnly: k.ReadOnly}}
	if k.Servers != nil || k.Only != nil || k.ReadOnly {
		a.limits.id = fmt.Sprintf("%q %q %t", k.Servers, k.Only, k.ReadOnly)
	}
	if k.Profile != "" {
		a.profiles = []string{k.Profile}
	}
	return a
}

type grantKey struct{}

// withGrant returns the request for handlers, with its grant and without its credentials: handlers
// must not be able to pass them on.
func withGrant(ctx context.Context, r *http.Request, a *grant) *http.Request {
	if a != localGrant {
		ctx = context.WithValue(ctx, grantKey{}, a)
	}
	r = r.WithContext(ctx)
	if _, ok := r.Header["Authorization"]; ok {
		r.Header = maps.Clone(r.Header)
		delete(r.Header, "Authorization")
	}
	return r
}

// contains reports whether a grant allows all that another allows.
func (a *grant) contains(b *grant) bool {
	return isWithin(b.profiles, a.profiles) && isWithin(b.limits.servers, a.limits.servers) &&
		isWithin(b.limits.only, a.limits.only) && (b.limits.readOnly || !a.limits.readOnly)
}

// isWithin reports whether each of the items is allowed. As items and as allowed, nil means all items.
func isWithin[T comparable](items, allowed []T) bool {
	isRefused := func(item T) bool { return !slices.Contains(allowed, item) }
	return allowed == nil || items != nil && !slices.ContainsFunc(items, isRefused)
}

// grantFrom returns the grant of a request.
func grantFrom(ctx context.Context) *grant {
	if a, ok := ctx.Value(grantKey{}).(*grant); ok {
		return a
	}
	return localGrant
}

// route returns the route that serves a request for r. If the credentials do not allow r, the error
// is the same as for a route that does not exist.
func (a *grant) route(r Route) (Route, error) {
	switch {
	case a.profiles != nil && r.Server != "", a.limits.servers != nil && r.Server != "" &&
		!slices.Contains(a.limits.servers, r.Server):
		return r, unknownRoute("server", r.Server)
	case a.profiles == nil:
		return r, nil
	case len(a.profiles) == 0 || r.Profile != "" && !slices.Contains(a.profiles, r.Profile):
		return r, unknownRoute("profile", r.Profile)
	case r.Profile == "":
		r.Profile = a.profiles[0]
	}
	return r, nil
}

func unknownRoute(what, name string) error { return fmt.Errorf("gateway: unknown %s %q", what, name) }

// protect returns a handler that serves requests with valid credentials: a key of the local user, a
// key of a principal, a token, or a client certificate. Without them the status is 401. The response
// is the same for all of them.
func (g *Gateway) protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if g.opts.InsecureNoAuth {
			if addr, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr); onLoopback(addr) {
				next.ServeHTTP(w, withGrant(g.forwardable(r).Context(), r, localGrant))
				return
			}
			g.refuse(w, r, errMissingKey, nil)
			return
		}
		value, ok := bearer(r)
		ok = ok && len(value) <= maxKey
		var hash keyHash
		if ok {
			hash = sha256.Sum256([]byte(value))
		}
		isKey := strings.HasPrefix(value, KeyPrefix)
		switch {
		case ok && g.isLocal(hash):
			next.ServeHTTP(w, withGrant(r.Context(), r, localGrant))
		case ok && isKey && g.live != nil:
			g.serveKey(w, r, hash, next)
		case len(r.Header["Authorization"]) == 0 && g.opts.Certificates != nil && hasCertificate(r):
			g.opts.Certificates.serve(g, w, r, next)
		case g.tokens != nil && !isKey:
			g.tokens.serve(w, g.forwardable(r), next)
		case len(r.Header["Authorization"]) == 0:
			g.refuse(w, r, errMissingKey, nil)
		default:
			g.refuse(w, r, errWrongKey, nil)
		}
	})
}

// forwardable returns the request with its Authorization header for servers whose settings, marked
// as insecure, forward it. Keys of the gateway are never forwarded.
func (g *Gateway) forwardable(r *http.Request) *http.Request {
	if !g.host.Operator().ForwardsAuthorization() {
		return r
	}
	return r.WithContext(operator.WithAuthorization(r.Context(), r.Header.Get("Authorization")))
}

// serveKey serves a request with a key of a principal.
func (g *Gateway) serveKey(w http.ResponseWriter, r *http.Request, hash keyHash, next http.Handler) {
	k, err := g.live.find(hash)
	switch {
	case errors.Is(err, errKeysUnread):
		limitBodyTime(w)
		w.Header().Set("Retry-After", "5")
		g.refuseHTTP(w, http.StatusServiceUnavailable, "the keys cannot be read at the moment")
		return
	case err != nil:
		g.refuse(w, r, err, k)
		return
	}
	ctx, done := g.live.begin(r.Context(), k)
	defer done()
	next.ServeHTTP(w, withGrant(mcp.WithPrincipal(ctx, k.caller), r, k.opens))
}

// principal returns the principal of a key.
func (k *Key) principal() *mcp.Principal {
	return &mcp.Principal{Issuer: KeyIssuer, Subject: k.Subject, ClientID: k.Generation,
		Claims: map[string]any{"key": k.Name}}
}
