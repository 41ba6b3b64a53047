package dpop

import (
	"cmp"
	"crypto"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/jwskey"
	"github.com/patchbay-mcp/patchbay/internal/netx"
	"github.com/patchbay-mcp/patchbay/internal/oauthwire"
)

const (
	// proofLifetime is how old a proof may be: the time to send a request.
	proofLifetime = time.Minute
	// clockSkew is how much a client's clock may differ.
	clockSkew = time.Minute
	// ProofValidity is how long a proof is valid by at least a single clock.
	ProofValidity = proofLifetime + 2*clockSkew
	// maxProof limits a proof, in bytes: with an RSA key of 4096 bits it contains about two
	// thousand.
	maxProof = 8 << 10
	// maxJWTID limits the jti of a proof, in bytes. RFC 9449 suggests 96 random bits.
	maxJWTID = 1 << 10
	// defaultMaxProofs is about 5800 requests a second.
	defaultMaxProofs = 1 << 20
)

// VerifierOptions configures a [Verifier]. The fields correspond to oauth.ProofOptions, which
// documents them.
type VerifierOptions struct {
	Required   bool
	Algorithms []string
	Nonces     bool
	NonceKeys  *NonceKeys
	MaxProofs  int
}

// ErrTooManyProofs is the error of a valid proof when the cache of used proofs is full.
var ErrTooManyProofs = errors.New("oauth: too many DPoP proofs in a short time")

// A ProofError is a proof that is refused, with a reason for the client.
type ProofError struct {
	Code   string // invalid_dpop_proof or use_dpop_nonce
	Reason string
}

// Error returns the reason.
func (e *ProofError) Error() string { return "oauth: DPoP proof: " + e.Reason }

func invalidProof(format string, args ...any) error {
	return &ProofError{oauthwire.InvalidDPoPProof, fmt.Sprintf(format, args...)}
}

// A Verifier verifies the proofs of requests to a resource. It is safe for concurrent use.
type Verifier struct {
	required   bool
	algorithms []jose.SignatureAlgorithm
	nonceKeys  *NonceKeys // nil if nonces are not required
	now        func() time.Time
	used       replayCache
}

// NewVerifier returns a Verifier. opts may be nil.
func NewVerifier(opts *VerifierOptions) (*Verifier, error) {
	o := *cmp.Or(opts, new(VerifierOptions))
	v := &Verifier{required: o.Required, now: time.Now}
	v.used.max = cmp.Or(o.MaxProofs, defaultMaxProofs)
	if v.used.max < 0 {
		return nil, fmt.Errorf("oauth: invalid ProofOptions.MaxProofs %d: must not be negative", o.MaxProofs)
	}
	supported := jwskey.Asymmetric()
	for _, a := range o.Algorithms {
		if !slices.Contains(supported, jose.SignatureAlgorithm(a)) {
			return nil, fmt.Errorf("oauth: invalid ProofOptions.Algorithms: %q must be one of %v", a, supported)
		}
		v.algorithms = append(v.algorithms, jose.SignatureAlgorithm(a))
	}
	if len(o.Algorithms) == 0 {
		v.algorithms = supported
	}
	switch {
	case o.Nonces:
		v.nonceKeys = cmp.Or(o.NonceKeys, new(NonceKeys))
		v.nonceKeys.init()
	case o.NonceKeys != nil:
		return nil, errors.New("oauth: ProofOptions.NonceKeys is set and ProofOptions.Nonces is not")
	}
	return v, nil
}

// Required reports whether tokens that are not bound to a key are refused. v may be nil.
func (v *Verifier) Required() bool { return v != nil && v.required }

// Algorithms returns the names of the algorithms that proofs may be signed with.
func (v *Verifier) Algorithms() []string {
	names := make([]string, len(v.algorithms))
	for i, a := range v.algorithms {
		names[i] = string(a)
	}
	return names
}

// Verify verifies the proof of a request that carries a token. target is the URL of the request as
// the client knows it; thumbprint is the cnf.jkt of the token. The error of an invalid proof is a
// *ProofError. A nonce that is not empty must be sent in the DPoP-Nonce header of the response,
// with an error or without.
//
// Spec: RFC 9449, section 4.3.
func (v *Verifier) Verify(r *http.Request, target *url.URL, token, thumbprint string) (nonce string, err error) {
	_, nonce, err = v.verify(r, target, tokenHash(token), func(key string) bool {
		return thumbprint != "" && key == thumbprint
	})
	return nonce, err
}

// A Proof identifies a proof. The zero value is no proof.
type Proof struct {
	Key string // the thumbprint of its key
	ID  string // the jti, unique for the key
}

// VerifyKey verifies the proof of a request to an authorization server, which carries no access
// token. The Verifier must not require nonces. Other processes do not know that the proof was used.
//
// Spec: RFC 9449, section 5.
func (v *Verifier) VerifyKey(r *http.Request, target *url.URL) (Proof, error) {
	proof, _, err := v.verify(r, target, "", func(string) bool { return true })
	return proof, err
}

