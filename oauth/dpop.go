package oauth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
)

const (
	// headerDPoP carries a proof, headerDPoPNonce what the next proof is to hold.
	headerDPoP, headerDPoPNonce = "DPoP", "DPoP-Nonce"
	// schemeDPoP is the authorization scheme and the token type of tokens that are bound to a key.
	schemeDPoP = "DPoP"
	// typeProof is the typ of a proof.
	typeProof = "dpop+jwt"
	// codeUseNonce is the error of a server that wants a nonce in the proof.
	codeUseNonce = "use_dpop_nonce"
	// maxNonce bounds a nonce of a server, in bytes: it goes into a header with every request.
	maxNonce = 1 << 10
	// maxNonces bounds how many servers' nonces are kept: a Transport talks to one resource and seldom to more than two
	// authorization servers.
	maxNonces = 64
	// jtiSize is the length of the random identifier of a proof or an assertion, in bytes; 128 bits do not collide.
	jtiSize = 16
)

// DPoPOptions configures tokens that are bound to a key: who steals one cannot use it. The zero value is right for
// programs that need not keep tokens longer than they run.
//
// Spec: RFC 9449; extension io.modelcontextprotocol/auth/dpop.
type DPoPOptions struct {
	// Key signs the proofs: an *ecdsa.PrivateKey, an ed25519.PrivateKey, an *rsa.PrivateKey of at least 2048 bits, or a
	// key in hardware with such a public key. It is called with every request, on several goroutines at once. Tokens that
	// are stored can be used by another process only if that has the same key. Default: a new key on P-256.
	Key crypto.Signer
	// InsecureAllowBearer goes on with a token that is bound to no key if the authorization server gives no other.
	// Default: that is an error.
	InsecureAllowBearer bool
}

// A prover shows that it holds a key. It is safe for concurrent use.
type prover struct {
	signer     jose.Signer
	algorithm  string
	thumbprint string
	bearerToo  bool
	now        func() time.Time

	mu     sync.Mutex // guards the field below
	nonces map[nonceSpace]string
}

// A nonceSpace is who made a nonce. An authorization server and a resource at the same origin may be two.
type nonceSpace struct {
	origin   string
	resource bool
}

// newProver makes a prover. opts may be nil.
func newProver(opts *DPoPOptions) (*prover, error) {
	var o DPoPOptions
	if opts != nil {
		o = *opts
	}
	if o.Key == nil {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, fmt.Errorf("oauth: make a DPoP key: %w", err)
		}
		o.Key = key
	}
	algorithm, err := algorithmOf(o.Key.Public())
	if err != nil {
		return nil, fmt.Errorf("oauth: DPoPOptions.Key: %w", err)
	}
	public := jose.JSONWebKey{Key: o.Key.Public()}
	sum, err := public.Thumbprint(crypto.SHA256)
	if err != nil {
		return nil, fmt.Errorf("oauth: DPoPOptions.Key: %w", err)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: signingKey(o.Key)},
		(&jose.SignerOptions{EmbedJWK: true}).WithType(typeProof))
	if err != nil {
		return nil, fmt.Errorf("oauth: DPoPOptions.Key: %w", err)
	}
	return &prover{
		signer:     signer,
		algorithm:  string(algorithm),
		thumbprint: base64.RawURLEncoding.EncodeToString(sum),
		bearerToo:  o.InsecureAllowBearer,
		now:        time.Now,
		nonces:     map[nonceSpace]string{},
	}, nil
}

// A proofClaims is what a proof says.
//
// Spec: RFC 9449, section 4.2.
type proofClaims struct {
	ID       string `json:"jti"`
	Method   string `json:"htm"`
	Target   string `json:"htu"`
	IssuedAt int64  `json:"iat"`
	// TokenHash is ath: of the access token that the request carries.
	TokenHash string `json:"ath,omitempty"`
	Nonce     string `json:"nonce,omitempty"`
}

// prove returns a proof for one request. token is the access token that goes with it, empty at an authorization server.
func (p *prover) prove(method string, target *url.URL, token string) (string, error) {
	claims := proofClaims{
		ID:       newJTI(),
		Method:   method,
		Target:   proofTarget(target),
		IssuedAt: p.now().Unix(),
		Nonce:    p.nonce(target, token != ""),
	}
	if token != "" {
		claims.TokenHash = accessTokenHash(token)
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		return "", fmt.Errorf("oauth: make a DPoP proof: %w", err)
	}
	signed, err := p.signer.Sign(payload)
	if err != nil {
		return "", fmt.Errorf("oauth: sign a DPoP proof: %w", err)
	}
	proof, err := signed.CompactSerialize()
	if err != nil {
		return "", fmt.Errorf("oauth: make a DPoP proof: %w", err)
	}
	return proof, nil
}

