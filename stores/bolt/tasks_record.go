package bolt

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"time"

	"go.etcd.io/bbolt"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
)

// The stored form of a record is a header: format (1 byte), CRC-32C of the ID and of the following
// fields, flags, Created and Expires in milliseconds, version, length and checksum of the data,
// length of the owner, owner. Short data follows the header; longer data is in parts in another
// bucket.
const (
	recordFormat = 1
	headerLen    = 1 + 4 + 1 + 8 + 8 + 8 + 4 + 4 + 4 // without the owner
	flagDone     = 1 << 0
	flagParts    = 1 << 1
)

// maxInline is the maximum length of data that is stored with its header. A change of a record
// rewrites its whole page of the tree with all neighbours, so larger data would be written again
// with each of them.
const maxInline = 16 << 10

const partLen = 64 << 10 // of longer data

// checksums is the table of CRC-32C, which processors support with instructions.
var checksums = crc32.MakeTable(crc32.Castagnoli)

// A header is a record without its data. It is valid during the transaction that it was read in.
type header struct {
	owner, id        string
	created, expires int64
	version          uint64
	done, parts      bool
	dataLen          int
	dataSum          uint32
	inline           []byte // the data, if it is not stored in parts
}

func newHeader(r tasks.Record) header {
	h := header{
		owner: r.Owner, id: r.ID, created: r.Created.UnixMilli(), expires: r.Expires.UnixMilli(), version: r.Version,
		done: r.Done, parts: len(r.Data) > maxInline, dataLen: len(r.Data), dataSum: crc32.Checksum(r.Data, checksums),
	}
	if !h.parts {
		h.inline = r.Data
	}
	return h
}

func (h header) encode() []byte {
	b := make([]byte, 5, headerLen+len(h.owner)+len(h.inline))
	b[0] = recordFormat
	var flags byte
	if h.done {
		flags |= flagDone
	}
	if h.parts {
		flags |= flagParts
	}
	b = append(b, flags)
	b = binary.BigEndian.AppendUint64(b, uint64(h.created))
	b = binary.BigEndian.AppendUint64(b, uint64(h.expires))
	b = binary.BigEndian.AppendUint64(b, h.version)
	b = binary.BigEndian.AppendUint32(b, uint32(h.dataLen))
	b = binary.BigEndian.AppendUint32(b, h.dataSum)
	b = binary.BigEndian.AppendUint32(b, uint32(len(h.owner)))
	b = append(b, h.owner...)
	binary.BigEndian.PutUint32(b[1:], headerSum(h.id, b[5:]))
	return append(b, h.inline...)
}

// headerSum returns the checksum of a header. It covers the ID, so that a header stored under
// another ID is damaged.
func headerSum(id string, rest []byte) uint32 {
	return crc32.Update(crc32.Checksum([]byte(id), checksums), checksums, rest)
}

func decodeHeader(id string, b []byte) (header, error) {
	if len(b) < headerLen {
		return header{}, damagedRecord(id, fmt.Sprintf("it has %d bytes", len(b)))
	}
	if b[0] != recordFormat {
		return header{}, damagedRecord(id, fmt.Sprintf("format %d, want %d", b[0], recordFormat))
	}
	u64 := func(at int) uint64 { return binary.BigEndian.Uint64(b[at:]) }
	u32 := func(at int) uint32 { return binary.BigEndian.Uint32(b[at:]) }
	ownerEnd := headerLen + int64(u32(headerLen-4))
	if ownerEnd > int64(len(b)) || headerSum(id, b[5:ownerEnd]) != u32(1) {
		return header{}, damagedRecord(id, "wrong checksum")
	}
	h := header{
		owner: string(b[headerLen:ownerEnd]), id: id,
		done: b[5]&flagDone != 0, parts: b[5]&flagParts != 0,
		created: int64(u64(6)), expires: int64(u64(14)), version: u64(22),
		dataLen: int(u32(30)), dataSum: u32(34), inline: b[ownerEnd:],
	}
	inline := 0
	if !h.parts {
		inline = h.dataLen
	}
	switch {
	case b[5]&^(flagDone|flagParts) != 0:
		return header{}, damagedRecord(id, fmt.Sprintf("unknown flags %08b", b[5]))
	case h.dataLen > tasks.MaxRecord || len(h.inline) != inline:
		return header{}, damagedRecord(id, fmt.Sprintf("%d bytes of data, want %d", len(h.inline), h.dataLen))
	}
	return h, nil
}

func (h header) record(tx *bbolt.Tx) (tasks.Record, error) {
	var data []byte
	if h.parts {
		data = readParts(tx, h.id, h.dataLen)
	} else if h.dataLen > 0 {
		data = bytes.Clone(h.inline)
	}
	if len(data) != h.dataLen || crc32.Checksum(data, checksums) != h.dataSum {
		return tasks.Record{}, damagedRecord(h.id, "wrong checksum of the data")
	}
	return tasks.Record{
		Owner: h.owner, ID: h.id, Created: time.UnixMilli(h.created).UTC(), Expires: time.UnixMilli(h.expires).UTC(),
		Done: h.done, Version: h.version, Data: data,
	}, nil
}

func damagedRecord(id, why string) error {
	// only a part of the ID: a caller with the ID can use the task
	return fmt.Errorf("%w: the record of task %.8s…: %s", ErrDamaged, id, why)
}

