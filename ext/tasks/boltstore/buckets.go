package boltstore

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"go.etcd.io/bbolt"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
)

// fileFormat is what a file says of itself. A file that says something else is left alone.
const fileFormat = "patchbay tasks store 1"

// The buckets of a file. All that is about a record changes in one transaction.
var (
	bucketFormat     = []byte("format")
	bucketTasks      = []byte("tasks")      // id → head
	bucketParts      = []byte("parts")      // id, '/', number → part of the data
	bucketOwned      = []byte("owned")      // owner, created, id → nothing
	bucketUnfinished = []byte("unfinished") // id → nothing
	bucketExpires    = []byte("expires")    // expires, id → owner, created, length of the data; of what is done
	bucketCounts     = []byte("counts")     // owner, or keyAll → number, bytes of data

	keyFormat = []byte("format")
	keyAll    = []byte("all")
)

// Owners stand in keys as hashes: they may be longer than a key can be, and end where another one goes on.
const (
	ownerLen = sha256.Size
	timeLen  = 8
	placeLen = ownerLen + timeLen
	sizeLen  = 4
	countLen = 16
)

func prepareBuckets(tx *bbolt.Tx) error {
	format := tx.Bucket(bucketFormat)
	if format == nil {
		if name, _ := tx.Cursor().First(); name != nil {
			return errors.New("it is a database of something else")
		}
		return makeBuckets(tx)
	}
	if said := format.Get(keyFormat); string(said) != fileFormat {
		return fmt.Errorf("its format is %.60q, this program knows %q", said, fileFormat)
	}
	for _, name := range [][]byte{bucketTasks, bucketParts, bucketOwned, bucketUnfinished, bucketExpires, bucketCounts} {
		if tx.Bucket(name) == nil {
			return fmt.Errorf("%w: it has no bucket %q", ErrDamaged, name)
		}
	}
	return nil
}

func makeBuckets(tx *bbolt.Tx) error {
	for _, name := range [][]byte{bucketFormat, bucketTasks, bucketParts, bucketOwned, bucketUnfinished, bucketExpires, bucketCounts} {
		if _, err := tx.CreateBucket(name); err != nil {
			return err
		}
	}
	return tx.Bucket(bucketFormat).Put(keyFormat, []byte(fileFormat))
}

func ownerKey(owner string) []byte {
	sum := sha256.Sum256([]byte(owner))
	return sum[:]
}

// appendTime adds a time whose order as bytes is that of the times.
func appendTime(b []byte, millis int64) []byte {
	return binary.BigEndian.AppendUint64(b, uint64(millis)^(1<<63))
}

// timeIn reads what appendTime wrote.
func timeIn(b []byte) time.Time {
	return time.UnixMilli(int64(binary.BigEndian.Uint64(b) ^ (1 << 63))).UTC()
}

// placeOf returns the owner and the time of creation, as they stand in keys and in the index of expiries.
func placeOf(owner string, created int64) []byte { return appendTime(ownerKey(owner), created) }

func ownedKey(place []byte, id string) []byte { return append(bytes.Clone(place), id...) }

func expiresKey(expires int64, id string) []byte { return append(appendTime(nil, expires), id...) }

// anyHead finds a record, whoever owns it.
func anyHead(tx *bbolt.Tx, id string) (head, error) {
	stored := tx.Bucket(bucketTasks).Get([]byte(id))
	if stored == nil {
		return head{}, tasks.ErrUnknown
	}
	return decodeHead(id, stored)
}

// headOf finds a record of an owner.
func headOf(tx *bbolt.Tx, owner, id string) (head, error) {
	h, err := anyHead(tx, id)
	if err == nil && h.owner != owner {
		return head{}, tasks.ErrUnknown
	}
	return h, err
}

func createRecord(tx *bbolt.Tx, r tasks.Record) error {
	if tx.Bucket(bucketTasks).Get([]byte(r.ID)) != nil {
		return tasks.ErrConflict
	}
	h := headFor(r)
	place := placeOf(h.owner, h.created)
	if err := tx.Bucket(bucketOwned).Put(ownedKey(place, h.id), nil); err != nil {
		return err
	}
	if err := addToCounts(tx, place[:ownerLen], 1, h.dataLen); err != nil {
		return err
	}
	return putRecord(tx, h, place, r.Data)
}

