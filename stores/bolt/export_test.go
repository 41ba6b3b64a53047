package bolt

import (
	"encoding/binary"
	"hash/crc32"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
)

// Commits returns the number of write transactions of a file.
func Commits(s *TaskStore) (n int) {
	_ = s.file.view(func(tx *bbolt.Tx) error {
		n = tx.ID()
		return nil
	})
	return n
}

// Together delays every change of a file, as a slow disk would, until n changes wait for a
// transaction.
func Together(t testing.TB, s *TaskStore, n int) (release func()) {
	s.file.writing.Lock()
	return func() {
		defer s.file.writing.Unlock()
		for end := time.Now().Add(time.Minute); s.file.queued() < n; {
			if time.Now().After(end) {
				t.Errorf("%d changes wait for a transaction, want %d", s.file.queued(), n)
				return
			}
			time.Sleep(time.Millisecond) // there is no event to wait for
		}
	}
}

func (f *file) queued() int {
	f.queueMu.Lock()
	defer f.queueMu.Unlock()
	return len(f.queue)
}

// View reads the database of a store.
func View(s *TaskStore, do func(tx *bbolt.Tx) error) error { return s.file.view(do) }

// Change writes to the database of a store, as if it had been damaged.
func Change(s *TaskStore, do func(tx *bbolt.Tx) error) error { return s.file.update(do) }

// Encode returns the stored form of a record. It reports whether that is all of the record, without
// parts.
func Encode(r tasks.Record) ([]byte, bool) {
	h := newHeader(r)
	return h.encode(), !h.parts
}

// Reencode corrects the checksum of the stored form of a record, decodes it, and encodes it again.
func Reencode(id string, stored []byte) (again []byte, err error) {
	if len(stored) >= headerLen {
		if end := headerLen + int64(binary.BigEndian.Uint32(stored[headerLen-4:])); end <= int64(len(stored)) {
			binary.BigEndian.PutUint32(stored[1:], crc32.Update(crc32.Checksum([]byte(id), checksums), checksums,
				stored[5:end]))
		}
	}
	h, err := decodeHeader(id, stored)
	if err != nil {
		return nil, err
	}
	return h.encode(), nil
}

// SweepBatch is the number of expired records that one write removes.
const SweepBatch = sweepBatch

// AuthorizationCommits returns the number of write transactions of a file.
func AuthorizationCommits(s *AuthorizationStore) int { return Commits(&TaskStore{s.file}) }

// AuthorizationTogether is Together for the store of an authorization server.
func AuthorizationTogether(t testing.TB, s *AuthorizationStore, n int) (release func()) {
	return Together(t, &TaskStore{s.file}, n)
}

// AuthorizationRecords returns the number of records, expired or not. It returns -1 if the index of
// expiries does not match them.
func AuthorizationRecords(s *AuthorizationStore) int {
	n, expiring, indexed := 0, 0, 0
	_ = s.file.view(func(tx *bbolt.Tx) error {
		indexed = tx.Bucket(bucketValueExpires).Stats().KeyN
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
			if !strings.HasPrefix(string(name), kindPrefix) {
				return nil
			}
			return b.ForEach(func(_, stored []byte) error {
				n++
				if binary.BigEndian.Uint64(stored) != 0 {
					expiring++
				}
				return nil
			})
		})
	})
	if expiring != indexed {
		return -1
	}
	return n
}

// ChangeWebhooks is Change for a store of webhook subscriptions.
func ChangeWebhooks(s *WebhookStore, do func(tx *bbolt.Tx) error) error { return s.file.update(do) }
