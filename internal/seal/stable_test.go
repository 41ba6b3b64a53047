package seal_test

import (
	"bytes"
	"testing"

	"github.com/patchbay-mcp/patchbay/internal/seal"
)

// Equal values have equal texts in all processes that share a key, and others have not.
func TestStableTextIsEqualForEqualValues(t *testing.T) {
	secret := bytes.Repeat([]byte{7}, seal.MinSecret)
	ring := func(purpose string) *seal.KeyRing {
		r, err := seal.NewKeyRing(purpose, seal.Key{Secret: secret})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	text := ring("a").SealTextStable([]byte("one"), "ada")
	if again := ring("a").SealTextStable([]byte("one"), "ada"); again != text {
		t.Errorf("got %q, want %q", again, text)
	}
	for name, other := range map[string]string{
		"value":   ring("a").SealTextStable([]byte("two"), "ada"),
		"bound":   ring("a").SealTextStable([]byte("one"), "bob"),
		"purpose": ring("b").SealTextStable([]byte("one"), "ada"),
	} {
		if other == text {
			t.Errorf("another %s has the same text", name)
		}
	}
	plain, first, err := ring("a").OpenText(text, "ada")
	if err != nil || string(plain) != "one" || !first {
		t.Errorf("open: got %q, %v, %v", plain, first, err)
	}
	if _, _, err := ring("a").OpenText(text, "bob"); err == nil {
		t.Error("opened with another bound string")
	}
	for i := range len(text) {
		changed := []byte(text)
		changed[i] ^= 1
		if _, _, err := ring("a").OpenText(string(changed), "ada"); err == nil {
			t.Fatalf("opened with byte %d changed", i)
		}
	}
}
