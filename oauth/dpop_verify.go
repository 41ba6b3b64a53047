package oauth

import (
	"cmp"
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

const (
	// proofLife is how old a proof may be. It is made for one request, so this is the time to send that.
	proofLife = time.Minute
	// proofSkew is how much a client's clock may differ, as for tokens.
	proofSkew = time.Minute
	// proofSpan is how long one proof can be good, from the first clock that takes it to the last.
	proofSpan = proofLife + 2*proofSkew
	// nonceLife is how long a nonce is the current one; for as long again it is still taken.
	nonceLife = 5 * time.Minute
	// maxProof bounds a proof in bytes: with an RSA key of 4096 bits it has about two thousand.
	maxProof = 8 << 10
	// maxJTI bounds the identifier of a proof, in bytes. RFC 9449 suggests 96 random bits.
	maxJTI = 1 << 10
	// defaultMaxProofs is some 5800 requests a second.
	defaultMaxProofs = 1 << 20
	// minNonceKey is the least length of a secret that others cannot guess, in bytes.
	minNonceKey = 32
	// codeBadProof is the error of a proof that is not taken.
	codeBadProof = "invalid_dpop_proof"
)

// ProofOptions is how a resource judges the proofs that come with tokens which are bound to keys (DPoP). The zero value
// is right for most.
//
// Spec: RFC 9449, sections 4.3 and 7 to 9.
type ProofOptions struct {
	// Required refuses tokens that are bound to no key. Default: they are taken as bearer tokens. A token that is bound
	// to a key is never taken without a proof.
	Required bool
	// Algorithms are those that proofs may be signed with. Default: ES256, ES384, ES512, EdDSA, PS256, PS384, PS512,
	// RS256, RS384 and RS512. Others are a mistake.
	Algorithms []string
	// Nonces wants a nonce of ours in every proof, so that none can be made ahead of time. A client needs one more
	// request whenever it has none that is current; a nonce lasts 5 to 10 minutes.
	Nonces bool
	// NonceKey is the secret, of at least 32 bytes, that nonces are made with. All processes that serve a resource need
	// the same one. Default: a random one.
	NonceKey []byte
	// MaxProofs is how many proofs of the last three minutes are remembered, so that none is used twice, twice as many at
	// the most, and no more than half of them for one key; each takes about 40 bytes. A request beyond that is refused as
	// one that the server has no room for. Default: 1,048,576.
	MaxProofs int
}

// proofAlgorithms are the asymmetric ones. With a symmetric one, or none, a proof would show nothing.
var proofAlgorithms = [...]string{"ES256", "ES384", "ES512", "EdDSA", "PS256", "PS384", "PS512", "RS256", "RS384", "RS512"}

// errManyProofs is why a proof that may be good is not taken.
var errManyProofs = errors.New("oauth: too many DPoP proofs in a short time")

// A proofError is a proof that is not taken, for a reason that the client may know.
type proofError struct {
	code   string // invalid_dpop_proof or use_dpop_nonce
	reason string
}

func (e *proofError) Error() string { return "oauth: DPoP proof: " + e.reason }

// A proofVerifier judges proofs. It is safe for concurrent use.
type proofVerifier struct {
	required   bool
	algorithms []jose.SignatureAlgorithm
	nonceKey   []byte // nil if no nonces are wanted
	now        func() time.Time
	used       proofMemory
}

// newProofVerifier makes a verifier. opts may be nil.
func newProofVerifier(opts *ProofOptions) (*proofVerifier, error) {
	var o ProofOptions
	if opts != nil {
		o = *opts
	}
	v := &proofVerifier{required: o.Required, now: time.Now}
	v.used.most = cmp.Or(o.MaxProofs, defaultMaxProofs)
	if v.used.most < 0 {
		return nil, fmt.Errorf("oauth: ProofOptions.MaxProofs is %d", o.MaxProofs)
	}
	known := map[string]bool{}
	for _, a := range proofAlgorithms {
		known[a] = true
	}
	if len(o.Algorithms) == 0 {
		o.Algorithms = proofAlgorithms[:]
	}
	for _, a := range o.Algorithms {
		if !known[a] {
			return nil, fmt.Errorf("oauth: ProofOptions.Algorithms: %q is not an algorithm for proofs", a)
		}
		v.algorithms = append(v.algorithms, jose.SignatureAlgorithm(a))
	}
	switch {
	case !o.Nonces && o.NonceKey != nil:
		return nil, errors.New("oauth: ProofOptions.NonceKey is set, and Nonces is not")
	case o.NonceKey != nil && len(o.NonceKey) < minNonceKey:
		return nil, fmt.Errorf("oauth: ProofOptions.NonceKey has less than %d bytes", minNonceKey)
	case o.NonceKey != nil:
		v.nonceKey = o.NonceKey
	case o.Nonces:
		v.nonceKey = make([]byte, minNonceKey)
		_, _ = rand.Read(v.nonceKey) // it never fails
	}
	return v, nil
}

// verifyProof judges the proof of a request that shows a token. target is the URL that the client used, as it is known
// from outside; thumbprint is the cnf.jkt of the token. An error is a *proofError if the request is at fault. Whatever
// comes of it, nonce is for the DPoP-Nonce header of the response, unless it is empty.
//
// Spec: RFC 9449, section 4.3.
func (v *proofVerifier) verifyProof(r *http.Request, target *url.URL, token, thumbprint string) (nonce string, err error) {
	now := v.now()
	values := r.Header.Values(headerDPoP)
	if len(values) != 1 {
		return v.currentNonce(now), badProof("want one in the DPoP header, got %d", len(values))
	}
	claims, key, err := v.open(values[0])
	if err != nil {
		return v.currentNonce(now), err
	}
	switch {
	case claims.Method != r.Method:
		err = badProof("it is for another method")
	case !sameTarget(claims.Target, target):
		err = badProof("it is for another URL")
	case claims.TokenHash != accessTokenHash(token):
		err = badProof("it is for another token")
	case thumbprint == "" || key != thumbprint:
		err = badProof("the token is not bound to its key")
	default:
		err = checkAge(claims.IssuedAt, now)
	}
	if err != nil {
		return v.currentNonce(now), err
	}
	nonce, err = v.checkNonce(claims.Nonce, now)
	if err != nil {
		return nonce, err
	}
	// This is the last, so that only proofs of those who hold a token take room.
	return nonce, v.used.add(key, claims.ID, now)
}

// openedClaims are those of a proof that came from outside.
type openedClaims struct {
	ID        string  `json:"jti"`
	Method    string  `json:"htm"`
	Target    string  `json:"htu"`
	IssuedAt  float64 `json:"iat"`
	TokenHash string  `json:"ath"`
	Nonce     string  `json:"nonce"`
}

// open checks what can be known of a proof by itself, and gives its claims and the thumbprint of the key that signed it.
func (v *proofVerifier) open(proof string) (claims openedClaims, key string, err error) {
	if len(proof) > maxProof {
		return claims, "", badProof("it is too long")
	}
	signed, err := jose.ParseSignedCompact(proof, v.algorithms)
	if err != nil {
		return claims, "", badProof("it is no JWT that is signed with an algorithm for proofs")
	}
	header := signed.Signatures[0].Protected
	if typ, _ := header.ExtraHeaders[jose.HeaderType].(string); typ != typeProof {
		return claims, "", badProof("its typ is not %s", typeProof)
	}
	jwk := header.JSONWebKey
	if jwk == nil || !jwk.Valid() || !jwk.IsPublic() {
		return claims, "", badProof("it holds no public key")
	}
	if public, ok := jwk.Key.(*rsa.PublicKey); ok && public.N.BitLen() < minRSABits {
		return claims, "", badProof("its key has less than %d bits", minRSABits)
	}
	payload, err := signed.Verify(jwk.Key)
	if err != nil {
		return claims, "", badProof("its signature is wrong")
	}
	// A proof is flat.
	if jsonscan.Valid(payload, jsonscan.Limits{Depth: 4}) != nil || json.Unmarshal(payload, &claims) != nil {
		return claims, "", badProof("its claims cannot be read")
	}
	if claims.ID == "" || len(claims.ID) > maxJTI {
		return claims, "", badProof("its jti is empty or too long")
	}
	sum, err := jwk.Thumbprint(crypto.SHA256)
	if err != nil {
		return claims, "", badProof("its key has no thumbprint")
	}
	return claims, base64.RawURLEncoding.EncodeToString(sum), nil
}

// checkAge judges iat. Times of no year that people live in are turned away before they are reckoned with.
func checkAge(issuedAt float64, now time.Time) error {
	const farFuture = 1 << 40
	if !(issuedAt > 0 && issuedAt < farFuture) {
		return badProof("it does not say when it was made")
	}
	whole, part := math.Modf(issuedAt)
	age := now.Sub(time.Unix(int64(whole), int64(part*1e9)))
	if age > proofLife+proofSkew || age < -proofSkew {
		return badProof("it was made too long ago, or the clocks differ")
	}
	return nil
}

// checkNonce judges the nonce of a proof, and gives the one that the client is to use from now on, empty if it knows it.
func (v *proofVerifier) checkNonce(got string, now time.Time) (next string, err error) {
	if v.nonceKey == nil {
		return "", nil
	}
	current := v.currentNonce(now)
	switch {
	case hmac.Equal([]byte(got), []byte(current)):
		return "", nil
	case hmac.Equal([]byte(got), []byte(v.nonceAt(now.Add(-nonceLife)))):
		return current, nil
	}
	return current, &proofError{codeUseNonce, "it holds no nonce that is current"}
}

// currentNonce returns the nonce of this time, empty if none is wanted.
func (v *proofVerifier) currentNonce(now time.Time) string {
	if v.nonceKey == nil {
		return ""
	}
	return v.nonceAt(now)
}

// nonceAt returns the nonce of a time, which all who know the key can tell without keeping anything.
func (v *proofVerifier) nonceAt(t time.Time) string {
	mac := hmac.New(sha256.New, v.nonceKey)
	mac.Write(binary.BigEndian.AppendUint64([]byte("dpop nonce "), uint64(t.Unix()/int64(nonceLife/time.Second))))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:jtiSize])
}

// sameTarget reports whether the htu of a proof is the URL of a request, whose query does not count. Scheme and host may
// be written in either case and the default port may be left out; the path is compared as it is.
func sameTarget(htu string, target *url.URL) bool {
	if strings.ContainsAny(htu, "?#") {
		return false
	}
	u, err := url.Parse(htu)
	return err == nil && u.User == nil && comparableTarget(u) == comparableTarget(target)
}

func comparableTarget(u *url.URL) string {
	scheme, host := strings.ToLower(u.Scheme), strings.ToLower(u.Host)
	switch scheme {
	case "https":
		host = strings.TrimSuffix(host, ":443")
	case "http":
		host = strings.TrimSuffix(host, ":80")
	}
	return scheme + "://" + host + cmp.Or(u.EscapedPath(), "/")
}

func badProof(format string, args ...any) error {
	return &proofError{codeBadProof, fmt.Sprintf(format, args...)}
}
