// Package jwskey maps keys to the signature algorithms of JWS.
package jwskey

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"errors"
	"fmt"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/cryptosigner"
)

// MinRSABits is the smallest RSA key that RFC 7518 allows.
const MinRSABits = 2048

// Asymmetric returns the supported algorithms with a public key. A verifier that accepted symmetric
// algorithms would use a public key as a secret.
func Asymmetric() []jose.SignatureAlgorithm {
	return []jose.SignatureAlgorithm{
		jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
		jose.PS256, jose.PS384, jose.PS512, jose.RS256, jose.RS384, jose.RS512,
	}
}

// Algorithms returns the algorithms that a key can sign with, the preferred algorithm first.
func Algorithms(public crypto.PublicKey) ([]jose.SignatureAlgorithm, error) {
	switch key := public.(type) {
	case *ecdsa.PublicKey:
		switch key.Curve {
		case elliptic.P256():
			return []jose.SignatureAlgorithm{jose.ES256}, nil
		case elliptic.P384():
			return []jose.SignatureAlgorithm{jose.ES384}, nil
		case elliptic.P521():
			return []jose.SignatureAlgorithm{jose.ES512}, nil
		}
		return nil, errors.New("invalid elliptic curve: must be P-256, P-384 or P-521")
	case ed25519.PublicKey:
		return []jose.SignatureAlgorithm{jose.EdDSA}, nil
	case *rsa.PublicKey:
		if bits := key.N.BitLen(); bits < MinRSABits {
			return nil, fmt.Errorf("RSA key of %d bits: must have at least %d", bits, MinRSABits)
		}
		return []jose.SignatureAlgorithm{jose.PS256, jose.RS256, jose.PS384, jose.RS384, jose.PS512, jose.RS512}, nil
	}
	return nil, fmt.Errorf("a %T cannot sign JWTs", public)
}

// ForSigning returns a private key in the form that package jose takes.
func ForSigning(key crypto.Signer) any {
	switch key.(type) {
	case *ecdsa.PrivateKey, ed25519.PrivateKey, *rsa.PrivateKey:
		return key
	}
	return cryptosigner.Opaque(key)
}
