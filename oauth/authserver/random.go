package authserver

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
)

const (
	// idBytes is the size of IDs, which are not secret but must be unique and hard to guess.
	idBytes = 16
	// tokenBytes is the size of secrets.
	tokenBytes = 32
)

func tokenLength(n int) int { return base64.RawURLEncoding.EncodedLen(n) }

func randomID() string { return randomText(idBytes) }

func randomToken() string { return randomText(tokenBytes) }

func randomText(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return base64.RawURLEncoding.EncodeToString(b)
}

// hashKey returns the store key for a secret.
func hashKey(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}
