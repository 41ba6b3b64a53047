package authserver

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"strings"
)

const (
	idBytes    = 16 // IDs are not secret but must be unique and hard to guess
	tokenBytes = 32 // of secrets
)

func tokenLength(n int) int { return base64.RawURLEncoding.EncodedLen(n) }

func randomID() string { return randomText(idBytes) }

func randomToken() string { return randomText(tokenBytes) }

func randomText(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return base64.RawURLEncoding.EncodeToString(b)
}

// isPrintable reports whether a text has only printable ASCII characters without spaces.
func isPrintable(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' })
}

// hashKey returns the store key for a secret.
func hashKey(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}
