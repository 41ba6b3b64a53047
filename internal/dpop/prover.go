// Package dpop makes and verifies DPoP proofs (demonstrating proof of possession, RFC 9449): JWTs
// that show, for an HTTP request, that its sender holds the private key that an access token is
// bound to. A stolen token is then of no use.
package dpop

import (
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/patchbay-mcp/patchbay/internal/jwskey"
	"github.com/patchbay-mcp/patchbay/internal/netx"
	"github.com/patchbay-mcp/patchbay/internal/oauthwire"
)

// maxNonces limits the nonces that a Prover keeps: a client uses a single resource and seldom more
// than two authorization servers.
const maxNonces = 64

// ProverOptions configures a [Prover]. The fields correspond to oauthclient.DPoPOptions, which
// documents them.
type ProverOptions struct {
	Key                 crypto.Signer
	InsecureAllowBearer bool
}

// A Prover makes proofs with a key and stores the nonces that servers require in them. It is safe
// for concurrent use.
type Prover struct {
	signer        jose.Signer
	algorithm     string
	thumbprint    string
	acceptsBearer bool
	now           func() time.Time

	mu     sync.Mutex // guards the field below
	nonces map[nonceKey]string
}

// A nonceKey identifies the server that a nonce is for. An authorization server and a resource of
// an origin use their own nonces.
type nonceKey struct {
	hostPort   string
	isResource bool
}

// NewProver returns a Prover. opts may be nil.
func NewProver(opts *ProverOptions) (*Prover, error) {
	o := *cmp.Or(opts, new(ProverOptions))
	if o.Key == nil {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, fmt.Errorf("oauth: generate a DPoP key: %w", err)
		}
		o.Key = key
	}
	algorithms, err := jwskey.Algorithms(o.Key.Public())
	if err != nil {
		return nil, fmt.Errorf("oauth: invalid DPoPOptions.Key: %w", err)
	}
	public := jose.JSONWebKey{Key: o.Key.Public()}
	thumbprint, errThumbprint := public.Thumbprint(crypto.SHA256)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithms[0], Key: jwskey.ForSigning(o.Key)},
		(&jose.SignerOptions{EmbedJWK: true}).WithType(typeProof))
	if err = errors.Join(errThumbprint, err); err != nil {
		return nil, fmt.Errorf("oauth: invalid DPoPOptions.Key: %w", err)
	}
	return &Prover{
		signer: signer, algorithm: string(algorithms[0]), acceptsBearer: o.InsecureAllowBearer, now: time.Now,
		thumbprint: base64.RawURLEncoding.EncodeToString(thumbprint), nonces: map[nonceKey]string{},
	}, nil
}

// Thumbprint returns the JWK thumbprint of the key, which tokens are bound to (cnf.jkt).
func (p *Prover) Thumbprint() string { return p.thumbprint }

// proofClaims are the claims of a proof. Spec: RFC 9449, section 4.2.
type proofClaims struct {
	ID        string  `json:"jti"`
	Method    string  `json:"htm"`
	Target    string  `json:"htu"`
	IssuedAt  float64 `json:"iat"`
	TokenHash string  `json:"ath,omitempty"` // of the access token that the request carries
	Nonce     string  `json:"nonce,omitempty"`
}

// Prove returns a proof for a request. token is the access token of the request, empty at an
// authorization server.
func (p *Prover) Prove(method string, target *url.URL, token string) (string, error) {
	claims := proofClaims{
		ID: oauthwire.NewJWTID(), Method: method, Target: proofTarget(target),
		IssuedAt: float64(p.now().Unix()), Nonce: p.nonce(target, token != ""),
	}
	if token != "" {
		claims.TokenHash = tokenHash(token)
	}
	proof, err := jwt.Signed(p.signer).Claims(claims).Serialize()
	if err != nil {
		return "", fmt.Errorf("oauth: sign a DPoP proof: %w", err)
	}
	return proof, nil
}

// Authorize sets an access token that is bound to the key, and a proof, on a request to a resource.
func (p *Prover) Authorize(req *http.Request, token string) error {
	proof, err := p.Prove(req.Method, req.URL, token)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", oauthwire.DPoP+" "+token)
	req.Header.Set(Header, proof)
	return nil
}

func (p *Prover) nonce(target *url.URL, isResource bool) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.nonces[nonceKey{netx.HostPort(target), isResource}]
}

// LearnFromResource stores the nonce of a resource's response for the next proof, and reports
// whether there was a nonce.
//
// Spec: RFC 9449, section 9.
func (p *Prover) LearnFromResource(target *url.URL, header http.Header) bool {
	return p.learn(nonceKey{netx.HostPort(target), true}, header)
}

// LearnFromServer is LearnFromResource for the response of an authorization server.
//
// Spec: RFC 9449, sections 8 and 8.2.
func (p *Prover) LearnFromServer(target *url.URL, header http.Header) bool {
	return p.learn(nonceKey{netx.HostPort(target), false}, header)
}

func (p *Prover) learn(key nonceKey, header http.Header) bool {
	values := header.Values(HeaderNonce)
	if len(values) != 1 || !isNonce(values[0]) {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, known := p.nonces[key]; !known && len(p.nonces) >= maxNonces {
		clear(p.nonces) // a server whose nonce is lost sends it again
	}
	p.nonces[key] = values[0]
	return true
}

// CheckServer returns an error if the algorithms of an authorization server, the
// dpop_signing_alg_values_supported of its metadata, lack that of the key. It is called before the
// user logs in and before secrets are sent. p may be nil.
//
// Spec: RFC 9449, section 5.1.
func (p *Prover) CheckServer(algorithms []string) error {
	switch {
	case p == nil, p.acceptsBearer:
		return nil
	case len(algorithms) == 0:
		return errors.New("oauth: the authorization server does not support DPoP, which the configuration requires")
	case !slices.Contains(algorithms, p.algorithm):
		return fmt.Errorf("oauth: the authorization server does not accept DPoP proofs signed with %s: "+
			"configure a key of another algorithm", p.algorithm)
	}
	return nil
}

// CheckTokenType returns an error if a token is not bound to the key and must be.
//
// Spec: RFC 9449, section 5.
func (p *Prover) CheckTokenType(tokenType string) error {
	if strings.EqualFold(tokenType, oauthwire.DPoP) ||
		p.acceptsBearer && strings.EqualFold(tokenType, oauthwire.Bearer) {
		return nil
	}
	return errors.New("oauth: the authorization server issued a token that is not bound to the DPoP key")
}

// proofTarget returns the htu claim for a URL: without query and fragment, and with a path.
func proofTarget(u *url.URL) string {
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: cmp.Or(u.Path, "/"), RawPath: u.RawPath}).String()
}

// Header carries a proof, HeaderNonce the nonce for the next proof.
const Header, HeaderNonce = "DPoP", "DPoP-Nonce"

const typeProof = "dpop+jwt"

// maxNonce limits a nonce, in bytes: it goes into a header with every request.
const maxNonce = 1 << 10

// tokenHash returns the ath claim for an access token.
func tokenHash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// isNonce reports whether text follows the syntax of a nonce and may be sent in a header. Spec: RFC
// 9449, section 8.1.
func isNonce(text string) bool { return len(text) <= maxNonce && oauthwire.IsNQChars(text) }
