package oauthclient

import (
	"crypto"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/patchbay-mcp/patchbay/internal/jwskey"
	"github.com/patchbay-mcp/patchbay/internal/oauthwire"
	"github.com/patchbay-mcp/patchbay/oauth"
)

const (
	// assertionLifetime is how long an assertion is valid. It is used at once; the rest allows for
	// clock differences.
	assertionLifetime = 2 * time.Minute
	// clientAssertionType is the client_assertion_type of a JWT.
	clientAssertionType = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
)

// An AssertionKey is a private key that a client authenticates with (private_key_jwt), instead of a
// secret that the authorization server knows, too.
//
// Spec: RFC 7523, section 2.2; OpenID Connect Core 1.0, section 9.
type AssertionKey struct {
	// Key signs: an *ecdsa.PrivateKey, an ed25519.PrivateKey, an *rsa.PrivateKey of at least 2048
	// bits, or a hardware key with such a public key. [ParsePrivateKey] reads one.
	Key crypto.Signer
	// ID is the kid of the key at the authorization server. Default: none is sent.
	ID string
	// Algorithm is the signature algorithm, such as "RS256" or "PS256" for a key that supports
	// both. Default: one that the key and the authorization server support, PS256 before RS256;
	// RS256 for RSA if the server does not say what it supports.
	Algorithm string
}

// assertion returns a JWT that authenticates a client at an authorization server.
func (k *AssertionKey) assertion(clientID, issuer string, taken []string, now time.Time) (string, error) {
	if k == nil || k.Key == nil {
		return "", errors.New("oauth: the authorization server requires a signed assertion (private_key_jwt): set " +
			"TransportOptions.Client.Key")
	}
	algorithm, err := k.algorithm(taken)
	if err != nil {
		return "", err
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: jwskey.ForSigning(k.Key)}, k.header())
	if err != nil {
		return "", fmt.Errorf("oauth: invalid AssertionKey: %w", err)
	}
	payload, err := json.Marshal(assertionClaims{
		Issuer: clientID, Subject: clientID, Audience: issuer, ID: oauthwire.NewJWTID(),
		IssuedAt: now.Unix(), Expires: now.Add(assertionLifetime).Unix(),
	})
	if err != nil {
		return "", fmt.Errorf("oauth: encode a client assertion: %w", err)
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		return "", fmt.Errorf("oauth: sign a client assertion: %w", err)
	}
	return signed.CompactSerialize()
}

// authenticate adds an assertion to a form for an endpoint that authenticates clients. It removes
// client_id, which the assertion contains. Spec: RFC 7523, section 2.2; extension
// io.modelcontextprotocol/oauth-client-credentials.
func (k *AssertionKey) authenticate(form url.Values, clientID string, server *oauth.ServerMetadata,
	now time.Time) error {
	jwt, err := k.assertion(clientID, server.Issuer, server.TokenEndpointAuthAlgorithms, now)
	if err != nil {
		return err
	}
	form.Del("client_id")
	form.Set("client_assertion_type", clientAssertionType)
	form.Set("client_assertion", jwt)
	return nil
}

type assertionClaims struct {
	Issuer   string `json:"iss"`
	Subject  string `json:"sub"`
	Audience string `json:"aud"`
	ID       string `json:"jti"`
	IssuedAt int64  `json:"iat"`
	Expires  int64  `json:"exp"`
}

func (k *AssertionKey) header() *jose.SignerOptions {
	opts := (&jose.SignerOptions{}).WithType("JWT")
	if k.ID != "" {
		opts = opts.WithHeader("kid", k.ID)
	}
	return opts
}

// algorithm chooses the signature algorithm. supported are those of the server, empty if it does
// not say.
func (k *AssertionKey) algorithm(taken []string) (jose.SignatureAlgorithm, error) {
	can, err := jwskey.Algorithms(k.Key.Public())
	if err != nil {
		return "", fmt.Errorf("oauth: invalid AssertionKey: %w", err)
	}
	if k.Algorithm != "" {
		if !slices.Contains(can, jose.SignatureAlgorithm(k.Algorithm)) {
			return "", fmt.Errorf("oauth: invalid AssertionKey.Algorithm %q: the key supports %v", k.Algorithm, can)
		}
		can = []jose.SignatureAlgorithm{jose.SignatureAlgorithm(k.Algorithm)}
	}
	if len(taken) == 0 && slices.Contains(can, jose.RS256) {
		return jose.RS256, nil // every server that supports RSA supports it
	}
	if len(taken) == 0 {
		return can[0], nil
	}
	for _, a := range can {
		if slices.Contains(taken, string(a)) {
			return a, nil
		}
	}
	return "", fmt.Errorf("oauth: the authorization server does not accept client assertions signed with %v, only "+
		"with %q", can, taken)
}

// ParsePrivateKey parses an unencrypted private key in PEM: PKCS #8, SEC 1 (EC PRIVATE KEY) or PKCS
// #1 (RSA PRIVATE KEY). The error contains nothing of the key.
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
