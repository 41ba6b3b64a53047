package vault

import (
	"bytes"
	"crypto/cipher"
	"fmt"

	"github.com/patchbay-mcp/patchbay/internal/seal"
)

// magic is the first line of every encrypted file.
const magic = "patchbay sealed 1\n"

const (
	// keySize is the key size of AES-256, in bytes.
	keySize = seal.MinSecret
	// sealOverhead is the size of magic, nonce and tag, in bytes.
	sealOverhead = len(magic) + 12 + 16
)

// A sealer encrypts values. The key of a value is authenticated, so that files cannot be swapped.
type sealer struct {
	aead  cipher.AEAD
	vault string // id of the vault
}

func openSealer(vault string, key []byte) (*sealer, error) {
	aead, err := seal.NewAEAD(key)
	return &sealer{aead, vault}, err
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
