package oauthclient

import (
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/patchbay-mcp/patchbay/internal/jwskey"
	"github.com/patchbay-mcp/patchbay/internal/oauthwire"
	"github.com/patchbay-mcp/patchbay/oauth"
)

const (
	// assertionLifetime allows for clock differences.
	assertionLifetime   = 2 * time.Minute
	clientAssertionType = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
)

// An AssertionKey is a private key that a client authenticates with (private_key_jwt), instead of a
// secret that the authorization server knows, too.
//
// Spec: RFC 7523, section 2.2; OpenID Connect Core 1.0, section 9.
type AssertionKey struct {
	// Key signs: an *ecdsa.PrivateKey, an ed25519.PrivateKey, an *rsa.PrivateKey of at least 2048
	// bits, or a hardware key with such a public key. [ParsePrivateKey] reads a key.
	Key crypto.Signer
	// ID is the kid of the key at the authorization server. Default: no kid is sent.
	ID string
	// Algorithm is the signature algorithm, such as "RS256" or "PS256" for a key that supports
	// both. Default: an algorithm that the key and the authorization server support, PS256 before
	// RS256; RS256 for RSA if the server does not name its algorithms.
	Algorithm string
}

func (k *AssertionKey) assertion(clientID, issuer string, supported []string, now time.Time) (string, error) {
	if k == nil || k.Key == nil {
		return "", errors.New("oauth: the authorization server requires a signed assertion (private_key_jwt), and " +
			"the client has no key")
	}
	algorithm, err := k.algorithm(supported)
	if err != nil {
		return "", err
	}
	opts := (&jose.SignerOptions{}).WithType("JWT")
	if k.ID != "" {
		opts = opts.WithHeader("kid", k.ID)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: jwskey.ForSigning(k.Key)}, opts)
	if err != nil {
		return "", fmt.Errorf("oauth: invalid AssertionKey: %w", err)
	}
	assertion, err := jwt.Signed(signer).Claims(map[string]any{
		"iss": clientID, "sub": clientID, "aud": issuer, "jti": oauthwire.NewJWTID(),
		"iat": now.Unix(), "exp": now.Add(assertionLifetime).Unix(),
	}).Serialize()
	if err != nil {
		return "", fmt.Errorf("oauth: sign a client assertion: %w", err)
	}
	return assertion, nil
}

// authenticate adds an assertion to a form for an endpoint that authenticates clients. It removes
// client_id, which the assertion contains. Spec: RFC 7523, section 2.2; extension
// io.modelcontextprotocol/oauth-client-credentials.
func (k *AssertionKey) authenticate(
	form url.Values, clientID string, server *oauth.ServerMetadata, now time.Time,
) error {
	assertion, err := k.assertion(clientID, server.Issuer, server.TokenEndpointAuthAlgorithms, now)
	if err != nil {
		return err
	}
	form.Del("client_id")
	form.Set("client_assertion_type", clientAssertionType)
	form.Set("client_assertion", assertion)
	return nil
}

// algorithm chooses the signature algorithm. supported are the algorithms of the server, empty if
// not known.
func (k *AssertionKey) algorithm(supported []string) (jose.SignatureAlgorithm, error) {
	own, err := jwskey.Algorithms(k.Key.Public())
	if err != nil {
		return "", fmt.Errorf("oauth: invalid AssertionKey: %w", err)
	}
	if k.Algorithm != "" {
		if !slices.Contains(own, jose.SignatureAlgorithm(k.Algorithm)) {
			return "", fmt.Errorf("oauth: invalid AssertionKey.Algorithm %q: the key supports %v", k.Algorithm, own)
		}
		own = []jose.SignatureAlgorithm{jose.SignatureAlgorithm(k.Algorithm)}
	}
	switch {
	case len(supported) == 0 && slices.Contains(own, jose.RS256):
		return jose.RS256, nil // every server that supports RSA supports it
	case len(supported) == 0:
		return own[0], nil
	}
	for _, a := range own {
		if slices.Contains(supported, string(a)) {
			return a, nil
		}
	}
	return "", fmt.Errorf("oauth: the authorization server accepts client assertions signed with %[2]q, not with %[1]v",
		own, supported)
}

// ParsePrivateKey parses an unencrypted private key in PEM: PKCS #8, SEC 1 (EC PRIVATE KEY) or PKCS
// #1 (RSA PRIVATE KEY). The error contains no part of the key.
func ParsePrivateKey(text []byte) (crypto.Signer, error) {
	for {
		var block *pem.Block
		block, text = pem.Decode(text)
		if block == nil {
			return nil, errors.New("oauth: invalid private key: no PEM block of a private key")
		}
		var key any
		var err error
		switch block.Type {
		case "PRIVATE KEY":
			key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
		case "EC PRIVATE KEY":
			key, err = x509.ParseECPrivateKey(block.Bytes)
		case "RSA PRIVATE KEY":
			key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
		case "ENCRYPTED PRIVATE KEY":
			return nil, errors.New("oauth: invalid private key: must not be encrypted")
		default:
			continue // parameters, certificates
		}
		if err != nil {
			return nil, errors.New("oauth: invalid private key: malformed")
		}
		signer, ok := key.(crypto.Signer)
		if !ok {
			return nil, errors.New("oauth: invalid private key: must be a signing key")
		}
		if _, err := jwskey.Algorithms(signer.Public()); err != nil {
			return nil, fmt.Errorf("oauth: invalid private key: %w", err)
		}
		return signer, nil
	}
}
