package authserver

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

const (
	// fileStoreFormat is what a file says of itself. A file that says something else is left alone.
	fileStoreFormat = "patchbay authserver store 1"
	// fileStorePatience is how long OpenFileStore waits for a process that has the file open: as long as one that was told
	// to end may take for its last requests.
	fileStorePatience = 10 * time.Second
	// sweepAtMost is how many expired records are removed before a write, so that none waits long. Where there are more,
	// the next write goes on: it adds one record at most, so that they cannot pile up.
	sweepAtMost = 500
	// expiryLen is the time, in nanoseconds since 1970, that each value begins with.
	expiryLen = 8
)

var (
	bucketFormat  = []byte("format")
	bucketExpires = []byte("expires") // time, length of the kind, kind, key → nothing
	keyFormat     = []byte("format")
)

// OpenFileStore returns a Store that keeps its records in one file, which is made if it is not there: 0600, readable by
// its owner alone. What a method has written survives the death of the process at any moment, and of the machine as far
// as its disk keeps what it says it has. A file belongs to one process at a time; whoever comes second waits ten
// seconds for it, and then gets an error. A file that others may read is refused.
//
// The file holds tokens and codes as hashes and other secrets sealed, but names who logged in to what. Unless
// [Options.SealKeys] are given, the key of the seals lies in the file too: then whoever has a copy of it, such as a backup,
// can sign tokens and has what third parties gave. Room that expired records took is used again, not given back.
func OpenFileStore(path string) (Store, error) {
	if err := checkStoreFile(path); err != nil {
		return nil, err
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: fileStorePatience, FreelistType: bbolt.FreelistMapType})
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return nil, fmt.Errorf("authserver: open store %s: another process uses it", path)
	case err != nil:
		return nil, fmt.Errorf("authserver: open store %s: %w", path, err)
	}
	if err := db.Update(prepareFile); err != nil {
		return nil, errors.Join(fmt.Errorf("authserver: open store %s: %w", path, err), db.Close())
	}
	return &fileStore{db: db}, nil
}

// checkStoreFile refuses what cannot be a store's file, or may be read by others.
func checkStoreFile(path string) error {
	err := checkPrivateFile(path)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("authserver: open store: %w", err)
}

// checkPrivateFile refuses a file that others may read. Windows has no such bits: there the folder's rules hold.
func checkPrivateFile(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is no file", path)
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("others may read or write %s (mode %04o): chmod 600 it", path, info.Mode().Perm())
	}
	return nil
}

func prepareFile(tx *bbolt.Tx) error {
	format := tx.Bucket(bucketFormat)
	if format == nil {
		if name, _ := tx.Cursor().First(); name != nil {
			return errors.New("it is a database of something else")
		}
		var err error
		if format, err = tx.CreateBucket(bucketFormat); err != nil {
			return err
		}
		if err := format.Put(keyFormat, []byte(fileStoreFormat)); err != nil {
			return err
		}
	}
	if said := format.Get(keyFormat); string(said) != fileStoreFormat {
		return fmt.Errorf("its format is %.60q, this program knows %q", said, fileStoreFormat)
	}
	if _, err := tx.CreateBucketIfNotExists(bucketExpires); err != nil {
		return err
	}
	return prepareCounts(tx)
}

type fileStore struct {
	db *bbolt.DB

	sweeping sync.Mutex // guards the field below, and is held during a sweep
	swept    time.Time
}

// Get returns the value of a record.
func (s *fileStore) Get(ctx context.Context, kind, key string) ([]byte, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	var value []byte
	err := s.db.View(func(tx *bbolt.Tx) error {
		value = bytes.Clone(liveRecord(tx, kind, key, time.Now()))
		return nil
	})
	return value, storeError("read", err)
}

// Put writes a record.
func (s *fileStore) Put(ctx context.Context, kind, key string, value []byte, expires time.Time) error {
	if err := checkRecordName(kind, key); err != nil {
		return err
	}
	return s.write(ctx, func(tx *bbolt.Tx) error {
		return putRecord(tx, kind, key, value, expires)
	})
}

// Take returns the value of a record and removes it.
func (s *fileStore) Take(ctx context.Context, kind, key string) ([]byte, error) {
	// Most of those who take what is not there guess. They need not cost a write.
	if value, err := s.Get(ctx, kind, key); value == nil {
		return nil, err
	}
	var value []byte
	err := s.write(ctx, func(tx *bbolt.Tx) error {
		value = bytes.Clone(liveRecord(tx, kind, key, time.Now()))
		return deleteRecord(tx, kind, key)
	})
	if err != nil {
		return nil, err
	}
	return value, nil
}

// Update changes a record.
func (s *fileStore) Update(ctx context.Context, kind, key string, change func(old []byte) ([]byte, time.Time, error)) error {
	if err := checkRecordName(kind, key); err != nil {
		return err
	}
	var refused error
	err := s.write(ctx, func(tx *bbolt.Tx) error {
		value, expires, err := change(bytes.Clone(liveRecord(tx, kind, key, time.Now())))
		if refused = err; err != nil {
			return err
		}
		if value == nil {
			return deleteRecord(tx, kind, key)
		}
		return putRecord(tx, kind, key, value, expires)
	})
	if refused != nil {
		return refused
	}
	return err
}

// Count returns the number of records of a kind, with those that have expired and were not swept yet.
func (s *fileStore) Count(ctx context.Context, kind string) (int, error) {
	if err := context.Cause(ctx); err != nil {
		return 0, err
	}
	if err := s.sweepIfDue(); err != nil {
		return 0, storeError("sweep", err)
	}
	n := 0
	err := s.db.View(func(tx *bbolt.Tx) error {
		n = recordCount(tx, kind)
		return nil
	})
	return n, storeError("count", err)
}

