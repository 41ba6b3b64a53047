package bolt

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math"
	"time"

	"go.etcd.io/bbolt"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
)

// The buckets of a task store. All entries of a record change in one transaction.
var (
	bucketTasks      = []byte("tasks")      // id → header, short data
	bucketParts      = []byte("parts")      // id, '/', number → part of the data
	bucketOwned      = []byte("owned")      // owner, created, id → empty
	bucketUnfinished = []byte("unfinished") // id → empty
	bucketExpires    = []byte("expires")    // of records that are done: expires, id → owner, created, length of the data
	bucketCounts     = []byte("counts")     // owner, or keyAll → number, bytes of data

	keyAll = []byte("all")

	taskSchema = schema{
		format: "patchbay tasks store 1",
		buckets: [][]byte{
			bucketTasks, bucketParts, bucketOwned, bucketUnfinished, bucketExpires, bucketCounts,
		},
	}
)

// Keys contain hashes of owners: an owner may be longer than a key, and may be a prefix of another
// one.
const (
	ownerLen       = sha256.Size
	timeLen        = 8
	ownerPrefixLen = ownerLen + timeLen
	sizeLen        = 4
	taskCountLen   = 16
)

func ownerHash(owner string) []byte {
	sum := sha256.Sum256([]byte(owner))
	return sum[:]
}

// appendTime appends a time so that the order of the bytes is the order of the times.
func appendTime(b []byte, millis int64) []byte {
	return binary.BigEndian.AppendUint64(b, uint64(millis)^(1<<63))
}

// readTime reads what appendTime has written.
func readTime(b []byte) time.Time {
	return time.UnixMilli(int64(binary.BigEndian.Uint64(b) ^ (1 << 63))).UTC()
}

// ownerPrefix returns the part of keys and index entries that identifies the owner and the time of
// creation.
func ownerPrefix(owner string, created int64) []byte { return appendTime(ownerHash(owner), created) }

func ownedKey(prefix []byte, id string) []byte { return append(bytes.Clone(prefix), id...) }

func expiresKey(expires int64, id string) []byte { return append(appendTime(nil, expires), id...) }

// findHeader returns the header of a record of any owner.
func findHeader(tx *bbolt.Tx, id string) (header, error) {
	stored := tx.Bucket(bucketTasks).Get([]byte(id))
	if stored == nil {
		return header{}, tasks.ErrUnknown
	}
	return decodeHeader(id, stored)
}

// ownedHeader returns the header of a record of an owner.
func ownedHeader(tx *bbolt.Tx, owner, id string) (header, error) {
	h, err := findHeader(tx, id)
	if err == nil && h.owner != owner {
		return header{}, tasks.ErrUnknown
	}
	return h, err
}

func createTask(tx *bbolt.Tx, r tasks.Record) error {
	if tx.Bucket(bucketTasks).Get([]byte(r.ID)) != nil {
		return tasks.ErrConflict
	}
	h := newHeader(r)
	prefix := ownerPrefix(h.owner, h.created)
	if err := tx.Bucket(bucketOwned).Put(ownedKey(prefix, h.id), nil); err != nil {
		return err
	}
	if err := addToTaskCounts(tx, prefix[:ownerLen], 1, h.dataLen); err != nil {
		return err
	}
	return putTask(tx, h, prefix, r.Data)
}

func updateTask(tx *bbolt.Tx, r tasks.Record) error {
	old, err := ownedHeader(tx, r.Owner, r.ID)
	if err != nil {
		return err
	}
	if old.version != r.Version {
		return tasks.ErrConflict
	}
	r.Created, r.Version = time.UnixMilli(old.created), old.version+1
	prefix := ownerPrefix(old.owner, old.created)
	if err := unindexTask(tx, old.id, old.expires); err != nil {
		return err
	}
	if err := addToTaskCounts(tx, prefix[:ownerLen], 0, len(r.Data)-old.dataLen); err != nil {
		return err
	}
	if old.parts {
		if err := deleteParts(tx, old.id); err != nil {
			return err
		}
	}
	return putTask(tx, newHeader(r), prefix, r.Data)
}

