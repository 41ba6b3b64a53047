package oauth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/oauthwire"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// Scopes says which scopes something needs: every one of All, and at least one of Any unless that is empty. The zero
// value needs none.
type Scopes struct {
	All []string
	// Any lists alternatives, the one to ask for first. A client that has none of them is told to get that one.
	Any []string
}

// AllOf returns Scopes that need every one of the given scopes.
func AllOf(scopes ...string) Scopes { return Scopes{All: scopes} }

// AnyOf returns Scopes that need one of the given scopes; clients that have none are told to get the first.
func AnyOf(scopes ...string) Scopes { return Scopes{Any: scopes} }

// validate says what is wrong with the scopes.
func (s Scopes) validate() error {
	for _, scope := range slices.Concat(s.All, s.Any) {
		if err := checkScope(scope); err != nil {
			return err
		}
	}
	return nil
}

// checkScope says why a text cannot be a scope that a resource needs.
//
// Spec: RFC 6749, section 3.3; basic/authorization (2026-07-28), Refresh Tokens.
func checkScope(scope string) error {
	if scope == oauthwire.ScopeOffline {
		return fmt.Errorf("scope %s is for clients to ask for, never for a resource to need", oauthwire.ScopeOffline)
	}
	for i := range len(scope) {
		if c := scope[i]; c <= ' ' || c >= 0x7f || c == '"' || c == '\\' {
			return fmt.Errorf("scope %q: want printable ASCII without spaces, quotes and backslashes", scope)
		}
	}
	if scope == "" {
		return errors.New("a scope is empty")
	}
	return nil
}

// A Hierarchy says which scopes include others: {"admin": {"write"}, "write": {"read"}} has admin include all three. Its
// method Implies is for [RequireOptions.Implies].
type Hierarchy map[string][]string

// Implies reports whether a scope that was granted includes the one that is needed, directly or through others.
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

// A grantedScopes is what a caller may do.
type grantedScopes struct {
	scopes  []string
	implies func(granted, needed string) bool // nil for none
}

// has reports whether the grantedScopes covers a scope.
//
// Spec: basic/authorization (2026-07-28), Scope Challenge Handling.
func (g *grantedScopes) has(needed string) bool {
	if slices.Contains(g.scopes, needed) {
		return true
	}
	return g.implies != nil && slices.ContainsFunc(g.scopes, func(granted string) bool { return g.implies(granted, needed) })
}

// covers reports whether the grantedScopes has all that is needed.
func (g *grantedScopes) covers(needs []Scopes) bool {
	for _, need := range needs {
		for _, scope := range need.All {
			if !g.has(scope) {
				return false
			}
		}
		if len(need.Any) > 0 && !slices.ContainsFunc(need.Any, g.has) {
			return false
		}
	}
	return true
}

// wanted lists every scope that a token needs for all of needs, those included that the grantedScopes has: a client may get
// exactly these. Of alternatives it names the one that the grantedScopes has, else the first.
//
// Spec: basic/authorization (2026-07-28), Runtime Insufficient Scope Errors.
func (g *grantedScopes) wanted(needs []Scopes) []string {
	var all []string
	add := func(scope string) {
		if !slices.Contains(all, scope) {
			all = append(all, scope)
		}
	}
	for _, need := range needs {
		for _, scope := range need.All {
			add(scope)
		}
		if len(need.Any) == 0 {
			continue
		}
		add(need.Any[max(slices.IndexFunc(need.Any, g.has), 0)])
	}
	return all
}

// ScopeRules says which scopes the requests of an MCP server need, beyond what [RequireOptions.Scopes] has all of them
// need. A request needs what its method and what its subject need. Rules are not changed once they are in use.
type ScopeRules struct {
	// Methods are the needs of methods, such as "tools/list".
	Methods map[string]Scopes
	// Tools are the needs of tools, by their names, and OtherTools those of every tool that is not in Tools.
	Tools      map[string]Scopes
	OtherTools Scopes
	// Prompts are the needs of prompts, by their names.
	Prompts map[string]Scopes
	// Resource returns the needs of reading a resource and of being told of its changes. It is called with whatever URI a
	// client names, and from several goroutines. Default: none.
	Resource func(uri string) Scopes
}

// validate says what is wrong with the rules.
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

// maxSubscribed bounds the resources of one subscription that are looked at; servers take no more than 1000.
const maxSubscribed = 1000

// needs returns what a request needs.
func (r *ScopeRules) needs(req *mcp.Request) []Scopes {
	needs := make([]Scopes, 0, 2)
	if scopes, ok := r.Methods[req.Method]; ok {
		needs = append(needs, scopes)
	}
	switch req.Method {
	case "tools/call":
		scopes, ok := r.Tools[stringMember(req.Params, "name")]
		if !ok {
			scopes = r.OtherTools
		}
		needs = append(needs, scopes)
	case "prompts/get":
		needs = append(needs, r.Prompts[stringMember(req.Params, "name")])
	case "resources/read":
		if r.Resource != nil {
			needs = append(needs, r.Resource(stringMember(req.Params, "uri")))
		}
	case methodSubscriptionsListen:
		needs = r.subscriptionNeeds(needs, req)
	}
	return needs
}

