package authserver

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"strings"
	"time"
)

const (
	// refreshGrace is how long the refresh token before the present one still gives the same successor, to a client that
	// has lost the answer or asked twice at once.
	refreshGrace = 10 * time.Second

	kindRefresh = "refresh"
)

// A family is the refresh tokens of one grant, of which one is valid at a time. A token is the id of its family, which
// nobody can guess, a dot, and a secret of its own: whoever shows a token of the family that is neither the present nor,
// for a moment, the one before has it from a theft, or was stolen from.
type family struct {
	ID      string    `json:"id"`
	Grant   string    `json:"grant"`
	Client  string    `json:"client"`
	Present []byte    `json:"present"` // SHA-256
	Before  []byte    `json:"before,omitempty"`
	Rotated time.Time `json:"rotated,omitzero"`
	Sealed  []byte    `json:"sealed,omitempty"` // the present one, to be given again
	Until   time.Time `json:"until"`            // the end of the grant
	Expires time.Time `json:"expires"`
}

func (f *family) key() string { return hashKey(f.ID) }

// newRefresh begins a family, and gives its first token.
func (s *Server) newRefresh(ctx context.Context, g *grant) (token string, f *family, err error) {
	f = &family{ID: randomID(), Grant: g.ID, Client: g.Client, Until: g.Until, Expires: s.refreshExpiry(g.Until)}
	token = f.ID + "." + randomToken()
	f.Present = refreshHash(token)
	value, err := json.Marshal(f)
	if err != nil {
		return "", nil, err
	}
	return token, f, s.store.Put(ctx, kindRefresh, f.key(), value, f.Expires)
}

func (s *Server) refreshExpiry(until time.Time) time.Time {
	if idle := time.Now().Add(s.o.Lifetimes.RefreshIdle); idle.Before(until) {
		return idle
	}
	return until
}

func refreshHash(token string) []byte {
	sum := sha256.Sum256([]byte(token))
	return sum[:]
}

// A standing says what a token of a family is worth.
type standing int

const (
	isStolen standing = iota
	isPresent
	isBefore // within its grace
)

func (f *family) judge(token string) standing {
	hash := refreshHash(token)
	switch {
	case subtle.ConstantTimeCompare(hash, f.Present) == 1:
		return isPresent
	// A clock that was set back, or that of another process, may say that the rotation is yet to come: by as little.
	case subtle.ConstantTimeCompare(hash, f.Before) == 1 && time.Since(f.Rotated).Abs() < refreshGrace:
		return isBefore
	}
	return isStolen
}

var errNoRefresh = errors.New("no such refresh token")

// family returns the family that a refresh token belongs to, and what the token is worth in it.
func (s *Server) family(ctx context.Context, token string) (*family, standing, error) {
	id, secret, ok := strings.Cut(token, ".")
	if !ok || len(id) != tokenLength(idBytes) || len(secret) != tokenLength(tokenBytes) {
		return nil, isStolen, errNoRefresh
	}
	value, err := s.store.Get(ctx, kindRefresh, hashKey(id))
	if err != nil {
		return nil, isStolen, err
	}
	f, err := parseFamily(value)
	if err != nil {
		return nil, isStolen, err
	}
	return f, f.judge(token), nil
}

func parseFamily(value []byte) (*family, error) {
	if value == nil {
		return nil, errNoRefresh
	}
	f := new(family)
	if err := json.Unmarshal(value, f); err != nil {
		return nil, err
	}
	if !time.Now().Before(f.Expires) {
		return nil, errNoRefresh
	}
	return f, nil
}

// rotate returns the successor of a refresh token: a new one for the present token, for the one before the very token that
// it was given already. For any other it is errNoRefresh.
//
// Spec: OAuth 2.1, section 4.3.1; RFC 9700, section 4.14.2.
func (s *Server) rotate(ctx context.Context, of *family, token string) (successor string, err error) {
	err = s.store.Update(ctx, kindRefresh, of.key(), func(old []byte) ([]byte, time.Time, error) {
		f, err := parseFamily(old)
		if err != nil {
			return nil, time.Time{}, err
		}
		switch f.judge(token) {
		case isPresent:
			successor = f.ID + "." + randomToken()
			f.Before, f.Present, f.Rotated = f.Present, refreshHash(successor), time.Now()
			f.Expires = s.refreshExpiry(f.Until)
			f.Sealed = s.seals.Seal([]byte(successor), kindRefresh, f.key())
		case isBefore:
			var opened []byte
			opened, _, err = openSealed(s.seals, f.Sealed, kindRefresh, f.key())
			successor = string(opened)
		default:
			err = errNoRefresh
		}
		if err != nil {
			return nil, time.Time{}, err
		}
		value, err := json.Marshal(f)
		return value, f.Expires, err
	})
	return successor, err
}

// endFamily ends the grant of a family, then the family: while the grant cannot be ended, the family is there for another
// try, by whoever asked or by the next use of a stolen token.
func (s *Server) endFamily(ctx context.Context, f *family, reason string) error {
	if err := s.endGrant(ctx, f.Grant, reason); err != nil {
		return err
	}
	_, err := s.store.Take(ctx, kindRefresh, f.key())
	return err
}
