package mcp

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"sync"
)

// minStateKey is the least number of bytes of a key that seals: as many as the cipher's own.
const minStateKey = 32

// errSealed is what open says of every token it refuses, so that a peer learns nothing by trying.
var errSealed = errors.New("mcp: the token was not sealed for this use")

// A sealer makes text that only servers with its keys can read or make. A server gives it to clients to keep, so that
// it need not remember them.
type sealer struct {
	// keys returns the first one, which seals, and all that open. One of the server's own is made when it is needed: most
	// servers never seal, and should not wait for it to start.
	keys func() []sealKey
}

// keyID tells which key sealed a token.
type keyID [4]byte

type sealKey struct {
	id   keyID
	aead cipher.AEAD
}

// newSealer returns a sealer with the given secrets, or with one of its own when there are none.
func newSealer(secrets [][]byte) *sealer {
	if len(secrets) == 0 {
		return &sealer{keys: sync.OnceValue(ownKey)}
	}
	keys := sealKeys(secrets...) // now: the secrets are the caller's, who may wipe them
	return &sealer{keys: func() []sealKey { return keys }}
}

func ownKey() []sealKey {
	secret := make([]byte, minStateKey)
	rand.Read(secret)
	return sealKeys(secret)
}

func sealKeys(secrets ...[]byte) (keys []sealKey) {
	for _, secret := range secrets {
		k, err := newSealKey(secret)
		if err != nil {
			panic("mcp: state key: " + err.Error()) // the lengths are right, so only a broken runtime gets here
		}
		keys = append(keys, k)
	}
	return keys
}

// newSealKey derives what seals from a secret, which may have other uses elsewhere.
func newSealKey(secret []byte) (k sealKey, err error) {
	derived, err := hkdf.Key(sha256.New, secret, nil, "patchbay sealed state", 32+len(k.id))
	if err != nil {
		return k, err
	}
	copy(k.id[:], derived[32:])
	block, err := aes.NewCipher(derived[:32])
	if err != nil {
		return k, err
	}
	// Random nonces of 96 bits are good for 2^32 tokens per key.
	k.aead, err = cipher.NewGCMWithRandomNonce(block)
	return k, err
}

// seal returns a token that holds plain and opens only with the same bound strings.
func (s *sealer) seal(plain []byte, bound ...string) string {
	k := s.keys()[0]
	sealed := append(make([]byte, 0, len(k.id)+len(plain)+k.aead.Overhead()), k.id[:]...)
	return base64.RawURLEncoding.EncodeToString(k.aead.Seal(sealed, nil, plain, boundData(k.id, bound)))
}

// open returns what a token holds. The error is errSealed for whatever is wrong with it.
func (s *sealer) open(token string, bound ...string) ([]byte, error) {
	// The decoder skips line breaks, and a token with one would be a second spelling of the same text.
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || base64.RawURLEncoding.EncodedLen(len(sealed)) != len(token) || len(sealed) < len(keyID{}) {
		return nil, errSealed
	}
	id := keyID(sealed)
	for _, k := range s.keys() {
		if k.id != id {
			continue
		}
		if plain, err := k.aead.Open(nil, nil, sealed[len(id):], boundData(id, bound)); err == nil {
			return plain, nil
		}
	}
	return nil, errSealed
}

// boundData spells the bound strings so that no two lists of them are alike.
func boundData(id keyID, bound []string) []byte {
	data := id[:]
	for _, s := range bound {
		data = binary.AppendUvarint(data, uint64(len(s)))
		data = append(data, s...)
	}
	return data
}