// authorize puts a token that is bound to the key, and a proof, on a request to a resource.
func (p *prover) authorize(req *http.Request, token string) error {
	proof, err := p.prove(req.Method, req.URL, token)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", schemeDPoP+" "+token)
	req.Header.Set(headerDPoP, proof)
	return nil
}

func (p *prover) nonce(target *url.URL, resource bool) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.nonces[nonceSpace{nonceOrigin(target), resource}]
}

// learn keeps the nonce of a response, if it has one, for the next proof. It reports whether there was one.
//
// Spec: RFC 9449, sections 8 and 8.2.
func (p *prover) learn(target *url.URL, resource bool, header http.Header) bool {
	values := header.Values(headerDPoPNonce)
	if len(values) != 1 || !isNonce(values[0]) {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	space := nonceSpace{nonceOrigin(target), resource}
	if _, known := p.nonces[space]; !known && len(p.nonces) >= maxNonces {
		clear(p.nonces) // a server whose nonce is forgotten sends it again
	}
	p.nonces[space] = values[0]
	return true
}

// resourceWantsNonce keeps the nonce of a resource's response, and reports whether the request was refused for the lack of
// it alone: then it is sent again, once.
func (p *prover) resourceWantsNonce(target *url.URL, status int, header http.Header) bool {
	if !p.learn(target, true, header) || status != http.StatusUnauthorized {
		return false
	}
	return slices.ContainsFunc(ParseChallenges(header), func(c Challenge) bool {
		return c.Is(schemeDPoP) && c.Params["error"] == codeUseNonce
	})
}

// serverWantsNonce is resourceWantsNonce for the token endpoint, whose error has been read from the body.
func (p *prover) serverWantsNonce(target *url.URL, code string, header http.Header) bool {
	return p.learn(target, false, header) && code == codeUseNonce
}

// offered reports, as an error, that an authorization server does not say that it knows proofs like ours: then nobody
// need log in, and nothing secret need be sent, to learn it. p may be nil.
//
// Spec: RFC 9449, section 5.1.
func (p *prover) offered(server *ServerMetadata) error {
	switch {
	case p == nil, p.bearerToo:
		return nil
	case len(server.DPoPAlgorithms) == 0:
		return errors.New("oauth: the authorization server does not bind tokens to keys (DPoP), which is demanded")
	case !slices.Contains(server.DPoPAlgorithms, p.algorithm):
		return fmt.Errorf("oauth: the authorization server takes no DPoP proofs signed with %s", p.algorithm)
	}
	return nil
}

// checkType reports, as an error, that a token is not of the kind that was demanded.
//
// Spec: RFC 9449, section 5.
func (p *prover) checkType(tokenType string) error {
	if strings.EqualFold(tokenType, schemeDPoP) || p.bearerToo && strings.EqualFold(tokenType, "Bearer") {
		return nil
	}
	return errors.New("oauth: the authorization server gave a token that is not bound to our key, which is demanded")
}

// proofTarget returns the htu of a request to a URL: without query and fragment, and with a path.
func proofTarget(u *url.URL) string {
	t := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}
	if t.Path == "" {
		t.Path = "/" // what is sent
	}
	return t.String()
}

func nonceOrigin(u *url.URL) string {
	return strings.ToLower(u.Scheme) + "://" + strings.ToLower(u.Host)
}

// accessTokenHash returns the ath of an access token.
func accessTokenHash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// isNonce reports whether text has the syntax of a nonce and can stand in a header.
//
// Spec: RFC 9449, section 8.1.
func isNonce(text string) bool {
	if text == "" || len(text) > maxNonce {
		return false
	}
	for i := range len(text) {
		if c := text[i]; c < 0x21 || c > 0x7e || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// newJTI returns an identifier of a JWT that no other has.
func newJTI() string {
	id := make([]byte, jtiSize)
	_, _ = rand.Read(id) // it never fails
	return base64.RawURLEncoding.EncodeToString(id)
}
