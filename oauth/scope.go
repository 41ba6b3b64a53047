package oauth

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/oauthwire"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// Scopes are the scopes that an operation needs: all of All, and any of Any unless Any is empty.
// The zero value requires no scope.
type Scopes struct {
	All []string
	// Any lists alternatives. The challenge for a client without any of them names the first.
	Any []string
}

// AllOf returns Scopes that need all the given scopes.
func AllOf(scopes ...string) Scopes { return Scopes{All: scopes} }

// AnyOf returns Scopes that require any of the given scopes.
func AnyOf(scopes ...string) Scopes { return Scopes{Any: scopes} }

func (s Scopes) validate() error {
	for _, scope := range slices.Concat(s.All, s.Any) {
		if err := checkScope(scope); err != nil {
			return err
		}
	}
	return nil
}

// checkScope returns an error if a resource cannot need a scope. Spec: RFC 6749, section 3.3;
// basic/authorization (2026-07-28), Refresh Tokens.
func checkScope(scope string) error {
	if scope == oauthwire.ScopeOffline {
		return fmt.Errorf("invalid scope %s: only clients ask for it, a resource must not need it", scope)
	}
	if !oauthwire.IsNQChars(scope) {
		return fmt.Errorf("invalid scope %q: must be printable ASCII without spaces, quotes and backslashes", scope)
	}
	return nil
}

// A Hierarchy maps scopes to the scopes they include: in {"admin": {"write"}, "write": {"read"}}
// admin includes write and read. Its method Implies is for [RequireOptions.Implies].
type Hierarchy map[string][]string

// Implies reports whether a granted scope includes the needed scope, directly or through others.
func (h Hierarchy) Implies(granted, needed string) bool {
	seen := map[string]bool{}
	var reaches func(scope string) bool
	reaches = func(scope string) bool {
		if seen[scope] {
			return false
		}
		seen[scope] = true
		return slices.Contains(h[scope], needed) || slices.ContainsFunc(h[scope], reaches)
	}
	return reaches(granted)
}

type grantedScopes struct {
	scopes  []string
	implies func(granted, needed string) bool // may be nil
}

// has reports whether a scope is granted or included in a granted scope. Spec: basic/authorization
// (2026-07-28), Scope Challenge Handling.
func (g *grantedScopes) has(needed string) bool {
	if slices.Contains(g.scopes, needed) {
		return true
	}
	return g.implies != nil && slices.ContainsFunc(g.scopes, func(s string) bool { return g.implies(s, needed) })
}

func (g *grantedScopes) covers(needs []Scopes) bool {
	return !slices.ContainsFunc(needs, func(need Scopes) bool {
		lacks := slices.ContainsFunc(need.All, func(scope string) bool { return !g.has(scope) })
		return lacks || len(need.Any) > 0 && !slices.ContainsFunc(need.Any, g.has)
	})
}

// required returns the scopes of a token that meets all needs, including those that are granted
// already: a client may get exactly these. Of alternatives it returns the granted scope, else the
// first. Spec: basic/authorization (2026-07-28), Runtime Insufficient Scope Errors.
func (g *grantedScopes) required(needs []Scopes) []string {
	var all []string
	for _, need := range needs {
		all = append(all, need.All...)
		if len(need.Any) > 0 {
			all = append(all, need.Any[max(slices.IndexFunc(need.Any, g.has), 0)])
		}
	}
	seen := map[string]bool{}
	return slices.DeleteFunc(all, func(scope string) bool {
		duplicate := seen[scope]
		seen[scope] = true
		return duplicate
	})
}

