package bolt

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"iter"

	"go.etcd.io/bbolt"

	"github.com/patchbay-mcp/patchbay/ext/events/webhook"
)

// A WebhookStore is a [webhook.Store] in a file. It is safe for concurrent use.
//
// The file contains the secrets of the subscriptions, so copies of the file, such as backups, must be
// protected: anyone who reads them can forge deliveries.
type WebhookStore struct{ file *file }

var _ webhook.Store = (*WebhookStore)(nil)

// OpenWebhooks opens the store of webhook subscriptions in a file, which is created if it does not
// exist. opts may be nil. The error is [ErrInUse] if the file stays open elsewhere, and [ErrDamaged]
// if the file is damaged; damage to a single record shows when the record is read. A file of another
// program or of a later version is not touched.
func OpenWebhooks(path string, opts *Options) (*WebhookStore, error) {
	f, err := openFile(path, opts, webhookSchema)
	if err != nil {
		return nil, err
	}
	return &WebhookStore{file: f}, nil
}

// Close waits for changes that are being written, and closes the file. Afterwards all methods return
// [ErrClosed].
func (s *WebhookStore) Close() error { return s.file.Close() }

// Durable returns true.
func (s *WebhookStore) Durable() bool { return true }

var (
	bucketWebhooks = []byte("webhooks") // id → checksum of id and data, data

	webhookSchema = schema{format: "patchbay webhook store 1", buckets: [][]byte{bucketWebhooks}}
)

const checksumLen = crc32.Size

func webhookChecksum(id, data []byte) uint32 {
	return crc32.Update(crc32.Checksum(id, checksums), checksums, data)
}

// Put adds or replaces a record.
func (s *WebhookStore) Put(ctx context.Context, r webhook.Record) error {
	if err := r.Check(); err != nil {
		return err
	}
	id := []byte(r.ID)
	stored := binary.BigEndian.AppendUint32(make([]byte, 0, checksumLen+len(r.Data)), webhookChecksum(id, r.Data))
	stored = append(stored, r.Data...)
	return s.file.write(ctx, len(r.Data), func(tx *bbolt.Tx) error { return tx.Bucket(bucketWebhooks).Put(id, stored) })
}

// Delete removes a record.
func (s *WebhookStore) Delete(ctx context.Context, id string) error {
	return s.file.write(ctx, 0, func(tx *bbolt.Tx) error {
		records := tx.Bucket(bucketWebhooks)
		if id == "" || records.Get([]byte(id)) == nil {
			return errNoChange
		}
		return records.Delete([]byte(id))
	})
}

// All returns the records. For a damaged record it yields [ErrDamaged] and a record with its ID.
func (s *WebhookStore) All(ctx context.Context) iter.Seq2[webhook.Record, error] {
	return func(yield func(webhook.Record, error) bool) {
		var ids []string
		err := s.file.read(ctx, func(tx *bbolt.Tx) error {
			return tx.Bucket(bucketWebhooks).ForEach(func(id, _ []byte) error {
				ids = append(ids, string(id))
				return nil
			})
		})
		if err != nil {
			yield(webhook.Record{}, err)
			return
		}
		for _, id := range ids {
			r, err := s.get(ctx, id)
			if (err != nil || r.Data != nil) && !yield(r, err) {
				return
			}
		}
	}
}

// get returns a record, without Data if the record was deleted.
func (s *WebhookStore) get(ctx context.Context, id string) (webhook.Record, error) {
	r := webhook.Record{ID: id}
	err := s.file.read(ctx, func(tx *bbolt.Tx) error {
		stored := tx.Bucket(bucketWebhooks).Get([]byte(id))
		if stored == nil {
			return nil
		}
		if len(stored) < checksumLen || binary.BigEndian.Uint32(stored) !=
			webhookChecksum([]byte(id), stored[checksumLen:]) {
			return fmt.Errorf("%w: the record of the subscription %s", ErrDamaged, id)
		}
		r.Data = append([]byte{}, stored[checksumLen:]...)
		return nil
	})
	return r, err
}
