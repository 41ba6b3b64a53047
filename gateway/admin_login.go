package gateway

import (
	"errors"
	"net/http"
	"time"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

func loginRoute() *adminRoute {
	route := postRoute("/servers/{name}", "login",
		"Begin a login of the local user or of a caller at a server, on a page of the gateway",
		(*adminRequest).login)
	route.optional = true
	return route
}

func logoutRoute() *adminRoute {
	route := postRoute("/servers/{name}", "logout",
		"End the login of the local user or of a caller at a server, and revoke its tokens",
		func(r *adminRequest, body *loginRequest) (*serverEntry, error) {
			return r.server(func(u *host.Upstream) error {
				c, err := r.caller(body.Caller)
				if err != nil {
					return err
				}
				return r.host().Operator().Logout(r.Context(), u.Name(), c)
			})
		})
	route.optional = true
	return route
}

// caller returns the caller of the host that a request names; nil names the local user. If the
// principal of a key lacks its client ID, caller adds the generation of the key.
func (r *adminRequest) caller(given *loginCaller) (*policy.Caller, error) {
	if given == nil {
		return &policy.Caller{}, nil
	}
	p := &mcp.Principal{Subject: given.Subject, Issuer: given.Issuer, ClientID: given.ClientID}
	if live := r.admin.gateway.live; live != nil && p.Issuer == KeyIssuer && p.ClientID == "" {
		keys, err := live.store.List(r.Context())
		if err != nil {
			return nil, err
		}
		for i := range keys {
			if keys[i].Subject == p.Subject {
				p.ClientID = keys[i].Generation
			}
		}
	}
	return &policy.Caller{Principal: p}, nil
}

// A loginRequest identifies the user who logs in.
type loginRequest struct {
	Caller *loginCaller `json:"caller,omitzero" jsonschema:"absent for the local user"`
}

// A loginCaller is a principal.
type loginCaller struct {
	Subject  string `json:"subject" jsonschema:"minLength=1"`
	Issuer   string `json:"issuer,omitzero"`
	ClientID string `json:"clientId,omitzero" jsonschema:"of a caller with an access token"`
}

// A loginPage is a login that waits for its user.
type loginPage struct {
	Server  string       `json:"server"`
	Caller  *loginCaller `json:"caller,omitzero" jsonschema:"absent for the local user"`
	All     bool         `json:"all" jsonschema:"requests of all callers use the login"`
	URL     string       `json:"url" jsonschema:"page to open in a browser: a secret, for one visit"`
	Expires time.Time    `json:"expires"`
}

// login begins a login. The user completes it on the page, which the gateway serves over HTTP.
func (r *adminRequest) login(body *loginRequest) (*loginPage, error) {
	u, err := r.upstream()
	if err != nil {
		return nil, err
	}
	c, err := r.caller(body.Caller)
	if err != nil {
		return nil, err
	}
	l, err := r.host().Operator().BeginLogin(r.Context(), u.Name(), c)
	if err == nil && body.Caller == nil && r.admin.opts.CheckLogin != nil {
		if err := r.admin.opts.CheckLogin(r.Context(), u.Name()); err != nil {
			return nil, problemf(http.StatusConflict, "login_unused", "%v", err)
		}
	}
	unverified, ok := errors.AsType[*hosterr.Error](err)
	switch {
	case ok && unverified.Code == hosterr.CodeAuthRequired: // the login page could not verify its visitor
		return nil, problemf(http.StatusConflict, string(unverified.Code), "%v", unverified)
	case err != nil:
		return nil, err
	case r.admin.gateway.connect.base() == nil:
		return nil, problemf(http.StatusConflict, "no_login_page", "the gateway has no address for browsers: set "+
			"\"publicURL\" in its settings, or have it listen on a loopback address")
	}
	return &loginPage{Server: u.Name(), Caller: body.Caller, All: l.IsForAll(), URL: l.URL(),
		Expires: l.Expires().UTC()}, nil
}