// ScopeRules are the scopes that requests to an MCP server need, in addition to
// [RequireOptions.Scopes]. A request needs the scopes of its method and the scopes of its tool,
// prompt or resource. Rules must not be changed while they are in use.
type ScopeRules struct {
	// Methods maps methods, such as "tools/list", to the scopes they need.
	Methods map[string]Scopes
	// Tools maps names of tools to the scopes they need. OtherTools are needed by all tools that
	// are not in Tools.
	Tools      map[string]Scopes
	OtherTools Scopes
	// Prompts maps names of prompts to the scopes they need.
	Prompts map[string]Scopes
	// Resource returns the scopes that reading or subscribing to a resource needs. It is called
	// with any URI that a client sends, from several goroutines. Default: no scopes are required.
	Resource func(uri string) Scopes
}

func (r *ScopeRules) validate() error {
	for _, table := range []struct {
		what  string
		rules map[string]Scopes
	}{{"Methods", r.Methods}, {"Tools", r.Tools}, {"Prompts", r.Prompts}} {
		for name, scopes := range table.rules {
			if err := scopes.validate(); err != nil {
				return fmt.Errorf("%s[%q]: %w", table.what, name, err)
			}
		}
	}
	if err := r.OtherTools.validate(); err != nil {
		return fmt.Errorf("OtherTools: %w", err)
	}
	return nil
}

// maxLoggedName limits the name of a tool or the URI of a resource in the log, in bytes.
const maxLoggedName = 256

// maxSubscribed limits the resources of a subscription. Servers accept at most 1000.
const maxSubscribed = 1000

func (r *ScopeRules) needs(req *mcp.Request) []Scopes {
	needs := make([]Scopes, 0, 2)
	if scopes, ok := r.Methods[req.Method]; ok {
		needs = append(needs, scopes)
	}
	switch req.Method {
	case "tools/call":
		scopes, ok := r.Tools[jsonscan.GetString(req.Params, "name")]
		if !ok {
			scopes = r.OtherTools
		}
		needs = append(needs, scopes)
	case "prompts/get":
		needs = append(needs, r.Prompts[jsonscan.GetString(req.Params, "name")])
	case "resources/read":
		if r.Resource != nil {
			needs = append(needs, r.Resource(jsonscan.GetString(req.Params, "uri")))
		}
	case methodSubscriptionsListen:
		filter, _ := jsonscan.Get(req.Params, "notifications")
		uris, _ := jsonscan.Get(filter, "resourceSubscriptions")
		all := oauthwire.Strings(uris)
		for _, uri := range all[:min(len(all), maxSubscribed)] {
			if r.Resource != nil {
				needs = append(needs, r.Resource(uri))
			}
		}
	}
	return needs
}

// RequireScopes returns middleware for [mcp.ServerOptions.Middleware] that refuses requests whose
// caller lacks scopes, with a [*ScopeError], and logs them; see [RequireOptions.Logger]. For a
// tool:
//
//	admins := oauth.RequireScopes(&oauth.ScopeRules{Tools: map[string]oauth.Scopes{"delete": oauth.AllOf("admin")}})
//	server := mcp.NewServer("files", "1.0.0", &mcp.ServerOptions{Middleware: []mcp.Middleware{admins}})
//
// Over HTTP the response is status 403 with a challenge that names all needed scopes; over other
// transports, and after a response began, it is a JSON-RPC error. RequireScopes panics if the
// rules contain an invalid scope.
//
// A tool that a caller may not use stays in the list, so that the client can step up. To hide it
// instead, see [mcp.ServerOptions.Visible].
//
// The caller is [mcp.Request.Principal]; an unauthenticated caller holds no scopes. In a session,
// subscriptions to resources are checked with the token that opened it.
//
// Spec: basic/authorization (2026-07-28), Scope Challenge Handling.
func RequireScopes(rules *ScopeRules) mcp.Middleware {
	if err := rules.validate(); err != nil {
		panic("oauth: RequireScopes: " + err.Error())
	}
	return func(next mcp.Handler) mcp.Handler {
		return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
			if err := checkScopes(ctx, req, req.Principal, rules.needs(req)); err != nil {
				return nil, err
			}
			return next.ServeMCP(ctx, req)
		})
	}
}

