package authserver

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
)

const (
	// idBytes is the size of ids that are not secret, and must still not be guessed nor met twice.
	idBytes = 16
	// tokenBytes is the size of what is a secret.
	tokenBytes = 32
)

func tokenLength(n int) int { return base64.RawURLEncoding.EncodedLen(n) }

func randomID() string { return randomText(idBytes) }

func randomToken() string { return randomText(tokenBytes) }

func randomText(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // it never fails: it ends the program instead
	return base64.RawURLEncoding.EncodeToString(b)
}

// hashKey returns the key under which a secret is found in the store.
func hashKey(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}
