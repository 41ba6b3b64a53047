package oauthclient

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
)

// secretSize is the length of a random secret, in bytes: 256 bits.
const secretSize = 32

// newSecret returns a random secret in base64url.
func newSecret() string {
	secret := make([]byte, secretSize)
	_, _ = rand.Read(secret) // never fails
	return base64.RawURLEncoding.EncodeToString(secret)
}

// challengeOf returns the S256 code challenge of a verifier.
//
// Spec: RFC 7636, section 4.2.
func challengeOf(verifier string) string {
	sum := sha256.Sum256([]byte(verifier))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}
