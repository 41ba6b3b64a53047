package gateway

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"fmt"
	"net/http"
	"strings"
)

const (
	// keySize is the size of a key, in random bytes: 160 bits.
	keySize = 20
	// minKey is the length of such a key in base 32.
	minKey = 32
	// maxKey bounds the key of a request, in bytes, before it is hashed.
	maxKey = 1 << 10
)

// KeyPrefix begins the keys of principals, so that scanners of source code find them.
const KeyPrefix = "patchbay_"

// NewKey returns a new key of 160 random bits, for [Options].Keys.
func NewKey() string {
	b := make([]byte, keySize)
	_, _ = rand.Read(b) // never fails
	return strings.ToLower(base32.StdEncoding.EncodeToString(b))
}

// newSecret returns the secret of a new key of a principal.
func newSecret() string { return KeyPrefix + NewKey() }

type keyHash [sha256.Size]byte

func hashKeys(keys []string) (hashes []keyHash) {
	isInvalid := func(r rune) bool { return r <= ' ' || r > '~' }
	for i, key := range keys {
		if len(key) < minKey || len(key) > maxKey || strings.ContainsFunc(key, isInvalid) {
			panic(fmt.Sprintf("gateway: New: invalid key %d: must have %d to %d characters of ASCII, without spaces", i,
				minKey, maxKey))
		}
		hashes = append(hashes, sha256.Sum256([]byte(key)))
	}
	return hashes
}

// bearer returns the value of the header Authorization with the scheme Bearer. The header must be there
// once. It may be a key or a token.
func bearer(r *http.Request) (value string, ok bool) {
	values := r.Header["Authorization"]
	if len(values) != 1 {
		return "", false
	}
	scheme, value, _ := strings.Cut(values[0], " ")
	value = strings.TrimLeft(value, " ")
	return value, value != "" && strings.EqualFold(scheme, "Bearer")
}

// isLocal reports whether a hash belongs to a key of the local user. Its running time does not
// depend on the keys.
func (g *Gateway) isLocal(hash keyHash) bool {
	valid := 0
	for i := range g.keys {
		valid |= subtle.ConstantTimeCompare(hash[:], g.keys[i][:])
	}
	return valid == 1
}