// CheckScopes returns a [*ScopeError] if the caller of ctx lacks scopes. It is for handlers whose
// needs depend on more than the name of the tool, such as on an argument. They return the error as
// it is, before they send or change anything: the client repeats the request with a new token.
func CheckScopes(ctx context.Context, needs Scopes) error {
	if err := needs.validate(); err != nil {
		return fmt.Errorf("oauth: %w", err)
	}
	caller, req := mcp.PrincipalFrom(ctx), mcp.RequestFrom(ctx)
	if req != nil {
		caller = req.Principal
	}
	return checkScopes(ctx, req, caller, []Scopes{needs})
}

// checkScopes returns an error if the caller lacks scopes, and logs it. The request may be nil.
func checkScopes(ctx context.Context, req *mcp.Request, caller *mcp.Principal, needs []Scopes) error {
	var g grantedScopes
	if caller != nil {
		g.scopes = caller.Scopes
	}
	authorized, _ := ctx.Value(authorizedContextKey{}).(*authorizedContext)
	if authorized != nil {
		g.implies = authorized.guard.opts.Implies
	}
	if g.covers(needs) {
		return nil
	}
	challenge := Challenge{Scheme: oauthwire.Bearer, Params: map[string]string{}}
	log := slog.Default()
	if authorized != nil {
		log = authorized.guard.opts.Logger
		// The client may get a token with exactly these scopes, so they include the scopes of the
		// guard.
		needs = append([]Scopes{authorized.guard.opts.Scopes}, needs...)
		challenge = authorized.guard.challenge(authorized.scheme)
	}
	e := &ScopeError{Scopes: g.required(needs)}
	challenge.Params["error"] = oauthwire.InsufficientScope
	challenge.Params["error_description"] = insufficientScope(e.Scopes)
	challenge.Params["scope"] = strings.Join(e.Scopes, " ")
	e.challenge = challenge.String()
	d := Decision{Principal: caller, Status: http.StatusForbidden, Err: e}
	if req != nil {
		d.Method = req.Method
		d.Target = cut(cmp.Or(jsonscan.GetString(req.Params, "name"), jsonscan.GetString(req.Params, "uri")))
	}
	e.log(ctx, log, d)
	if authorized != nil && authorized.guard.opts.Audit != nil {
		d.RemoteAddr = authorized.remote
		authorized.guard.opts.Audit(ctx, d)
	}
	return e
}

// cut returns the start of a text that a client chose, for logs.
func cut(text string) string { return text[:min(len(text), maxLoggedName)] }

func (e *ScopeError) log(ctx context.Context, log *slog.Logger, d Decision) {
	attrs := []any{"status", d.Status, "error", oauthwire.InsufficientScope, "needed", e.Scopes}
	if d.Principal != nil {
		attrs = append(attrs, "subject", d.Principal.Subject)
	}
	if d.Method != "" {
		attrs = append(attrs, "method", d.Method, "name", d.Target)
	}
	log.InfoContext(ctx, "oauth: request refused", attrs...)
}

// A ScopeError reports a request that was refused because its caller lacks scopes. It unwraps to an
// [*mcp.Error] whose data names the scopes, as {"scope": "a b"}.
type ScopeError struct {
	// Scopes are all scopes that the operation needs, including the scopes of the caller.
	Scopes []string

	challenge string
}

// Error names the scopes.
func (e *ScopeError) Error() string {
	return "oauth: the operation needs the scopes " + strings.Join(e.Scopes, " ")
}

// Unwrap returns the error that the client receives.
func (e *ScopeError) Unwrap() error {
	data := append(jsonscan.AppendQuote([]byte(`{"scope":`), strings.Join(e.Scopes, " ")), '}')
	return &mcp.Error{Code: mcp.CodeInvalidRequest, Message: insufficientScope(e.Scopes), Data: data}
}

// RefuseHTTP returns the status of the HTTP response and the values of its WWW-Authenticate header.
// Transports call it.
func (e *ScopeError) RefuseHTTP() (status int, challenges []string) {
	return http.StatusForbidden, []string{e.challenge}
}
