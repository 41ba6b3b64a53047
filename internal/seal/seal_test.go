package seal_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/patchbay-mcp/patchbay/internal/seal"
)

func testKey(id string) seal.Key {
	secret := sha256.Sum256([]byte("secret of " + id))
	return seal.Key{ID: id, Secret: secret[:]}
}

func newRing(t testing.TB, keys ...seal.Key) *seal.KeyRing {
	t.Helper()
	r, err := seal.NewKeyRing("test", keys...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestOpenReturnsWhatWasSealed(t *testing.T) {
	for name, r := range map[string]*seal.KeyRing{
		"random key":  newRing(t),
		"named key":   newRing(t, testKey("one")),
		"derived ID":  newRing(t, seal.Key{Secret: testKey("one").Secret}),
		"longest ID":  newRing(t, seal.Key{ID: strings.Repeat("k", seal.MaxID), Secret: testKey("one").Secret}),
		"longest key": newRing(t, seal.Key{ID: "long", Secret: bytes.Repeat([]byte{7}, 200)}),
	} {
		for _, plain := range []string{"", "x", strings.Repeat("long ", 10_000)} {
			sealed := r.Seal([]byte(plain), "state", "ann")
			if len(plain) > 1 && bytes.Contains(sealed, []byte(plain[:5])) {
				t.Errorf("%s: the sealed form contains the plain text", name)
			}
			got, first, err := r.Open(sealed, "state", "ann")
			if string(got) != plain || !first || err != nil {
				t.Errorf("%s: Open = %.20q, %t, %v; want %.20q", name, got, first, err, plain)
			}
			text := r.SealText([]byte(plain), "state")
			if got, _, err := r.OpenText(text, "state"); string(got) != plain || err != nil {
				t.Errorf("%s: OpenText = %.20q, %v; want %.20q", name, got, err, plain)
			}
		}
		if bytes.Equal(r.Seal([]byte("x")), r.Seal([]byte("x"))) {
			t.Errorf("%s: two seals of the same value are equal", name)
		}
	}
}

func TestOpenNeedsTheSameBoundStrings(t *testing.T) {
	r := newRing(t, testKey("one"))
	sealed := r.Seal([]byte("secret"), "ab", "c")
	for _, bound := range [][]string{nil, {"ab"}, {"abc"}, {"a", "bc"}, {"ab", "c", ""}, {"", "ab", "c"}, {"ab", "d"},
		{"c", "ab"}} {
		if _, _, err := r.Open(sealed, bound...); !errors.Is(err, seal.ErrInvalid) {
			t.Errorf("Open with %q: %v, want ErrInvalid", bound, err)
		}
	}
}

func TestOpenRefusesModifiedValues(t *testing.T) {
	r := newRing(t, testKey("one"), testKey("two"))
	sealed := r.Seal([]byte("secret"), "use")
	for i := range sealed {
		for bit := range 8 {
			changed := bytes.Clone(sealed)
			changed[i] ^= 1 << bit
			if plain, _, err := r.Open(changed, "use"); err == nil {
				t.Errorf("bit %d of byte %d changed: Open = %q, want an error", bit, i, plain)
			}
		}
		if _, _, err := r.Open(sealed[:i], "use"); err == nil {
			t.Errorf("Open of the first %d bytes returned no error", i)
		}
	}
	if _, _, err := r.Open(append(sealed, 0), "use"); !errors.Is(err, seal.ErrInvalid) {
		t.Errorf("with a byte appended: %v, want ErrInvalid", err)
	}
}

func TestOpenTextAcceptsOneEncoding(t *testing.T) {
	r := newRing(t, testKey("one"))
	text := r.SealText([]byte("secrets"))
	for _, other := range []string{"", "!", text + "=", text + "\n", text[:10] + "\n" + text[10:], text + "A",
		text[:len(text)-1]} {
		if _, _, err := r.OpenText(other); !errors.Is(err, seal.ErrInvalid) {
			t.Errorf("OpenText(%q): %v, want ErrInvalid", other, err)
		}
	}
	// The unused bits of the last character must be zero.
	alphabet := "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	for _, c := range alphabet {
		other := text[:len(text)-1] + string(c)
		if _, _, err := r.OpenText(other); err == nil && other != text {
			t.Errorf("OpenText(%q), another encoding of %q, returned no error", other, text)
		}
	}
}

func TestOpenNeedsTheKeyAndPurposeOfSeal(t *testing.T) {
	one, two := newRing(t, testKey("one")), newRing(t, testKey("two"))
	sealed := one.Seal([]byte("secret"))
	var unknown *seal.UnknownKeyError
	if _, _, err := two.Open(sealed); !errors.As(err, &unknown) || unknown.ID != "one" {
		t.Errorf("Open without the key: %v, want an UnknownKeyError for %q", err, "one")
	}
	same := newRing(t, seal.Key{ID: "one", Secret: testKey("other").Secret})
	if _, _, err := same.Open(sealed); !errors.Is(err, seal.ErrInvalid) {
		t.Errorf("Open with another secret of the same ID: %v, want ErrInvalid", err)
	}
	purpose, err := seal.NewKeyRing("another test", testKey("one"))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := purpose.Open(sealed); !errors.Is(err, seal.ErrInvalid) {
		t.Errorf("Open for another purpose: %v, want ErrInvalid", err)
	}
	if _, _, err := newRing(t).Open(newRing(t).Seal(nil)); err == nil {
		t.Error("Open with another random key returned no error")
	}
}

// Two rings stand for two processes with the same key.
func TestRingsWithOneKeyDeriveDifferentSubkeys(t *testing.T) {
	one, two := newRing(t, testKey("one")), newRing(t, testKey("one"))
	sealed, other := one.Seal([]byte("secret")), two.Seal([]byte("secret"))
	salt := func(sealed []byte) []byte { return sealed[2+len("one"):][:8] }
	if bytes.Equal(salt(sealed), salt(other)) {
		t.Error("two rings derived their subkeys with the same salt")
	}
	if !bytes.Equal(salt(sealed), salt(one.Seal(nil))) {
		t.Error("the second value of a ring has another salt than the first")
	}
	for _, r := range []*seal.KeyRing{one, two} {
		for _, s := range [][]byte{sealed, other} {
			if plain, first, err := r.Open(s); string(plain) != "secret" || !first || err != nil {
				t.Errorf("Open = %q, %t, %v, want %q and the first key", plain, first, err, "secret")
			}
		}
	}
}

func TestSubkeyIsReplacedAfterItsLimit(t *testing.T) {
	r := newRing(t, testKey("one"))
	before := r.Seal([]byte("secret"))
	seal.ExhaustSubkey(r)
	after := r.Seal([]byte("secret"))
	if at := 2 + len("one"); bytes.Equal(before[at:at+8], after[at:at+8]) {
		t.Error("the subkey was used beyond its limit")
	}
	for _, sealed := range [][]byte{before, after} {
		if plain, _, err := r.Open(sealed); string(plain) != "secret" || err != nil {
			t.Errorf("Open = %q, %v, want %q", plain, err, "secret")
		}
	}
}

func TestReplaceChangesTheKeys(t *testing.T) {
	one, two := testKey("one"), testKey("two")
	r := newRing(t, one)
	old := r.Seal([]byte("secret"))
	if err := r.Replace(two, one); err != nil {
		t.Fatal(err)
	}
	if plain, first, err := r.Open(old); string(plain) != "secret" || first || err != nil {
		t.Errorf("Open of a value of the second key = %q, %t, %v; want first = false", plain, first, err)
	}
	if _, first, err := r.Open(r.Seal(nil)); !first || err != nil {
		t.Errorf("Open of a new value: first = %t, %v; want true", first, err)
	}
	if err := r.Replace(two); err != nil {
		t.Fatal(err)
	}
	var unknown *seal.UnknownKeyError
	if _, _, err := r.Open(old); !errors.As(err, &unknown) {
		t.Errorf("Open after the key was removed: %v, want an UnknownKeyError", err)
	}
	for name, keys := range map[string][]seal.Key{
		"no keys":      nil,
		"short secret": {{ID: "short", Secret: make([]byte, seal.MinSecret-1)}},
		"long ID":      {{ID: strings.Repeat("k", seal.MaxID+1), Secret: one.Secret}},
		"empty second": {one, {}},
	} {
		if err := r.Replace(keys...); err == nil {
			t.Errorf("%s: Replace returned no error", name)
		}
	}
	if _, first, err := r.Open(r.Seal(nil)); !first || err != nil {
		t.Errorf("after failed calls of Replace: first = %t, %v; want true", first, err)
	}
}

// IDs that are derived from secrets may collide.
func TestKeysMayShareAnID(t *testing.T) {
	one, other := testKey("one"), seal.Key{ID: "one", Secret: testKey("other").Secret}
	first, second := newRing(t, one), newRing(t, other)
	both := newRing(t, one, other)
	for i, r := range []*seal.KeyRing{first, second} {
		plain, isFirst, err := both.Open(r.Seal([]byte("secret")))
		if string(plain) != "secret" || isFirst != (i == 0) || err != nil {
			t.Errorf("key %d: Open = %q, %t, %v; want %q and first = %t", i, plain, isFirst, err, "secret", i == 0)
		}
	}
}

// The caller may overwrite its secrets.
func TestSecretsAreCopied(t *testing.T) {
	k := testKey("one")
	r := newRing(t, k)
	clear(k.Secret)
	if _, _, err := newRing(t, testKey("one")).Open(r.Seal(nil)); err != nil {
		t.Errorf("Open after the caller's secret was cleared: %v", err)
	}
}

func TestReplaceWhileSealing(t *testing.T) {
	keys := []seal.Key{testKey("0"), testKey("1"), testKey("2"), testKey("3")}
	r := newRing(t, keys...)
	done := make(chan struct{})
	var workers, rotation sync.WaitGroup
	rotation.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			at := i % len(keys)
			if err := r.Replace(slices.Concat(keys[at:], keys[:at])...); err != nil {
				t.Error(err)
			}
		}
	})
	for worker := range 4 {
		workers.Go(func() {
			for i := range 500 {
				want := fmt.Sprint(worker, i)
				if plain, _, err := r.Open(r.Seal([]byte(want), "use"), "use"); string(plain) != want || err != nil {
					t.Errorf("Open = %q, %v; want %q", plain, err, want)
				}
			}
		})
	}
	workers.Wait()
	close(done)
	rotation.Wait()
}

// FuzzOpen checks that only sealed values open.
func FuzzOpen(f *testing.F) {
	r := newRing(f, testKey("one"), testKey("two"))
	sealed := r.Seal([]byte("secret"), "use")
	f.Add(sealed)
	f.Add([]byte{})
	f.Add([]byte{1, 0})
	f.Add([]byte{1, 255, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		plain, _, err := r.Open(data, "use")
		// Each fuzzing process has its own salt, and opens the values of all processes.
		if err == nil && string(plain) != "secret" || err != nil && bytes.Equal(data, sealed) {
			t.Errorf("Open(%x) = %q, %v", data, plain, err)
		}
	})
}

func BenchmarkOpen(b *testing.B) {
	r := newRing(b, testKey("one"))
	for name, sealed := range map[string][]byte{
		"own": r.Seal(make([]byte, 200)), "another process": newRing(b, testKey("one")).Seal(make([]byte, 200)),
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, _, err := r.Open(sealed); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
