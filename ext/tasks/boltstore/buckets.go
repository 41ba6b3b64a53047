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
	bucketExpires    = []byte("expires")    // expires, id → owner, created; of what is done
	bucketCounts     = []byte("counts")     // owner, or keyAll → number

	keyFormat = []byte("format")
	keyAll    = []byte("all")
)

// Owners stand in keys as hashes: they may be longer than a key can be, and end where another one goes on.
const (
	ownerLen = sha256.Size
	timeLen  = 8
	placeLen = ownerLen + timeLen
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

// placeOf gives the owner and the time of creation, as they stand in keys and in the index of expiries.
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
	if err := addToCounts(tx, place[:ownerLen], 1); err != nil {
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
	if err := unindex(tx, old.id, old.expires); err != nil {
		return err
	}
	if old.parts {
		if err := deleteParts(tx, old.id); err != nil {
			return err
		}
	}
	return putRecord(tx, headFor(r), placeOf(old.owner, old.created), r.Data)
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
		return tx.Bucket(bucketExpires).Put(expiresKey(h.expires, h.id), place)
	}
	return tx.Bucket(bucketUnfinished).Put([]byte(h.id), nil)
}

// unindex takes a record out of the index that it is in.
func unindex(tx *bbolt.Tx, id string, expires int64) error {
	return errors.Join(tx.Bucket(bucketExpires).Delete(expiresKey(expires, id)), tx.Bucket(bucketUnfinished).Delete([]byte(id)))
}

// deleteRecord removes a record and all that is about it. It need not be readable.
func deleteRecord(tx *bbolt.Tx, id string, place []byte, expires int64) error {
	return errors.Join(
		unindex(tx, id, expires),
		deleteParts(tx, id),
		tx.Bucket(bucketOwned).Delete(ownedKey(place, id)),
		tx.Bucket(bucketTasks).Delete([]byte(id)),
		addToCounts(tx, place[:ownerLen], -1))
}

// A dueRecord is one that may be deleted.
type dueRecord struct {
	id      string
	place   []byte
	expires int64
}

// dueRecords gives what has expired, the first to expire first.
func dueRecords(tx *bbolt.Tx, now time.Time, limit int) []dueRecord {
	var found []dueRecord
	cursor := tx.Bucket(bucketExpires).Cursor()
	for key, place := cursor.First(); key != nil && len(found) < limit; key, place = cursor.Next() {
		if len(key) < timeLen || len(place) != placeLen {
			continue // not ours
		}
		expires := int64(binary.BigEndian.Uint64(key) ^ (1 << 63))
		if expires > now.UnixMilli() {
			break
		}
		found = append(found, dueRecord{string(key[timeLen:]), bytes.Clone(place), expires})
	}
	return found
}

func deleteDue(tx *bbolt.Tx, now time.Time, limit int) (int, error) {
	due := dueRecords(tx, now, limit)
	for _, d := range due {
		if err := deleteRecord(tx, d.id, d.place, d.expires); err != nil {
			return 0, err
		}
	}
	return len(due), nil
}

func countOf(tx *bbolt.Tx, key []byte) int {
	stored := tx.Bucket(bucketCounts).Get(key)
	if len(stored) != timeLen {
		return 0
	}
	return int(min(binary.BigEndian.Uint64(stored), math.MaxInt))
}

func addToCounts(tx *bbolt.Tx, owner []byte, by int) error {
	counts := tx.Bucket(bucketCounts)
	for _, key := range [][]byte{owner, keyAll} {
		n := max(countOf(tx, key)+by, 0)
		if n == 0 {
			if err := counts.Delete(key); err != nil {
				return err
			}
			continue
		}
		if err := counts.Put(key, binary.BigEndian.AppendUint64(nil, uint64(n))); err != nil {
			return err
		}
	}
	return nil
}

// damagedIndex tells a record that an index names and that is not there from one that nobody named.
func damagedIndex(err error) error {
	if errors.Is(err, tasks.ErrUnknown) {
		return fmt.Errorf("%w: a list names a task that is not there", ErrDamaged)
	}
	return err
}