// Close waits for what is being written, and closes the file.
func (s *fileStore) Close() error { return storeError("close", s.db.Close()) }

// write runs a change as one transaction that is on the disk when write returns.
func (s *fileStore) write(ctx context.Context, change func(tx *bbolt.Tx) error) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if err := s.sweepIfDue(); err != nil {
		return storeError("sweep", err)
	}
	return storeError("write", s.db.Update(change))
}

// sweepIfDue removes expired records in a transaction of its own: a write that is refused must not bring them back. It is
// due again at once until there is nothing left to remove.
func (s *fileStore) sweepIfDue() error {
	s.sweeping.Lock()
	defer s.sweeping.Unlock()
	now, done := time.Now(), false
	if now.Sub(s.swept) < sweepEvery {
		return nil
	}
	err := s.db.Update(func(tx *bbolt.Tx) (err error) {
		done, err = sweepRecords(tx, now)
		return err
	})
	if err == nil && done {
		s.swept = now
	}
	return err
}

func storeError(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, bolterrors.ErrDatabaseNotOpen):
		return ErrStoreClosed
	}
	return fmt.Errorf("authserver: %s store: %w", what, err)
}

const kindPrefix = "kind "

// kindBucket keeps the names of kinds apart from our own.
func kindBucket(kind string) []byte { return []byte(kindPrefix + kind) }

func liveRecord(tx *bbolt.Tx, kind, key string, now time.Time) []byte {
	records := tx.Bucket(kindBucket(kind))
	if records == nil {
		return nil
	}
	stored := records.Get([]byte(key))
	if stored == nil {
		return nil
	}
	value, expires := splitRecord(stored)
	if expired(expires, now) {
		return nil
	}
	return value
}

// splitRecord takes a stored value apart. One that is too short to be ours counts as expired.
func splitRecord(stored []byte) (value []byte, expires time.Time) {
	if len(stored) < expiryLen {
		return nil, time.Unix(0, 0)
	}
	if nanos := binary.BigEndian.Uint64(stored); nanos != 0 {
		expires = time.Unix(0, int64(min(nanos, math.MaxInt64)))
	}
	return stored[expiryLen:], expires
}

func putRecord(tx *bbolt.Tx, kind, key string, value []byte, expires time.Time) error {
	records, err := tx.CreateBucketIfNotExists(kindBucket(kind))
	if err != nil {
		return err
	}
	if records.Get([]byte(key)) == nil {
		if err := addToCount(tx, kind, 1); err != nil {
			return err
		}
	}
	if err := unindexRecord(tx, records, kind, key); err != nil {
		return err
	}
	stored := binary.BigEndian.AppendUint64(make([]byte, 0, expiryLen+len(value)), expiryNanos(expires))
	if err := records.Put([]byte(key), append(stored, value...)); err != nil {
		return err
	}
	if expires.IsZero() {
		return nil
	}
	return tx.Bucket(bucketExpires).Put(expiryIndex(stored[:expiryLen], kind, key), nil)
}

// expiryNanos returns the time of an expiry as it is kept: 0 is never, and what lies outside of what can be counted is the
// nearest that can.
func expiryNanos(expires time.Time) uint64 {
	switch {
	case expires.IsZero():
		return 0
	case expires.Before(time.Unix(0, 1)):
		return 1
	case expires.After(time.Unix(0, math.MaxInt64)):
		return math.MaxInt64
	}
	return uint64(expires.UnixNano())
}

func deleteRecord(tx *bbolt.Tx, kind, key string) error {
	records := tx.Bucket(kindBucket(kind))
	if records == nil || records.Get([]byte(key)) == nil {
		return nil
	}
	if err := addToCount(tx, kind, -1); err != nil {
		return err
	}
	if err := unindexRecord(tx, records, kind, key); err != nil {
		return err
	}
	return records.Delete([]byte(key))
}

func unindexRecord(tx *bbolt.Tx, records *bbolt.Bucket, kind, key string) error {
	stored := records.Get([]byte(key))
	if len(stored) < expiryLen {
		return nil
	}
	return tx.Bucket(bucketExpires).Delete(expiryIndex(stored[:expiryLen], kind, key))
}

func expiryIndex(nanos []byte, kind, key string) []byte {
	index := append(make([]byte, 0, len(nanos)+1+len(kind)+len(key)), nanos...)
	index = append(index, byte(len(kind)))
	index = append(index, kind...)
	return append(index, key...)
}

// sweepRecords removes what has expired, the oldest first, and reports whether that was all.
func sweepRecords(tx *bbolt.Tx, now time.Time) (done bool, err error) {
	var found [][]byte
	cursor := tx.Bucket(bucketExpires).Cursor()
	for index, _ := cursor.First(); index != nil && len(found) < sweepAtMost; index, _ = cursor.Next() {
		if len(index) > expiryLen && binary.BigEndian.Uint64(index) > expiryNanos(now) {
			break
		}
		found = append(found, bytes.Clone(index))
	}
	for _, index := range found {
		if kind, key, ok := splitIndex(index); ok {
			if err := deleteRecord(tx, kind, key); err != nil {
				return false, err
			}
		}
		if err := tx.Bucket(bucketExpires).Delete(index); err != nil {
			return false, err
		}
	}
	return len(found) < sweepAtMost, nil
}

func splitIndex(index []byte) (kind, key string, ok bool) {
	if len(index) < expiryLen+1 {
		return "", "", false
	}
	rest := string(index[expiryLen+1:])
	length := int(index[expiryLen])
	if len(rest) < length {
		return "", "", false
	}
	return strings.Clone(rest[:length]), rest[length:], true
}
