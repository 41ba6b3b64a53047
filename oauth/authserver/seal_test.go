package authserver_test

import (
	"bytes"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/patchbay-mcp/patchbay/oauth/authserver"
)

func TestSealedValuesOpenOnlyInTheirRecord(t *testing.T) {
	keys := []authserver.SealKey{authserver.NewSealKey()}
	sealed, err := authserver.Sealed(keys, []byte("the secret"), "upstream", "handle")
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(sealed, []byte("secret")) {
		t.Error("the sealed value contains the secret")
	}
	if again, _ := authserver.Sealed(keys, []byte("the secret"), "upstream", "handle"); bytes.Equal(again, sealed) {
		t.Error("two sealed values of one secret are equal")
	}
	if secret, old, err := authserver.Unsealed(keys, sealed, "upstream", "handle"); string(secret) != "the secret" ||
		old || err != nil {
		t.Errorf("Unsealed = %q, %v, %v, want the secret", secret, old, err)
	}
	for _, record := range [][2]string{
		{"upstream", "handle2"}, {"upstreamh", "andle"}, {"", "upstreamhandle"}, {"grant", "handle"},
	} {
		if secret, _, err := authserver.Unsealed(keys, sealed, record[0], record[1]); err == nil {
			t.Errorf("Unsealed for record %q = %q, want an error", record, secret)
		}
	}
}

func TestReplaceSealKeysKeepsSealedSecrets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	load := func() []authserver.SealKey {
		keys, err := authserver.LoadSealKeys(path)
		if err != nil {
			t.Fatal(err)
		}
		return keys
	}
	first := load()
	w := newEnv(t, func(o *authserver.Options) { o.SealKeys = first })
	tokens := w.login() // stores sealed secrets
	if err := authserver.RotateSealKeys(path, 1); err != nil {
		t.Fatal(err)
	}
	if err := w.server.ReplaceSealKeys(load()); err != nil {
		t.Fatal(err)
	}
	w.wantValid(w.tokensOf(w.post("/token", refreshForm(tokens.Refresh))).Access, "after the keys were replaced")
	for name, keys := range map[string][]authserver.SealKey{
		"no keys": nil, "a short key": {{ID: "a", Key: []byte("short")}},
	} {
		if err := w.server.ReplaceSealKeys(keys); err == nil {
			t.Errorf("%s: ReplaceSealKeys returned no error", name)
		}
	}
	w.login()
}

func TestSealKeysRotate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	load := func() []authserver.SealKey {
		keys, err := authserver.LoadSealKeys(path)
		if err != nil {
			t.Fatal(err)
		}
		return keys
	}
	var all sync.WaitGroup
	loaded := make([][]authserver.SealKey, 8) // by processes that start at the same time
	for i := range loaded {
		all.Go(func() { loaded[i], _ = authserver.LoadSealKeys(path) })
	}
	all.Wait()
	first := load()
	for _, keys := range loaded {
		if len(keys) != 1 || !bytes.Equal(keys[0].Key, first[0].Key) {
			t.Fatalf("concurrent calls of LoadSealKeys returned different keys")
		}
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 {
		t.Errorf("the file has mode %04o, want 0600", info.Mode().Perm())
	}
	sealed, err := authserver.Sealed(first, []byte("secret"), "k", "v")
	if err != nil {
		t.Fatal(err)
	}
	for round, opens := range []bool{true, true, false} {
		if err := authserver.RotateSealKeys(path, 2); err != nil {
			t.Fatal(err)
		}
		_, old, err := authserver.Unsealed(load(), sealed, "k", "v")
		if (err == nil) != opens || err == nil && !old {
			t.Errorf("after rotation %d: old %v, %v, want success %v", round+1, old, err, opens)
		}
	}
	if keys := load(); len(keys) != 3 || keys[0].ID == keys[1].ID {
		t.Errorf("the file has %d keys, want 3", len(keys))
	}
	if left, _ := filepath.Glob(path + "?*"); len(left) > 0 {
		t.Errorf("temporary files were not removed: %v", left)
	}
}

func TestInvalidSealKeyFilesAreErrors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	key := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32))
	for name, text := range map[string]string{
		"no key": "# nothing\n\n", "no id": key + "\n", "short": "a " + key[:20] + "\n",
		"twice":      "a " + key + "\na " + key + "\n",
		"not base64": "a !" + key[1:] + "\n", "many": strings.Repeat("a "+key+"\n", 40),
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := authserver.LoadSealKeys(path)
		if err == nil || strings.Contains(err.Error(), key[1:20]) {
			t.Errorf("%s: %v, want an error without the key", name, err)
		}
	}
	if err := os.WriteFile(path, []byte("# ours\na "+key+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if keys, err := authserver.LoadSealKeys(path); err != nil || len(keys) != 1 {
		t.Errorf("valid file: %d keys, %v, want 1", len(keys), err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := authserver.LoadSealKeys(path); err == nil {
		t.Error("LoadSealKeys of a file with mode 0644 returned no error")
	}
}
