package vault

import (
	"bytes"
	"crypto/cipher"
	"fmt"

	"github.com/patchbay-mcp/patchbay/internal/seal"
)

// magic begins every sealed file, so that a foreign one is told from one that was changed.
const magic = "patchbay sealed 1\n"

const (
	keySize = seal.MinSecret
	// sealOverhead is what sealing adds, in bytes: the first line, the nonce, the tag.
	sealOverhead = len(magic) + 12 + 16
)

// A sealer seals values under the names that they have, so that one file cannot pass for another.
type sealer struct {
	aead  cipher.AEAD
	vault string // its id
}

func openSealer(vault string, key []byte) (*sealer, error) {
	aead, err := seal.NewAEAD(key)
	return &sealer{aead, vault}, err
}

// name is what a value is bound to.
func (s *sealer) name(key string) []byte { return []byte(magic + s.vault + "\n" + key) }

func (s *sealer) seal(key string, value []byte) []byte {
	return s.aead.Seal([]byte(magic), nil, value, s.name(key))
}

func (s *sealer) open(key string, text []byte) ([]byte, error) {
	sealed, ours := bytes.CutPrefix(text, []byte(magic))
	if !ours {
		return nil, fmt.Errorf("%w: it is no sealed file", ErrDamaged)
	}
	value, err := s.aead.Open([]byte{}, nil, sealed, s.name(key))
	if err != nil {
		return nil, fmt.Errorf("%w: it was changed, or sealed by another vault", ErrDamaged)
	}
	return value, nil
}