// putTask writes a record and its entry in the index of unfinished or of expiring records.
func putTask(tx *bbolt.Tx, h header, prefix, data []byte) error {
	if h.parts {
		if err := writeParts(tx, h.id, data); err != nil {
			return err
		}
	}
	if err := tx.Bucket(bucketTasks).Put([]byte(h.id), h.encode()); err != nil {
		return err
	}
	if h.done {
		entry := binary.BigEndian.AppendUint32(bytes.Clone(prefix), uint32(h.dataLen))
		return tx.Bucket(bucketExpires).Put(expiresKey(h.expires, h.id), entry)
	}
	return tx.Bucket(bucketUnfinished).Put([]byte(h.id), nil)
}

// unindexTask removes a record from the indexes of unfinished and of expiring records.
func unindexTask(tx *bbolt.Tx, id string, expires int64) error {
	return errors.Join(tx.Bucket(bucketExpires).Delete(expiresKey(expires, id)),
		tx.Bucket(bucketUnfinished).Delete([]byte(id)))
}

// deleteTask removes a record with all its entries. The record itself may be damaged.
func deleteTask(tx *bbolt.Tx, e taskEntry) error {
	return errors.Join(
		unindexTask(tx, e.id, e.expires),
		deleteParts(tx, e.id),
		tx.Bucket(bucketOwned).Delete(ownedKey(e.prefix, e.id)),
		tx.Bucket(bucketTasks).Delete([]byte(e.id)),
		addToTaskCounts(tx, e.prefix[:ownerLen], -1, -e.dataLen))
}

// A taskEntry is what the deletion of a record needs to know of it.
type taskEntry struct {
	id      string
	prefix  []byte // see ownerPrefix
	expires int64
	dataLen int
}

// expiredTasks returns records that have expired, in the order of their expiry.
func expiredTasks(tx *bbolt.Tx, now time.Time, limit int) []taskEntry {
	var found []taskEntry
	cursor := tx.Bucket(bucketExpires).Cursor()
	for key, entry := cursor.First(); key != nil && len(found) < limit; key, entry = cursor.Next() {
		if len(key) < timeLen || len(entry) != ownerPrefixLen+sizeLen {
			continue // damaged
		}
		expires := readTime(key).UnixMilli()
		if expires > now.UnixMilli() {
			break
		}
		size := binary.BigEndian.Uint32(entry[ownerPrefixLen:])
		found = append(found, taskEntry{string(key[timeLen:]), bytes.Clone(entry[:ownerPrefixLen]), expires, int(size)})
	}
	return found
}

func deleteExpiredTasks(tx *bbolt.Tx, now time.Time, limit int) (int, error) {
	expired := expiredTasks(tx, now, limit)
	for _, e := range expired {
		if err := deleteTask(tx, e); err != nil {
			return 0, err
		}
	}
	return len(expired), nil
}

// taskCount returns the number of records and the size of their data.
func taskCount(tx *bbolt.Tx, key []byte) (n int, size int64) {
	stored := tx.Bucket(bucketCounts).Get(key)
	if len(stored) != taskCountLen {
		return 0, 0
	}
	n = int(min(binary.BigEndian.Uint64(stored), math.MaxInt))
	return n, int64(min(binary.BigEndian.Uint64(stored[taskCountLen/2:]), math.MaxInt64))
}

func addToTaskCounts(tx *bbolt.Tx, owner []byte, by, bySize int) error {
	counts := tx.Bucket(bucketCounts)
	for _, key := range [][]byte{owner, keyAll} {
		n, size := taskCount(tx, key)
		if n = max(n+by, 0); n == 0 {
			if err := counts.Delete(key); err != nil {
				return err
			}
			continue
		}
		size = max(size+int64(bySize), 0)
		stored := binary.BigEndian.AppendUint64(make([]byte, 0, taskCountLen), uint64(n))
		if err := counts.Put(key, binary.BigEndian.AppendUint64(stored, uint64(size))); err != nil {
			return err
		}
	}
	return nil
}
