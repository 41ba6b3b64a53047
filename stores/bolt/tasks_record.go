package bolt

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
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

// partLen is the length of the parts of longer data, in bytes.
const partLen = 64 << 10

// checksums is the table of CRC-32C, for which processors have instructions.
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

// newHeader returns the header of a record.
func newHeader(r tasks.Record) header {
	h := header{
		owner: r.Owner, id: r.ID, created: r.Created.UnixMilli(), expires: r.Expires.UnixMilli(), version: r.Version,
		done:  r.Done,
		parts: len(r.Data) > maxInline, dataLen: len(r.Data), dataSum: crc32.Checksum(r.Data, checksums),
	}
	if !h.parts {
		h.inline = r.Data
	}
	return h
}

// encode returns the stored form of a header.
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

// decodeHeader reads what encode returned.
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

// record returns the record with a copy of its data.
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

// readParts joins the parts of data. If parts are missing or too long, the result does not have the
// given size.
func readParts(tx *bbolt.Tx, id string, size int) []byte {
	data, prefix := make([]byte, 0, size), partPrefix(id)
	cursor := tx.Bucket(bucketParts).Cursor()
	for key, part := cursor.Seek(prefix); bytes.HasPrefix(key, prefix) && len(data) <= size; key, part = cursor.Next() {
		data = append(data, part...)
	}
	return data
}

// writeParts replaces the parts of a record's data.
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
