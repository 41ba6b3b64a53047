package authserver

import (
	"context"
	"errors"
)

// The actions of audit events.
const (
	AuditConsent    = "consent"    // the user allowed or denied a client's request
	AuditLogin      = "login"      // a user logged in and got an authorization code for the client
	AuditToken      = "token"      // a client got an access token, other than by a refresh
	AuditRefresh    = "refresh"    // a client refreshed its access token
	AuditRevocation = "revocation" // a grant ended with all its tokens, before its time
)

// An AuditEvent describes an action of a user or a client at the authorization server, and its
// result. It contains no secrets. Fields that are not known are empty. [oauth.Decision] describes
// the authorization at a resource, and middleware.AuditRecord of package mcp a request to an MCP
// server.
type AuditEvent struct {
	// Action is a constant, such as AuditLogin.
	Action string
	// Refused reports whether the action was refused or failed. Reason says why, or for
	// AuditRevocation the reason for the end of the grant. It may contain text of the [Login], but
	// no text of the client.
	Refused bool
	Reason  string
	// Client is the ID of the client. It is empty if the client could not be authenticated.
	Client string
	// Subject is the user, or the client if it acts for itself.
	Subject  string
	Grant    string // the claim [ClaimGrant] of the tokens
	Resource string
	Scopes   []string // requested at AuditConsent and AuditLogin, otherwise granted
	// Address is the IP address that the request comes from, as [LimitOptions.TrustedProxies]
	// determines it, or its IPv6 /64 network. It is empty if no request caused the event.
	Address string
}

func (e AuditEvent) refused(reason string) AuditEvent {
	e.Refused, e.Reason = true, reason
	return e
}

func (s *Server) audit(ctx context.Context, e AuditEvent) {
	if s.o.Audit == nil {
		return
	}
	e.Address, _ = ctx.Value(clientKeyKey{}).(string)
	s.o.Audit(ctx, e)
}

func (s *Server) auditToken(ctx context.Context, r *tokenRequest, err error) {
	e := AuditEvent{Action: AuditToken}
	if r.form["grant_type"] == grantRefresh {
		e.Action = AuditRefresh
	}
	if r.client != nil {
		e.Client = r.client.ID
	}
	if g := r.grant; g != nil {
		e.Subject, e.Grant, e.Resource, e.Scopes = g.Subject, g.ID, g.Resource, r.scopes
	}
	if err != nil {
		e = e.refused(refusalReason(err))
	}
	s.audit(ctx, e)
}

func (in *interaction) auditEvent(action string) AuditEvent {
	return AuditEvent{Action: action, Client: in.Client, Resource: in.Resource, Scopes: in.Scopes}
}

func refusalReason(err error) string {
	if refused, ok := errors.AsType[*oauthError](err); ok {
		return refused.Error()
	}
	return codeUnavailable
}
