package vault

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"fmt"
)

// magic is the first line of every encrypted file.
const magic = "patchbay sealed 1\n"

const (
	// keySize is the key size of AES-256, in bytes.
	keySize = 32
	// sealOverhead is the size of magic, nonce and tag, in bytes.
	sealOverhead = len(magic) + 12 + 16
)

// A sealer encrypts values. The key of a value is authenticated, so that files cannot be swapped.
type sealer struct {
	aead  cipher.AEAD
	vault string // id of the vault
}

func newSealer(vault string, key []byte) (*sealer, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, err
	}
	return &sealer{aead, vault}, nil
}

// additionalData returns the data that authenticates a key.
func (s *sealer) additionalData(key string) []byte { return []byte(magic + s.vault + "\n" + key) }

func (s *sealer) seal(key string, value []byte) []byte {
	return s.aead.Seal([]byte(magic), nil, value, s.additionalData(key))
}

func (s *sealer) open(key string, text []byte) ([]byte, error) {
	sealed, ours := bytes.CutPrefix(text, []byte(magic))
	if !ours {
		return nil, fmt.Errorf("%w: not an encrypted file", ErrDamaged)
	}
	value, err := s.aead.Open([]byte{}, nil, sealed, s.additionalData(key))
	if err != nil {
		return nil, fmt.Errorf("%w: it was changed, or written by another vault", ErrDamaged)
	}
	return value, nil
}