// verify verifies a proof whose ath must be hash.
func (v *Verifier) verify(r *http.Request, target *url.URL, hash string, accepts func(key string) bool) (p Proof,
	nonce string, err error) {
	now := v.now()
	values := r.Header.Values(Header)
	if len(values) != 1 {
		return p, v.nonceAt(now), invalidProof("%d DPoP headers: must be exactly one", len(values))
	}
	claims, key, err := v.open(values[0])
	if err != nil {
		return p, v.nonceAt(now), err
	}
	switch {
	case claims.Method != r.Method:
		err = invalidProof("htm must be the method of the request")
	case !sameTarget(claims.Target, target):
		err = invalidProof("htu must be the URL of the request")
	case claims.TokenHash != hash:
		err = invalidProof("ath must be the hash of the access token")
	case !accepts(key):
		err = invalidProof("the access token is not bound to the key of the proof")
	default:
		err = checkAge(claims.IssuedAt, now)
	}
	if err != nil {
		return p, v.nonceAt(now), err
	}
	if nonce, err = v.checkNonce(claims.Nonce, now); err != nil {
		return p, nonce, err
	}
	// This is last, so that only the holders of a token fill the cache.
	return Proof{key, claims.ID}, nonce, v.used.add(key, claims.ID, now)
}

// open verifies the signature of a proof with the key in its header. It returns the claims and the
// key's thumbprint.
func (v *Verifier) open(proof string) (claims proofClaims, thumbprint string, err error) {
	if len(proof) > maxProof {
		return claims, "", invalidProof("must have at most %d bytes", maxProof)
	}
	signed, err := jose.ParseSignedCompact(proof, v.algorithms)
	if err != nil {
		return claims, "", invalidProof("must be a JWT signed with one of %v", v.algorithms)
	}
	header := signed.Signatures[0].Protected
	if header.ExtraHeaders[jose.HeaderType] != typeProof {
		return claims, "", invalidProof("typ must be %s", typeProof)
	}
	jwk := header.JSONWebKey
	if jwk == nil || !jwk.Valid() || !jwk.IsPublic() {
		return claims, "", invalidProof("jwk must be a public key")
	}
	if _, err := jwskey.Algorithms(jwk.Key); err != nil {
		return claims, "", invalidProof("jwk: %v", err)
	}
	payload, err := signed.Verify(jwk.Key)
	if err != nil {
		return claims, "", invalidProof("invalid signature")
	}
	const maxDepth = 4 // the claims of a proof are flat
	if jsonscan.Valid(payload, jsonscan.Limits{Depth: maxDepth}) != nil || json.Unmarshal(payload, &claims) != nil {
		return claims, "", invalidProof("malformed claims")
	}
	if claims.ID == "" || len(claims.ID) > maxJWTID {
		return claims, "", invalidProof("jti must have 1 to %d bytes", maxJWTID)
	}
	sum, err := jwk.Thumbprint(crypto.SHA256)
	if err != nil {
		return claims, "", invalidProof("jwk has no thumbprint")
	}
	return claims, base64.RawURLEncoding.EncodeToString(sum), nil
}

func checkAge(issuedAt float64, now time.Time) error {
	const farFuture = 1 << 40 // so that the conversion does not overflow
	if !(issuedAt > 0 && issuedAt < farFuture) {
		return invalidProof("iat must be the time at which the proof was made, in seconds")
	}
	whole, part := math.Modf(issuedAt)
	age := now.Sub(time.Unix(int64(whole), int64(part*1e9)))
	if age > proofLifetime+clockSkew || age < -clockSkew {
		return invalidProof("iat must be within %v of now: make a new proof, or set the clock", proofLifetime+clockSkew)
	}
	return nil
}

// sameTarget reports whether htu is the URL of a request without its query. The case of scheme and
// host and the default port are ignored.
func sameTarget(htu string, target *url.URL) bool {
	if strings.ContainsAny(htu, "?#") {
		return false
	}
	u, err := url.Parse(htu)
	return err == nil && u.User == nil && comparableTarget(u) == comparableTarget(target)
}

func comparableTarget(u *url.URL) string {
	return strings.ToLower(u.Scheme) + "://" + netx.HostPort(u) + cmp.Or(u.EscapedPath(), "/")
}

// A replayCache contains the proofs that were used, in two generations: when the current generation
// is ProofValidity old, it replaces the previous generation.
type replayCache struct {
	max int // proofs in a generation

	mu                sync.Mutex // guards the fields below
	began             time.Time  // of the current generation
	current, previous map[proofID]struct{}
	byKey             map[string]int // proofs of the current generation, by key
}

// A proofID is a digest of the key and the jti of a proof.
type proofID [sha256.Size / 2]byte

// add records a proof of a key. It returns a *ProofError if the proof was used before, and
// ErrTooManyProofs if the cache is full or the key uses half of it.
func (c *replayCache) add(key, jti string, now time.Time) error {
	sum := sha256.Sum256([]byte(key + "\x00" + jti)) // a thumbprint contains no NUL
	id := proofID(sum[:len(proofID{})])
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expire(now)
	_, inCurrent := c.current[id]
	_, inPrevious := c.previous[id]
	switch {
	case inCurrent || inPrevious:
		return invalidProof("the proof was used before: every request needs a new one")
	case len(c.current) >= c.max, c.byKey[key] >= (c.max+1)/2:
		return ErrTooManyProofs
	}
	c.current[id] = struct{}{}
	c.byKey[key]++
	return nil
}

// expire drops the proofs that are too old to be accepted again. The caller holds mu.
func (c *replayCache) expire(now time.Time) {
	age := now.Sub(c.began)
	if c.current != nil && age < ProofValidity {
		return
	}
	c.previous = c.current
	if age >= 2*ProofValidity {
		c.previous = nil
	}
	c.current, c.byKey, c.began = map[proofID]struct{}{}, map[string]int{}, now
}
