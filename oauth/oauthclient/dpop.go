package oauthclient

import (
	"crypto"
)

// DPoPOptions configures tokens that are bound to a key (DPoP), so that a stolen token is of no
// use. The zero value is right for programs that need not keep tokens after they end.
//
// Spec: RFC 9449; extension io.modelcontextprotocol/auth/dpop.
type DPoPOptions struct {
	// Key signs the proofs: an *ecdsa.PrivateKey, an ed25519.PrivateKey, an *rsa.PrivateKey of at
	// least 2048 bits, or a hardware key with such a public key. It signs for every request, from
	// several goroutines at once. Tokens in a Store can be used by another process only if that has
	// the same key. Default: a new P-256 key.
	Key crypto.Signer
	// InsecureAllowBearer accepts a token that is not bound to the key if the authorization server
	// issues no other. Default: such a token is an error.
	InsecureAllowBearer bool
}