func (r *ScopeRules) subscriptionNeeds(needs []Scopes, req *mcp.Request) []Scopes {
	if r.Resource == nil {
		return needs
	}
	filter, _ := jsonscan.Get(req.Params, "notifications")
	uris, _ := jsonscan.Get(filter, "resourceSubscriptions")
	n := 0
	for raw := range jsonscan.Elements(uris) {
		if n++; n > maxSubscribed {
			break
		}
		if uri, err := jsonscan.Unquote(raw); err == nil {
			needs = append(needs, r.Resource(uri))
		}
	}
	return needs
}

// stringMember returns a string of an object that was checked, empty if there is none.
func stringMember(obj []byte, key string) string {
	raw, _ := jsonscan.Get(obj, key)
	if jsonscan.Kind(raw) != '"' {
		return ""
	}
	text, err := jsonscan.Unquote(raw)
	if err != nil {
		return ""
	}
	return text
}

// RequireScopes returns middleware for [mcp.ServerOptions.Middleware] that refuses requests whose caller lacks scopes,
// with a [*ScopeError]. Over HTTP the client is answered with status 403 and a challenge that names every scope that it
// needs; over other transports, and where something was sent before, with a plain error. It panics if the rules cannot
// work.
//
// The caller is [mcp.Request.Principal]; one that nobody authenticated has no scopes. In a session, subscriptions to
// resources go by the token that opened it.
//
// Spec: basic/authorization (2026-07-28), Scope Challenge Handling.
func RequireScopes(rules *ScopeRules) mcp.Middleware {
	if err := rules.validate(); err != nil {
		panic("oauth: RequireScopes: " + err.Error())
	}
	return func(next mcp.Handler) mcp.Handler {
		return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
			if err := checkScopes(ctx, req.Principal, rules.needs(req)); err != nil {
				return nil, err
			}
			return next.ServeMCP(ctx, req)
		})
	}
}

// CheckScopes returns a [*ScopeError] if the caller of ctx lacks scopes, else nil. Handlers use it where what they need
// depends on more than the name of a tool, and return the error as it is, before they have done or sent anything.
func CheckScopes(ctx context.Context, needs Scopes) error {
	if err := needs.validate(); err != nil {
		return fmt.Errorf("oauth: %w", err)
	}
	caller := mcp.PrincipalFrom(ctx)
	if req := mcp.RequestFrom(ctx); req != nil {
		caller = req.Principal
	}
	return checkScopes(ctx, caller, []Scopes{needs})
}

func checkScopes(ctx context.Context, caller *mcp.Principal, needs []Scopes) error {
	var g grantedScopes
	if caller != nil {
		g.scopes = caller.Scopes
	}
	authorized := authorizedContextFrom(ctx)
	if authorized != nil {
		g.implies = authorized.guard.opts.Implies
	}
	if g.covers(needs) {
		return nil
	}
	challenge := Challenge{Scheme: oauthwire.Bearer, Params: map[string]string{}}
	if authorized != nil {
		// The client may get a token with just these, which has to pass the guard as well.
		needs = append([]Scopes{authorized.guard.opts.Scopes}, needs...)
		challenge = authorized.guard.challenge(authorized.scheme)
	}
	e := &ScopeError{Scopes: g.wanted(needs)}
	challenge.Params["error"] = oauthwire.InsufficientScope
	challenge.Params["error_description"] = insufficientScope
	challenge.Params["scope"] = strings.Join(e.Scopes, " ")
	e.challenge = challenge.String()
	return e
}

// A ScopeError is the refusal of a request whose caller lacks scopes. As an error of an MCP server it is an [*mcp.Error]
// whose data names the scopes, as {"scope": "a b"}.
type ScopeError struct {
	// Scopes are all that the operation needs, those included that the caller has.
	Scopes []string

	challenge string
}

// Error names the scopes.
func (e *ScopeError) Error() string {
	return "oauth: the operation needs the scopes " + strings.Join(e.Scopes, " ")
}

// Unwrap returns the error as the client sees it.
func (e *ScopeError) Unwrap() error {
	data := append(jsonscan.AppendQuote([]byte(`{"scope":`), strings.Join(e.Scopes, " ")), '}')
	return &mcp.Error{Code: mcp.CodeInvalidRequest, Message: insufficientScope, Data: data}
}

// RefuseHTTP returns the status of the answer over HTTP, and the values of its WWW-Authenticate. A transport asks for it.
func (e *ScopeError) RefuseHTTP() (status int, challenges []string) {
	return http.StatusForbidden, []string{e.challenge}
}
