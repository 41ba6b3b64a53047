// Package seal encrypts and authenticates short values that leave the process and come back:
// request state and cursors that a client carries, secrets in a store.
//
// A [KeyRing] seals with AES-256-GCM. It never uses a configured key directly: each process derives
// a subkey of its own with HKDF-SHA256 from the key and a random salt, which the sealed form
// carries. GCM with random 96-bit nonces is safe for 2^32 messages per key, so the limit holds for
// a process and not for all processes that share a key. A process that comes near the limit
// derives another subkey.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

const (
	// MinSecret is the minimum length of a secret in bytes: the key size of AES-256.
	MinSecret = 32
	// MaxID is the maximum length of a key ID in bytes. It fits the length byte of the sealed form.
	MaxID = 255

	format    = 1 // first byte of the sealed form, authenticated
	saltLen   = 8
	autoIDLen = 4 // length of an ID that is derived from its secret

	// maxSeals is the number of values that a subkey seals: half of the number that random nonces
	// allow.
	maxSeals = 1 << 31
)

// ErrInvalid reports that a value is malformed, was modified, or was sealed for another use. It
// does not say which.
var ErrInvalid = errors.New("seal: the value is malformed, was modified, or was sealed for another use")

// An UnknownKeyError reports that a value was sealed with a key that is not in the key ring.
type UnknownKeyError struct {
	ID string // the key ID that the value names; not authenticated
}

// Error returns a message with the ID of the key.
func (e *UnknownKeyError) Error() string { return fmt.Sprintf("seal: unknown key %.64q", e.ID) }

// A Key is a named secret.
type Key struct {
	// ID identifies the key in sealed values, unencrypted. If it is empty, it is derived from
	// Secret. Keys of a ring may share an ID: then Open tries each of them.
	ID string
	// Secret must contain at least [MinSecret] random bytes. It may be used elsewhere too.
	Secret []byte
}

// A KeyRing seals with its first key and opens with all of its keys. It is safe for concurrent use.
type KeyRing struct {
	purpose string
	keys    atomic.Pointer[[]*key]
}

// NewKeyRing returns a key ring. The purpose separates its subkeys from the subkeys that other key
// rings derive from the same secrets. Without keys, it uses a random key: then only this key ring
// opens its values.
func NewKeyRing(purpose string, keys ...Key) (*KeyRing, error) {
	r := &KeyRing{purpose: purpose}
	if len(keys) == 0 {
		keys = []Key{randomKey()}
	}
	return r, r.Replace(keys...)
}

func randomKey() Key {
	random := make([]byte, autoIDLen+MinSecret)
	_, _ = rand.Read(random) // never fails
	return Key{ID: string(random[:autoIDLen]), Secret: random[autoIDLen:]}
}

// Replace replaces the keys. Values sealed with a key that is no longer in the ring can no longer
// be opened. Calls of Seal and Open that run at the same time use either the old keys or the new
// keys. On an error the keys stay as they were.
func (r *KeyRing) Replace(keys ...Key) error {
	if len(keys) == 0 {
		return errors.New("seal: no keys")
	}
	ring := make([]*key, len(keys))
	for i, k := range keys {
		if len(k.Secret) < MinSecret || len(k.ID) > MaxID {
			return fmt.Errorf("seal: key %d: secret of %d bytes and ID of %d bytes, want at least %d and at most %d",
				i+1, len(k.Secret), len(k.ID), MinSecret, MaxID)
		}
		id, err := r.keyID(k)
		if err != nil {
			return err
		}
		ring[i] = &key{id: id, purpose: r.purpose, secret: string(k.Secret)}
	}
	r.keys.Store(&ring)
	return nil
}

func (r *KeyRing) keyID(k Key) (string, error) {
	if k.ID != "" {
		return k.ID, nil
	}
	id, err := hkdf.Key(sha256.New, k.Secret, nil, r.purpose+" key id", autoIDLen)
	return string(id), err
}

// Seal returns the sealed form of plain. [KeyRing.Open] needs the same bound strings to open it.
//
// The form is: format (1 byte), length of the key ID (1 byte), key ID, salt (8 bytes), nonce,
// ciphertext, tag. The bytes before the nonce are authenticated.
func (r *KeyRing) Seal(plain []byte, bound ...string) []byte {
	k := (*r.keys.Load())[0]
	s := k.subkeyForSeal()
	header := make([]byte, 0, 2+len(k.id)+saltLen+len(plain)+s.aead.Overhead())
	header = append(header, format, byte(len(k.id)))
	header = append(header, k.id...)
	header = append(header, s.salt[:]...)
	return s.aead.Seal(header, nil, plain, associatedData(header, bound))
}

