package bolt_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/patchbay-mcp/patchbay/ext/events/webhook"
	"github.com/patchbay-mcp/patchbay/ext/events/webhook/storetest"
	"github.com/patchbay-mcp/patchbay/stores/bolt"
)

func openWebhooks(t testing.TB, path string) *bolt.WebhookStore {
	t.Helper()
	s, err := bolt.OpenWebhooks(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestWebhookStore(t *testing.T) {
	storetest.RunLasting(t, func(t *testing.T, dir string) webhook.Store {
		return openWebhooks(t, filepath.Join(dir, "webhooks.db"))
	})
}

func TestDamagedWebhookIsAnErrorOfItsRecord(t *testing.T) {
	path := filepath.Join(t.TempDir(), "webhooks.db")
	s := openWebhooks(t, path)
	for _, id := range []string{"sub_1", "sub_2", "sub_3"} {
		if err := s.Put(t.Context(), webhook.Record{ID: id, Data: []byte("data of " + id)}); err != nil {
			t.Fatal(err)
		}
	}
	err := bolt.ChangeWebhooks(s, func(tx *bbolt.Tx) error {
		records := tx.Bucket([]byte("webhooks"))
		stored := append([]byte{}, records.Get([]byte("sub_2"))...)
		stored[len(stored)-1] ^= 1
		return errors.Join(records.Put([]byte("sub_2"), stored), records.Put([]byte("sub_4"), []byte("x")))
	})
	if err != nil {
		t.Fatal(err)
	}
	whole, damaged := 0, 0
	for r, err := range s.All(t.Context()) {
		switch {
		case err == nil && string(r.Data) == "data of "+r.ID:
			whole++
		case errors.Is(err, bolt.ErrDamaged) && (r.ID == "sub_2" || r.ID == "sub_4"):
			damaged++
		default:
			t.Errorf("got %s, %v; want the record or an error for it", r.ID, err)
		}
	}
	if whole != 2 || damaged != 2 {
		t.Errorf("got %d records and %d errors, want 2 of each", whole, damaged)
	}
}

func TestWebhookFileIsPrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "webhooks.db")
	openWebhooks(t, path)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		t.Errorf("got mode %o, want a file for its owner alone", mode)
	}
	if _, err := bolt.OpenTasks(path, &bolt.Options{Wait: -1}); err == nil {
		t.Error("a file of webhooks was opened as a file of tasks")
	}
}