// partPrefix returns the common prefix of the keys of a record's parts. No ID contains the final
// byte.
func partPrefix(id string) []byte { return append([]byte(id), '/') }

// readParts joins the parts of data. If parts are missing or too long, the length of the result
// differs from the given size.
func readParts(tx *bbolt.Tx, id string, size int) []byte {
	data, prefix := make([]byte, 0, size), partPrefix(id)
	cursor := tx.Bucket(bucketParts).Cursor()
	for key, part := cursor.Seek(prefix); bytes.HasPrefix(key, prefix) && len(data) <= size; key, part = cursor.Next() {
		data = append(data, part...)
	}
	return data
}

func writeParts(tx *bbolt.Tx, id string, data []byte) error {
	if err := deleteParts(tx, id); err != nil {
		return err
	}
	parts, prefix := tx.Bucket(bucketParts), partPrefix(id)
	i := uint32(0)
	for part := range slices.Chunk(data, partLen) {
		if err := parts.Put(binary.BigEndian.AppendUint32(bytes.Clone(prefix), i), part); err != nil {
			return err
		}
		i++
	}
	return nil
}

func deleteParts(tx *bbolt.Tx, id string) error {
	parts, prefix := tx.Bucket(bucketParts), partPrefix(id)
	var keys [][]byte
	cursor := parts.Cursor()
	for key, _ := cursor.Seek(prefix); bytes.HasPrefix(key, prefix); key, _ = cursor.Next() {
		keys = append(keys, bytes.Clone(key))
	}
	var err error
	for _, key := range keys {
		err = errors.Join(err, parts.Delete(key))
	}
	return err
}

// The buckets of a task store. All entries of a record change in one transaction.
var (
	bucketTasks      = []byte("tasks")      // id → header, short data
	bucketParts      = []byte("parts")      // id, '/', number → part of the data
	bucketOwned      = []byte("owned")      // owner, created, id → empty
	bucketUnfinished = []byte("unfinished") // id → empty
	bucketExpires    = []byte("expires")    // of done records: expires, id → owner, created, length of the data
	bucketCounts     = []byte("counts")     // owner, or keyAll → number, bytes of data

	keyAll = []byte("all")

	taskSchema = schema{
		format:  "patchbay tasks store 1",
		buckets: [][]byte{bucketTasks, bucketParts, bucketOwned, bucketUnfinished, bucketExpires, bucketCounts},
	}
)

// Keys contain hashes of owners: an owner may be longer than a key, and may be a prefix of another
// owner.
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

func readTime(b []byte) time.Time {
	return time.UnixMilli(int64(binary.BigEndian.Uint64(b) ^ (1 << 63))).UTC()
}

// ownerPrefix returns the part of keys and index entries that identifies the owner and the time of
// creation.
func ownerPrefix(owner string, created int64) []byte { return appendTime(ownerHash(owner), created) }

func ownedKey(prefix []byte, id string) []byte { return append(bytes.Clone(prefix), id...) }

func expiresKey(expires int64, id string) []byte { return append(appendTime(nil, expires), id...) }

func findHeader(tx *bbolt.Tx, id string) (header, error) {
	stored := tx.Bucket(bucketTasks).Get([]byte(id))
	if stored == nil {
		return header{}, tasks.ErrUnknown
	}
	return decodeHeader(id, stored)
}

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
	return errors.Join(
		tx.Bucket(bucketOwned).Put(ownedKey(prefix, h.id), nil),
		addToTaskCounts(tx, prefix[:ownerLen], 1, h.dataLen),
		putTask(tx, h, prefix, r.Data))
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
	err = errors.Join(
		unindexTask(tx, old.id, old.expires),
		addToTaskCounts(tx, prefix[:ownerLen], 0, len(r.Data)-old.dataLen))
	if old.parts {
		err = errors.Join(err, deleteParts(tx, old.id))
	}
	return errors.Join(err, putTask(tx, newHeader(r), prefix, r.Data))
}

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

// A taskEntry contains the data that the deletion of a record requires.
type taskEntry struct {
	id      string
	prefix  []byte // see ownerPrefix
	expires int64
	dataLen int
}

// expiredTasks returns expired records, in the order of their expiry.
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
	var err error
	for _, e := range expired {
		err = errors.Join(err, deleteTask(tx, e))
	}
	return len(expired), err
}

func taskCount(tx *bbolt.Tx, key []byte) (n int, size int64) {
	stored := tx.Bucket(bucketCounts).Get(key)
	if len(stored) != taskCountLen {
		return 0, 0
	}
	n = int(min(binary.BigEndian.Uint64(stored), math.MaxInt))
	return n, int64(min(binary.BigEndian.Uint64(stored[taskCountLen/2:]), math.MaxInt64))
}

func addToTaskCounts(tx *bbolt.Tx, owner []byte, by, bySize int) error {
	var err error
	counts := tx.Bucket(bucketCounts)
	for _, key := range [][]byte{owner, keyAll} {
		n, size := taskCount(tx, key)
		if n = max(n+by, 0); n == 0 {
			err = errors.Join(err, counts.Delete(key))
			continue
		}
		stored := binary.BigEndian.AppendUint64(nil, uint64(n))
		stored = binary.BigEndian.AppendUint64(stored, uint64(max(size+int64(bySize), 0)))
		err = errors.Join(err, counts.Put(key, stored))
	}
	return err
}
