package authserver

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/oauth"
)

// serveRevoke serves the revocation endpoint. It ends the grant of a token with all of its tokens.
// The response does not reveal whether the token was unknown or that of another client. Spec: RFC
// 7009, section 2.
func (s *Server) serveRevoke(w http.ResponseWriter, r *http.Request) {
	if err := s.revoke(r); err != nil {
		s.audit(r.Context(), AuditEvent{Action: AuditRevocation, Refused: true, Reason: refusalReason(err)})
		s.writeFailure(w, r, err)
		return
	}
	w.WriteHeader(http.StatusOK)
}

func (s *Server) revoke(r *http.Request) error {
	c, f, err := s.authenticate(r)
	if err != nil {
		return err
	}
	token := f["token"]
	if token == "" {
		return refuse(codeInvalidRequest, "token is missing")
	}
	if fam, _, err := s.family(r.Context(), token); !errors.Is(err, errNoRefresh) {
		if err != nil || fam.Client != c.ID {
			return err
		}
		return s.endFamily(r.Context(), fam, "revoked by the client")
	}
	claims, err := s.readAccess(r.Context(), token)
	if errors.Is(err, oauth.ErrInvalidToken) {
		return nil
	}
	if err != nil || claims.Client != c.ID {
		return err
	}
	return s.endGrant(r.Context(), claims.Grant, "revoked by the client")
}

// Spec: RFC 7662, section 2.2.
type introspection struct {
	Active    bool   `json:"active"`
	Scope     string `json:"scope,omitempty"`
	Client    string `json:"client_id,omitempty"`
	Username  string `json:"username,omitempty"`
	TokenType string `json:"token_type,omitempty"`
	Expires   int64  `json:"exp,omitempty"`
	Issued    int64  `json:"iat,omitempty"`
	Subject   string `json:"sub,omitempty"`
	Audience  string `json:"aud,omitempty"`
	Issuer    string `json:"iss,omitempty"`
	ID        string `json:"jti,omitempty"`
	Grant     string `json:"grant_id,omitempty"`

	Confirmation *confirmation `json:"cnf,omitempty"`
}

// introspect serves the introspection endpoint. A token is active only for its client and for
// clients that may introspect the tokens of its resource.
func (s *Server) introspect(r *http.Request) (*introspection, error) {
	c, f, err := s.authenticate(r)
	switch {
	case err != nil:
		return nil, err
	case c.isPublic():
		return nil, errBadClient
	case f["token"] == "":
		return nil, refuse(codeInvalidRequest, "token is missing")
	}
	claims, g, err := s.live(r.Context(), f["token"])
	if errors.Is(err, oauth.ErrInvalidToken) {
		return &introspection{}, nil
	}
	if err != nil {
		return nil, err
	}
	if !slices.Contains(c.introspect, resourceKey(claims.Audience)) && claims.Client != c.ID {
		return &introspection{}, nil
	}
	return &introspection{
		Active: true, Scope: strings.TrimSpace(claims.Scope), Client: claims.Client, Username: g.Name,
		TokenType: claims.tokenType(), Confirmation: claims.Confirmation,
		Expires: claims.Expires, Issued: claims.Issued, Subject: claims.Subject,
		Audience: claims.Audience, Issuer: claims.Issuer, ID: claims.ID, Grant: claims.Grant,
	}, nil
}