// Open returns the value that [KeyRing.Seal] was given with the same bound strings. It reports
// whether the key that sealed it is the first of the ring; if not, the caller may want to seal the
// value again. The error is [ErrInvalid] or an [*UnknownKeyError].
func (r *KeyRing) Open(sealed []byte, bound ...string) (plain []byte, isFirst bool, err error) {
	if len(sealed) < 2 || sealed[0] != format {
		return nil, false, ErrInvalid
	}
	idEnd := 2 + int(sealed[1])
	if len(sealed) < idEnd+saltLen {
		return nil, false, ErrInvalid
	}
	id, header := sealed[2:idEnd], sealed[:idEnd+saltLen]
	err = &UnknownKeyError{ID: string(id)}
	for i, k := range *r.keys.Load() {
		if k.id != string(id) {
			continue
		}
		aead := k.aeadForOpen([saltLen]byte(header[idEnd:]))
		if plain, err = aead.Open(nil, nil, sealed[len(header):], associatedData(header, bound)); err == nil {
			return plain, i == 0, nil
		}
		err = ErrInvalid
	}
	return nil, false, err
}

// SealText is Seal for a value that travels as text: it returns the sealed form in base64url
// without padding.
func (r *KeyRing) SealText(plain []byte, bound ...string) string {
	return base64.RawURLEncoding.EncodeToString(r.Seal(plain, bound...))
}

// OpenText opens the text that [KeyRing.SealText] returned. Each sealed value has a single text
// that OpenText accepts.
func (r *KeyRing) OpenText(text string, bound ...string) (plain []byte, isFirst bool, err error) {
	// The decoder skips line breaks, so the length is compared as well.
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || base64.RawURLEncoding.EncodedLen(len(sealed)) != len(text) {
		return nil, false, ErrInvalid
	}
	return r.Open(sealed, bound...)
}

// associatedData returns the header and the bound strings in a form that is different for different
// lists of strings.
func associatedData(header []byte, bound []string) []byte {
	data := header[:len(header):len(header)]
	for _, s := range bound {
		data = binary.AppendUvarint(data, uint64(len(s)))
		data = append(data, s...)
	}
	return data
}

// A key is a secret of a ring and the subkey that this process seals with.
type key struct {
	id, purpose, secret string

	current atomic.Pointer[subkey] // nil until the first Seal: most key rings never seal
	mu      sync.Mutex             // held while current is replaced
}

// A subkey is derived from a secret and a salt.
type subkey struct {
	salt  [saltLen]byte
	aead  cipher.AEAD
	seals atomic.Uint64 // number of values sealed
}

func (k *key) subkeyForSeal() *subkey {
	if s := k.current.Load(); s != nil && s.seals.Add(1) <= maxSeals {
		return s
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if s := k.current.Load(); s != nil && s.seals.Add(1) <= maxSeals {
		return s // another goroutine just replaced it
	}
	s := &subkey{}
	_, _ = rand.Read(s.salt[:]) // never fails
	s.aead = k.derive(s.salt)
	s.seals.Store(1)
	k.current.Store(s)
	return s
}

func (k *key) aeadForOpen(salt [saltLen]byte) cipher.AEAD {
	if s := k.current.Load(); s != nil && s.salt == salt {
		return s.aead
	}
	return k.derive(salt)
}

func (k *key) derive(salt [saltLen]byte) cipher.AEAD {
	derived, err := hkdf.Key(sha256.New, []byte(k.secret), salt[:], k.purpose, MinSecret)
	if err != nil {
		panic("seal: " + err.Error()) // only a length that HKDF cannot produce is an error
	}
	aead, err := NewAEAD(derived)
	if err != nil {
		panic("seal: " + err.Error()) // the length is right
	}
	return aead
}

// NewAEAD returns AES-GCM with random nonces for a key of 32 bytes. It is for formats with a
// key of their own; anything else uses a [KeyRing].
func NewAEAD(key []byte) (cipher.AEAD, error) {
	if len(key) != MinSecret {
		return nil, fmt.Errorf("seal: a key has %d bytes, want %d", len(key), MinSecret)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}
