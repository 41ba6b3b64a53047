// Package dpop makes and verifies DPoP proofs (demonstrating proof of possession, RFC 9449): JWTs
// that show, for one HTTP request, that its sender holds the private key that an access token is
// bound to. A stolen token is then of no use.
package dpop

import (
	"crypto/sha256"
	"encoding/base64"

	"github.com/patchbay-mcp/patchbay/internal/oauthwire"
)

// Header carries a proof, HeaderNonce the nonce for the next proof.
const Header, HeaderNonce = "DPoP", "DPoP-Nonce"

// typeProof is the typ of a proof.
const typeProof = "dpop+jwt"

// maxNonce bounds a nonce, in bytes: it goes into a header with every request.
const maxNonce = 1 << 10

// tokenHash returns the ath claim for an access token.
func tokenHash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// isNonce reports whether text has the syntax of a nonce and may be sent in a header.
//
// Spec: RFC 9449, section 8.1.
func isNonce(text string) bool { return len(text) <= maxNonce && oauthwire.IsNQChars(text) }
