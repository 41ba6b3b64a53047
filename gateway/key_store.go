package gateway

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/host/state"
)

// KeyIssuer is the issuer of the principals of keys.
const KeyIssuer = "patchbay:key"

const (
	// stateKind is the kind of the entries of keys in a [state.Store]. Their keys are the names.
	stateKind = "key"
	// maxKeys bounds the keys of a store: a gateway reads all of them every second.
	maxKeys = 1000
	// maxSubject limits the subject of a key, in bytes, like the subject of a token.
	maxSubject = 256
	// maxAttempts bounds how often an entry that others change is read again.
	maxAttempts = 10
)

// Errors of a [KeyStore].
var (
	ErrKeyExists  = errors.New("gateway: the name is that of another key")
	ErrUnknownKey = errors.New("gateway: unknown key")
)

// A Key is a key of a principal, without its secret. A client sends the secret in the header
// "Authorization: Bearer SECRET".
type Key struct {
	// Name identifies the key: 1 to 64 of the characters A-Z, a-z, 0-9, ., _ and -.
	Name string `json:"name"`
	// Subject is the subject of the principal, whose issuer is [KeyIssuer]. Keys with the same
	// subject belong to one principal. Default: Name.
	Subject string `json:"subject,omitzero"`
	// Generation is the ClientID of the principal. Create copies it from another key with the same
	// Subject, or sets a random text if there is no such key. A Subject that is used again after
	// all its keys were revoked therefore does not inherit the logins, grants and tasks of the
	// earlier principal.
	Generation string `json:"generation,omitzero"`
	// Profile is the only profile that the key opens; empty for all.
	Profile string `json:"profile,omitzero"`
	// Servers are the names of the only servers that the key opens; nil for all.
	Servers []string `json:"servers,omitempty"`
	// Only are the kinds of requests that the key opens; see [policy.Caller]. Nil for all.
	Only []policy.ActionKind `json:"only,omitempty"`
	// ReadOnly hides tools that do not declare readOnlyHint; see [policy.Caller].
	ReadOnly bool `json:"readOnly,omitzero"`
	// Console is the role of the principal in a web console of the gateway. Default: the key opens
	// no console.
	Console ConsoleRole `json:"console,omitzero"`
	// Created is when the key was made. Create sets it.
	Created time.Time `json:"created,omitzero"`
	// Expires is when the key ends; zero for never.
	Expires time.Time `json:"expires,omitzero"`
	// Used is when the key was last used, up to a minute earlier; zero for never.
	Used time.Time `json:"used,omitzero"`
}

// IsExpired reports whether the key has expired at a time.
func (k *Key) IsExpired(now time.Time) bool { return !k.Expires.IsZero() && !now.Before(k.Expires) }

// A storedKey is the value of an entry.
type storedKey struct {
	Key
	Hash string `json:"hash"` // SHA-256 of the secret, in hexadecimal
}

// A KeyStore holds the keys of principals, in a store that several gateways and commands may share.
// It stores only the SHA-256 hash of a secret, which suffices because a secret contains 160 random
// bits. It is safe for concurrent use.
type KeyStore struct{ state state.Store }

// NewKeyStore returns the keys in a store.
func NewKeyStore(state state.Store) *KeyStore { return &KeyStore{state} }

var keyName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// check returns an error for a key that cannot be made.
func (k *Key) check(now time.Time) error {
	kinds := []policy.ActionKind{policy.ActionCall, policy.ActionGet, policy.ActionRead}
	isUnknown := func(kind policy.ActionKind) bool { return !slices.Contains(kinds, kind) }
	isControl := func(r rune) bool { return r < ' ' || r == 0x7f }
	switch {
	case !keyName.MatchString(k.Name):
		return fmt.Errorf("gateway: invalid name %.80q of a key: must have 1 to 64 of the characters A-Z, a-z, "+
			"0-9, ., _ and -, and begin with a letter or a digit", k.Name)
	case len(k.Subject) > maxSubject || !utf8.ValidString(k.Subject) || strings.ContainsFunc(k.Subject, isControl):
		return fmt.Errorf("gateway: invalid subject %.80q: must have at most %d bytes of text without control "+
			"characters", k.Subject, maxSubject)
	case slices.ContainsFunc(k.Only, isUnknown):
		return fmt.Errorf("gateway: invalid kinds of requests %q: must be of %q", k.Only, kinds)
	case k.Console != "" && !k.Console.IsValid():
		return fmt.Errorf("gateway: invalid role %.64q in the console: must be %s or %s", k.Console, ConsoleViewer,
			ConsoleOperator)
	case k.IsExpired(now):
		return fmt.Errorf("gateway: invalid end %s: must be in the future", k.Expires.Format(time.RFC3339))
	}
	return nil
}

