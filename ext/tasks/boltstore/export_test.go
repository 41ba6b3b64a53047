package boltstore

import (
	"encoding/binary"
	"hash/crc32"

	"go.etcd.io/bbolt"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
)

// Commits returns the number of transactions that a file has seen.
func Commits(s *Store) (n int) {
	_ = s.view(func(tx *bbolt.Tx) error {
		n = tx.ID()
		return nil
	})
	return n
}

// View reads the database of a store.
func View(s *Store, do func(tx *bbolt.Tx) error) error { return s.view(do) }

// Change writes to the database of a store, as if it had been damaged.
func Change(s *Store, do func(tx *bbolt.Tx) error) error { return s.update(do) }

// Encode returns the stored form of a record, and true if that is all of it.
func Encode(r tasks.Record) ([]byte, bool) {
	h := headFor(r)
	return h.encode(), !h.parts
}

// Reencode reads the stored form of a record whose checksum is made right first, and gives it as it would be stored.
func Reencode(id string, stored []byte) (again []byte, err error) {
	if len(stored) >= headLen {
		if end := headLen + int64(binary.BigEndian.Uint32(stored[headLen-4:])); end <= int64(len(stored)) {
			binary.BigEndian.PutUint32(stored[1:], crc32.Update(crc32.Checksum([]byte(id), checksums), checksums, stored[5:end]))
		}
	}
	h, err := decodeHead(id, stored)
	if err != nil {
		return nil, err
	}
	return h.encode(), nil
}
