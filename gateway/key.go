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

// NewKey returns a new key of 160 random bits, for [Options].Keys.
func NewKey() string {
	b := make([]byte, keySize)
	_, _ = rand.Read(b) // never fails
	return strings.ToLower(base32.StdEncoding.EncodeToString(b))
}

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

// hasKey reports whether a request has a valid key. The time that it takes depends on none of the
// keys.
func (g *Gateway) hasKey(r *http.Request) bool {
	values := r.Header["Authorization"]
	if len(values) != 1 {
		return false
	}
	scheme, key, _ := strings.Cut(values[0], " ")
	if key = strings.TrimLeft(key, " "); !strings.EqualFold(scheme, "Bearer") || len(key) > maxKey {
		return false
	}
	hash, valid := sha256.Sum256([]byte(key)), 0
	for i := range g.keys {
		valid |= subtle.ConstantTimeCompare(hash[:], g.keys[i][:])
	}
	return valid == 1
}

// refuse refuses a request without a valid key. The response is the same for all of them.
func (g *Gateway) refuse(w http.ResponseWriter, r *http.Request) {
	if g.refusals.Admit() {
		reason := "wrong key"
		if len(r.Header["Authorization"]) == 0 {
			reason = "missing key"
		}
		g.opts.Logger.WarnContext(r.Context(), "gateway: request refused", "reason", reason, "method", r.Method,
			"host", r.Host, "origin", r.Header.Get("Origin"), "remote", r.RemoteAddr)
	}
	limitBodyTime(w)
	w.Header().Set("WWW-Authenticate", "Bearer")
	http.Error(w, "unauthorized", http.StatusUnauthorized)
}
