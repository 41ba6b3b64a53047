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

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// An access is what the credentials of a request open. The principal of the request is in its context;
// see [mcp.PrincipalFrom]. The zero value is that of the local user: everything.
type access struct {
	profiles []string // the only ones, the default first; nil for all
	limits   limits
}

// everything is what the credentials of the local user open.
var everything = &access{}

// Limits are what a caller may use of a route.
type limits struct {
	servers  []string
	only     []host.ActionKind
	readOnly bool
	id       string // unequal for different limits; empty for none
}

// access returns what a key opens.
func (k *Key) access() *access {
	a := &access{limits: limits{servers: k.Servers, only: k.Only, readOnly: k.ReadOnly}}
	if k.Servers != nil || k.Only != nil || k.ReadOnly {
		a.limits.id = fmt.Sprintf("%q %q %t", k.Servers, k.Only, k.ReadOnly)
	}
	if k.Profile != "" {
		a.profiles = []string{k.Profile}
	}
	return a
}

type accessKey struct{}

// withAccess returns the request for handlers, with what its credentials open and without them: handlers
// must not be able to pass them on.
func withAccess(ctx context.Context, r *http.Request, a *access) *http.Request {
	if a != everything {
		ctx = context.WithValue(ctx, accessKey{}, a)
	}
	r = r.WithContext(ctx)
	if _, ok := r.Header["Authorization"]; ok {
		r.Header = maps.Clone(r.Header)
		delete(r.Header, "Authorization")
	}
	return r
}

// accessFrom returns what the credentials of a request open.
func accessFrom(ctx context.Context) *access {
	if a, ok := ctx.Value(accessKey{}).(*access); ok {
		return a
	}
	return everything
}

// route returns the route that a request for another one has, or an error if the credentials do not open
// it: the same as if it did not exist.
func (a *access) route(r Route) (Route, error) {
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

// protect returns a handler that serves requests with valid credentials: a key of the local user, a key of
// a principal, or a token. Without them the status is 401. The response is the same for all of them.
func (g *Gateway) protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if g.opts.InsecureNoAuth {
			if addr, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr); onLoopback(addr) {
				next.ServeHTTP(w, withAccess(g.forwardable(r).Context(), r, everything))
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
			next.ServeHTTP(w, withAccess(r.Context(), r, everything))
		case ok && isKey && g.live != nil:
			g.serveKey(w, r, hash, next)
		case g.tokens != nil && !isKey:
			g.tokens.serve(w, g.forwardable(r), next)
		case len(r.Header["Authorization"]) == 0:
			g.refuse(w, r, errMissingKey, nil)
		default:
			g.refuse(w, r, errWrongKey, nil)
		}
	})
}

// forwardable returns the request with its header Authorization for servers that get it by their settings,
// which say insecure. Keys of the gateway are for no server.
func (g *Gateway) forwardable(r *http.Request) *http.Request {
	if !g.host.ForwardsAuthorization() {
		return r
	}
	return r.WithContext(host.WithAuthorization(r.Context(), r.Header.Get("Authorization")))
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
	ctx, done := g.live.begin(r, k)
	defer done()
	next.ServeHTTP(w, withAccess(mcp.WithPrincipal(ctx, k.caller), r, k.opens))
}

// principal returns the principal of a key.
func (k *Key) principal() *mcp.Principal {
	return &mcp.Principal{Issuer: KeyIssuer, Subject: k.Subject, ClientID: k.Generation,
		Claims: map[string]any{"key": k.Name}}
}
