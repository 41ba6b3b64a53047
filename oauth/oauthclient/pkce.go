package oauthclient

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
)

// secretSize is the length of what nobody may guess, in bytes: 256 bits.
const secretSize = 32

// newSecret returns a random text of the characters that stand in URLs as they are.
func newSecret() string {
	secret := make([]byte, secretSize)
	_, _ = rand.Read(secret) // it never fails
	return base64.RawURLEncoding.EncodeToString(secret)
}

// challengeOf returns the code challenge of a verifier by the method S256.
//
// Spec: RFC 7636, section 4.2.
func challengeOf(verifier string) string {
	sum := sha256.Sum256([]byte(verifier))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}