func updateRecord(tx *bbolt.Tx, r tasks.Record) error {
	old, err := headOf(tx, r.Owner, r.ID)
	if err != nil {
		return err
	}
	if old.version != r.Version {
		return tasks.ErrConflict
	}
	r.Created, r.Version = time.UnixMilli(old.created), old.version+1
	place := placeOf(old.owner, old.created)
	if err := unindex(tx, old.id, old.expires); err != nil {
		return err
	}
	if err := addToCounts(tx, place[:ownerLen], 0, len(r.Data)-old.dataLen); err != nil {
		return err
	}
	if old.parts {
		if err := deleteParts(tx, old.id); err != nil {
			return err
		}
	}
	return putRecord(tx, headFor(r), place, r.Data)
}

// putRecord writes a record and puts it into the index that it belongs to.
func putRecord(tx *bbolt.Tx, h head, place, data []byte) error {
	if h.parts {
		if err := writeParts(tx, h.id, data); err != nil {
			return err
		}
	}
	if err := tx.Bucket(bucketTasks).Put([]byte(h.id), h.encode()); err != nil {
		return err
	}
	if h.done {
		about := binary.BigEndian.AppendUint32(bytes.Clone(place), uint32(h.dataLen))
		return tx.Bucket(bucketExpires).Put(expiresKey(h.expires, h.id), about)
	}
	return tx.Bucket(bucketUnfinished).Put([]byte(h.id), nil)
}

// unindex takes a record out of the index that it is in.
func unindex(tx *bbolt.Tx, id string, expires int64) error {
	return errors.Join(tx.Bucket(bucketExpires).Delete(expiresKey(expires, id)), tx.Bucket(bucketUnfinished).Delete([]byte(id)))
}

// deleteRecord removes a record and all that is about it. It need not be readable.
func deleteRecord(tx *bbolt.Tx, d dueRecord) error {
	return errors.Join(
		unindex(tx, d.id, d.expires),
		deleteParts(tx, d.id),
		tx.Bucket(bucketOwned).Delete(ownedKey(d.place, d.id)),
		tx.Bucket(bucketTasks).Delete([]byte(d.id)),
		addToCounts(tx, d.place[:ownerLen], -1, -d.dataLen))
}

// A dueRecord is one that may be deleted.
type dueRecord struct {
	id      string
	place   []byte
	expires int64
	dataLen int
}

// dueRecords returns what has expired, the first to expire first.
func dueRecords(tx *bbolt.Tx, now time.Time, limit int) []dueRecord {
	var found []dueRecord
	cursor := tx.Bucket(bucketExpires).Cursor()
	for key, about := cursor.First(); key != nil && len(found) < limit; key, about = cursor.Next() {
		if len(key) < timeLen || len(about) != placeLen+sizeLen {
			continue // not ours
		}
		expires := timeIn(key).UnixMilli()
		if expires > now.UnixMilli() {
			break
		}
		size := binary.BigEndian.Uint32(about[placeLen:])
		found = append(found, dueRecord{string(key[timeLen:]), bytes.Clone(about[:placeLen]), expires, int(size)})
	}
	return found
}

func deleteDue(tx *bbolt.Tx, now time.Time, limit int) (int, error) {
	due := dueRecords(tx, now, limit)
	for _, d := range due {
		if err := deleteRecord(tx, d); err != nil {
			return 0, err
		}
	}
	return len(due), nil
}

func countOf(tx *bbolt.Tx, key []byte) (n int, size int64) {
	stored := tx.Bucket(bucketCounts).Get(key)
	if len(stored) != countLen {
		return 0, 0
	}
	n = int(min(binary.BigEndian.Uint64(stored), math.MaxInt))
	return n, int64(min(binary.BigEndian.Uint64(stored[countLen/2:]), math.MaxInt64))
}

func addToCounts(tx *bbolt.Tx, owner []byte, by, bySize int) error {
	counts := tx.Bucket(bucketCounts)
	for _, key := range [][]byte{owner, keyAll} {
		n, size := countOf(tx, key)
		if n = max(n+by, 0); n == 0 {
			if err := counts.Delete(key); err != nil {
				return err
			}
			continue
		}
		size = max(size+int64(bySize), 0)
		stored := binary.BigEndian.AppendUint64(make([]byte, 0, countLen), uint64(n))
		if err := counts.Put(key, binary.BigEndian.AppendUint64(stored, uint64(size))); err != nil {
			return err
		}
	}
	return nil
}
