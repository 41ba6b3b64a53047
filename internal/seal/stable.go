package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
)

// nonceLen is the length of the nonce of AES-GCM.
const nonceLen = 12

// SealTextStable is [KeyRing.SealText] with equal results for equal values and bound strings, as
// long as the first key is the same. It is for identifiers that are compared. [KeyRing.OpenText]
// opens it.
//
// The nonce is a keyed hash of the value, and the salt is zero, so that all processes with the key
// share a subkey. It is safe for 2^32 different values per key.
func (r *KeyRing) SealTextStable(plain []byte, bound ...string) string {
	k := (*r.keys.Load())[0]
	header := append([]byte{format, byte(len(k.id))}, k.id...)
	header = append(header, make([]byte, saltLen)...)
	data := associatedData(header, bound)
	mac := hmac.New(sha256.New, k.stableKey(" nonce"))
	mac.Write(data)
	mac.Write(plain)
	nonce := mac.Sum(nil)[:nonceLen]
	block, err := aes.NewCipher(k.stableKey(""))
	if err != nil {
		panic("seal: " + err.Error()) // the length is right
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic("seal: " + err.Error()) // the block size of AES is the block size of GCM
	}
	sealed := aead.Seal(append(header, nonce...), nonce, plain, data)
	return base64.RawURLEncoding.EncodeToString(sealed)
}

// stableKey returns the subkey for the zero salt, or another subkey of the same secret.
func (k *key) stableKey(use string) []byte {
	derived, err := hkdf.Key(sha256.New, []byte(k.secret), make([]byte, saltLen), k.purpose+use, MinSecret)
	if err != nil {
		panic("seal: " + err.Error()) // only a length that HKDF cannot produce is an error
	}
	return derived
}
