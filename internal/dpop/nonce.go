package dpop

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/oauthwire"
)

const (
	// nonceLifetime is how long a nonce is current; it is accepted for twice as long.
	nonceLifetime = 5 * time.Minute
	// minNonceKey is the shortest secret that cannot be guessed, in bytes.
	minNonceKey = 32
	// nonceSize is the length of a nonce before base64url, in bytes.
	nonceSize = 16
)

// NonceKeys are the secrets that nonces are derived from. oauth.NonceKeys documents them.
type NonceKeys struct {
	keys atomic.Pointer[[][]byte] // nil before the first use
}

// init sets a random key if there are no keys yet.
func (k *NonceKeys) init() {
	key := make([]byte, minNonceKey)
	_, _ = rand.Read(key) // never fails
	k.keys.CompareAndSwap(nil, &[][]byte{key})
}

// Replace replaces the keys.
func (k *NonceKeys) Replace(keys [][]byte) error {
	if len(keys) == 0 {
		return errors.New("oauth: no nonce keys: must be at least one")
	}
	replaced := make([][]byte, len(keys))
	for i, key := range keys {
		if len(key) < minNonceKey {
			return fmt.Errorf("oauth: nonce key %d of %d bytes: must have at least %d", i+1, len(key), minNonceKey)
		}
		replaced[i] = slices.Clone(key)
	}
	k.keys.Store(&replaced)
	return nil
}

// checkNonce checks the nonce of a proof. next is the nonce of the next proof if it is a different
// nonce.
func (v *Verifier) checkNonce(got string, now time.Time) (next string, err error) {
	if v.nonceKeys == nil {
		return "", nil
	}
	keys := *v.nonceKeys.keys.Load()
	current := deriveNonce(keys[0], now)
	if hmac.Equal([]byte(got), []byte(current)) {
		return "", nil
	}
	for _, key := range keys {
		for _, t := range []time.Time{now, now.Add(-nonceLifetime)} {
			if hmac.Equal([]byte(got), []byte(deriveNonce(key, t))) {
				return current, nil
			}
		}
	}
	return current, &ProofError{oauthwire.UseDPoPNonce, "nonce must be that of the DPoP-Nonce header"}
}

// nonceAt returns the nonce of a time; empty if nonces are not required.
func (v *Verifier) nonceAt(t time.Time) string {
	if v.nonceKeys == nil {
		return ""
	}
	return deriveNonce((*v.nonceKeys.keys.Load())[0], t)
}

// deriveNonce derives the nonce of a time from a key, so that processes with the same key need not
// share state.
func deriveNonce(key []byte, t time.Time) string {
	mac := hmac.New(sha256.New, key)
	mac.Write(binary.BigEndian.AppendUint64([]byte("dpop nonce "), uint64(t.Unix()/int64(nonceLifetime/time.Second))))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:nonceSize])
}