// Create creates a key and returns its secret, which is not stored. The error is [ErrKeyExists] if
// the name is in use, even by an expired key.
func (s *KeyStore) Create(ctx context.Context, k Key) (secret string, err error) {
	now := time.Now()
	if err := k.check(now); err != nil {
		return "", err
	}
	all, err := s.List(ctx)
	if err != nil {
		return "", err
	}
	if len(all) >= maxKeys {
		return "", fmt.Errorf("gateway: %d keys: revoke those that are not used before a new one", len(all))
	}
	k.Subject = cmp.Or(k.Subject, k.Name)
	k.Generation = rand.Text()
	for i := range all {
		if all[i].Subject == k.Subject {
			k.Generation = all[i].Generation
		}
	}
	k.Created, k.Used = now.UTC().Truncate(time.Second), time.Time{}
	if !k.Expires.IsZero() {
		k.Expires = k.Expires.UTC().Truncate(time.Second)
	}
	secret = newSecret()
	hash := sha256.Sum256([]byte(secret))
	value, err := json.Marshal(storedKey{k, hex.EncodeToString(hash[:])})
	if err != nil {
		return "", err
	}
	if err := s.state.CompareAndSet(ctx, stateKind, k.Name, 0, value); err != nil {
		if errors.Is(err, state.ErrConflict) {
			err = fmt.Errorf("%w: %q", ErrKeyExists, k.Name)
		}
		return "", err
	}
	state.Announce(ctx, s.state, stateKind)
	return secret, nil
}

// List returns all keys, by name. Expired keys stay until they are revoked.
func (s *KeyStore) List(ctx context.Context) ([]Key, error) {
	var all []Key
	for e, err := range s.state.List(ctx, stateKind) {
		if err != nil {
			return nil, err
		}
		k, _, err := decodeKey(e.Value)
		if err != nil {
			return nil, fmt.Errorf("gateway: invalid entry of key %q: %w", e.Key, err)
		}
		all = append(all, k.Key)
	}
	return all, nil
}

// Revoke removes a key, and returns it. Gateways reject it within a second, and end its requests: at
// once if the store is a [*state.Shared] here and there, or within 30 seconds if they cannot read it.
// The error is [ErrUnknownKey] if the store does not contain the key.
func (s *KeyStore) Revoke(ctx context.Context, name string) (*Key, error) {
	for range maxAttempts {
		value, version, err := s.state.Get(ctx, stateKind, name)
		if err != nil {
			return nil, err
		}
		if value == nil {
			return nil, fmt.Errorf("%w %.80q", ErrUnknownKey, name)
		}
		k, _, err := decodeKey(value)
		if err != nil {
			k = &storedKey{Key: Key{Name: name}} // an unreadable entry can be removed
		}
		if err = s.state.CompareAndSet(ctx, stateKind, name, version, nil); !errors.Is(err, state.ErrConflict) {
			state.Announce(ctx, s.state, stateKind)
			return &k.Key, err
		}
	}
	return nil, state.ErrConflict
}

// touch updates Used unless the key was replaced meanwhile.
func (s *KeyStore) touch(ctx context.Context, name string, hash keyHash, now time.Time) error {
	value, version, err := s.state.Get(ctx, stateKind, name)
	if err != nil || value == nil {
		return err
	}
	k, stored, err := decodeKey(value)
	if err != nil || stored != hash {
		return err
	}
	k.Used = now.UTC().Truncate(time.Second)
	if value, err = json.Marshal(k); err != nil {
		return err
	}
	if err = s.state.CompareAndSet(ctx, stateKind, name, version, value); errors.Is(err, state.ErrConflict) {
		return nil // another gateway updated it, or the key was revoked
	}
	return err
}

// decodeKey decodes the value of an entry. Unknown members are an error: they may be
// limits.
func decodeKey(value []byte) (k *storedKey, hash keyHash, err error) {
	k = &storedKey{}
	d := json.NewDecoder(bytes.NewReader(value))
	d.DisallowUnknownFields()
	if err := d.Decode(k); err != nil {
		return nil, hash, err
	}
	if len(k.Hash) != hex.EncodedLen(len(hash)) || k.Name == "" || k.Subject == "" {
		return nil, hash, errors.New("invalid hash, name or subject")
	}
	_, err = hex.Decode(hash[:], []byte(k.Hash))
	return k, hash, err
}
