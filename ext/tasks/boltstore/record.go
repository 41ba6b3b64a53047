package boltstore

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"time"

	"go.etcd.io/bbolt"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
)

// A record is kept as a head, by its id: the format, a checksum of what follows and of the id, flags, Created and Expires in
// milliseconds, the version, length and checksum of the data, the owner. The data follows, or lies in parts elsewhere.
const (
	recordFormat = 1
	headLen      = 1 + 4 + 1 + 8 + 8 + 8 + 4 + 4 + 4 // all but the owner
	flagDone     = 1 << 0
	flagParts    = 1 << 1
)

// maxInline is how much data lies with its head. More would be written anew each time a neighbour in the tree is.
const maxInline = 16 << 10

// partLen is the size of the parts of longer data, for the same reason.
const partLen = 64 << 10

// checksums is the table of CRC-32C, which processors compute.
var checksums = crc32.MakeTable(crc32.Castagnoli)

// A head is a record without its data. It lives as long as the transaction it is from.
type head struct {
	owner, id        string
	created, expires int64
	version          uint64
	done, parts      bool
	dataLen          int
	dataSum          uint32
	inline           []byte // the data, if it is not in parts
}

// headFor returns the head of a record.
func headFor(r tasks.Record) head {
	h := head{
		owner: r.Owner, id: r.ID, created: r.Created.UnixMilli(), expires: r.Expires.UnixMilli(), version: r.Version, done: r.Done,
		parts: len(r.Data) > maxInline, dataLen: len(r.Data), dataSum: crc32.Checksum(r.Data, checksums),
	}
	if !h.parts {
		h.inline = r.Data
	}
	return h
}

// encode returns a head as it is kept.
func (h head) encode() []byte {
	b := make([]byte, 5, headLen+len(h.owner)+len(h.inline))
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
	binary.BigEndian.PutUint32(b[1:], headSum(h.id, b[5:]))
	return append(b, h.inline...)
}

// headSum is the checksum of a head, which a head that lies under another id does not have.
func headSum(id string, rest []byte) uint32 {
	return crc32.Update(crc32.Checksum([]byte(id), checksums), checksums, rest)
}

// decodeHead reads what encode gave.
func decodeHead(id string, b []byte) (head, error) {
	if len(b) < headLen {
		return head{}, damagedRecord(id, fmt.Sprintf("it has %d bytes", len(b)))
	}
	if b[0] != recordFormat {
		return head{}, damagedRecord(id, fmt.Sprintf("its format is %d, want %d", b[0], recordFormat))
	}
	u64 := func(at int) uint64 { return binary.BigEndian.Uint64(b[at:]) }
	u32 := func(at int) uint32 { return binary.BigEndian.Uint32(b[at:]) }
	ownerEnd := headLen + int64(u32(headLen-4))
	if ownerEnd > int64(len(b)) || headSum(id, b[5:ownerEnd]) != u32(1) {
		return head{}, damagedRecord(id, "its checksum is wrong")
	}
	h := head{
		owner: string(b[headLen:ownerEnd]), id: id,
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
		return head{}, damagedRecord(id, fmt.Sprintf("its flags are %08b", b[5]))
	case h.dataLen > tasks.MaxRecord || len(h.inline) != inline:
		return head{}, damagedRecord(id, fmt.Sprintf("%d bytes follow where %d of data should be", len(h.inline), h.dataLen))
	}
	return h, nil
}

// record returns the record with a copy of its data.
func (h head) record(tx *bbolt.Tx) (tasks.Record, error) {
	var data []byte
	if h.parts {
		data = readParts(tx, h.id, h.dataLen)
	} else if h.dataLen > 0 {
		data = bytes.Clone(h.inline)
	}
	if len(data) != h.dataLen || crc32.Checksum(data, checksums) != h.dataSum {
		return tasks.Record{}, damagedRecord(h.id, "its data is not what was written")
	}
	return tasks.Record{
		Owner: h.owner, ID: h.id, Created: time.UnixMilli(h.created).UTC(), Expires: time.UnixMilli(h.expires).UTC(),
		Done: h.done, Version: h.version, Data: data,
	}, nil
}

func damagedRecord(id, why string) error {
	return fmt.Errorf("%w: the record of task %.8s…: %s", ErrDamaged, id, why) // who knows the id can use the task
}

// partPrefix begins the keys of the parts of an id's data. No id has the byte that ends it.
func partPrefix(id string) []byte { return append([]byte(id), '/') }

// readParts joins the parts of data. It gives fewer or more bytes than there should be if the parts are not whole.
func readParts(tx *bbolt.Tx, id string, size int) []byte {
	data, prefix := make([]byte, 0, size), partPrefix(id)
	cursor := tx.Bucket(bucketParts).Cursor()
	for key, part := cursor.Seek(prefix); bytes.HasPrefix(key, prefix) && len(data) <= size; key, part = cursor.Next() {
		data = append(data, part...)
	}
	return data
}

// writeParts replaces the parts of an id's data. All the parts there were are gone.
func writeParts(tx *bbolt.Tx, id string, data []byte) error {
	if err := deleteParts(tx, id); err != nil {
		return err
	}
	parts, prefix := tx.Bucket(bucketParts), partPrefix(id)
	for i := 0; len(data) > 0; i++ {
		n := min(len(data), partLen)
		if err := parts.Put(binary.BigEndian.AppendUint32(bytes.Clone(prefix), uint32(i)), data[:n]); err != nil {
			return err
		}
		data = data[n:]
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
	for _, key := range keys {
		if err := parts.Delete(key); err != nil {
			return err
		}
	}
	return nil
}
