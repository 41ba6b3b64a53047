package oauth

// ProofOptions configures how a resource verifies DPoP proofs, which come with access tokens that
// are bound to a key. The zero value is right for most servers.
//
// Spec: RFC 9449, sections 4.3 and 7 to 9; extension io.modelcontextprotocol/auth/dpop.
type ProofOptions struct {
	// Required refuses tokens that are not bound to a key. Default: they are accepted as bearer
	// tokens. A token that is bound to a key is never accepted without a proof.
	Required bool
	// Algorithms are those that proofs may be signed with. Default: ES256, ES384, ES512, EdDSA,
	// PS256, PS384, PS512, RS256, RS384 and RS512. Other values are an error.
	Algorithms []string
	// Nonces requires in every proof a nonce that the server issued, so that no proof can be made
	// in advance. A client needs one more request whenever it has no current nonce; a nonce is
	// accepted for 5 to 10 minutes.
	Nonces bool
	// NonceKey is the secret, of at least 32 bytes, that nonces are derived from. All processes
	// that serve a resource need the same one. Default: a random one.
	NonceKey []byte
	// MaxProofs bounds the proofs of the last three minutes that are remembered to detect replay,
	// up to twice as many, and at most half of them for one key; each takes about 40 bytes. Further
	// requests are refused with status 503. Default: 1,048,576.
	MaxProofs int
}
