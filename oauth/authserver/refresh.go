package authserver

import (
	"context"
	"crypto/subtle"
	"errors"
	"strings"
	"time"
)

const kindRefresh = "refresh"

// A family contains the refresh tokens of a grant, of which one is valid at a time. A token
// consists of the ID of its family, a dot and a secret. A token of the family that is neither the
// current token nor, during Lifetimes.RefreshGrace, the previous token was used twice: it or its
// successor was stolen.
type family struct {
	ID      string    `json:"id"`
	Grant   string    `json:"grant"`
	Client  string    `json:"client"`
	Key     string    `json:"key,omitempty"` // the DPoP key of a public client
	Present []byte    `json:"present"`       // SHA-256
	Before  []byte    `json:"before,omitempty"`
	Rotated time.Time `json:"rotated,omitzero"`
	Sealed  []byte    `json:"sealed,omitempty"` // the current token, to return it again
	Until   time.Time `json:"until"`            // the end of the grant
	Expires time.Time `json:"expires"`
}

var families = recordKind[family]{kindRefresh, errNoRefresh, func(f *family) time.Time { return f.Expires }}

func (f *family) key() string { return hashKey(f.ID) }

// newRefresh returns a refresh token. That of a public client is bound to the DPoP key of the
// request; other clients authenticate. Spec: RFC 9449, section 5.
func (s *Server) newRefresh(ctx context.Context, r *tokenRequest, g *grant) (token string, f *family, err error) {
	f = &family{ID: randomID(), Grant: g.ID, Client: g.Client, Until: g.Until, Expires: s.refreshExpiry(g.Until)}
	if r.client.isPublic() {
		f.Key = r.proof.Key
	}
	token = f.ID + "." + randomToken()
	f.Present = sumOf(token)
	return token, f, families.put(ctx, s.store, f.key(), f)
}

func (s *Server) refreshExpiry(until time.Time) time.Time {
	return earlier(time.Now().Add(s.o.Lifetimes.RefreshIdle), until)
}

type tokenState int

const (
	isReused tokenState = iota
	isCurrent
	isPrevious // within Lifetimes.RefreshGrace
)

func (f *family) state(token string, grace time.Duration) tokenState {
	hash := sumOf(token)
	switch {
	case subtle.ConstantTimeCompare(hash, f.Present) == 1:
		return isCurrent
	// The clock of another process may be behind, so the rotation may seem to be in the future.
	case subtle.ConstantTimeCompare(hash, f.Before) == 1 && time.Since(f.Rotated).Abs() < grace:
		return isPrevious
	}
	return isReused
}

var errNoRefresh = errors.New("unknown or expired refresh token")

func (s *Server) family(ctx context.Context, token string) (*family, tokenState, error) {
	id, secret, ok := strings.Cut(token, ".")
	if !ok || len(id) != tokenLength(idBytes) || len(secret) != tokenLength(tokenBytes) {
		return nil, isReused, errNoRefresh
	}
	f, err := families.get(ctx, s.store, hashKey(id))
	if err != nil {
		return nil, isReused, err
	}
	return f, f.state(token, s.o.Lifetimes.RefreshGrace), nil
}

// rotate returns the successor of a refresh token: a new token for the current token, and the
// current token for the previous token. For any other token the error is errNoRefresh. Spec: OAuth
// 2.1, section 4.3.1; RFC 9700, section 4.14.2.
func (s *Server) rotate(ctx context.Context, fam *family, token string) (successor string, err error) {
	err = families.update(ctx, s.store, fam.key(), func(f *family) error {
		switch f.state(token, s.o.Lifetimes.RefreshGrace) {
		case isCurrent:
			successor = f.ID + "." + randomToken()
			f.Before, f.Present, f.Rotated = f.Present, sumOf(successor), time.Now()
			f.Expires = s.refreshExpiry(f.Until)
			f.Sealed = s.seals.Seal([]byte(successor), kindRefresh, f.key())
			return nil
		case isPrevious:
			opened, _, err := openSealed(s.seals, f.Sealed, kindRefresh, f.key())
			successor = string(opened)
			return err
		}
		return errNoRefresh
	})
	return successor, err
}

// endFamily ends the grant of a family, then the family. If the grant cannot be ended, the family
// remains, so that the next use of any of its tokens tries again.
func (s *Server) endFamily(ctx context.Context, f *family, reason string) error {
	if err := s.endGrant(ctx, f.Grant, reason); err != nil {
		return err
	}
	_, err := s.store.GetAndDelete(ctx, kindRefresh, f.key())
	return err
}
