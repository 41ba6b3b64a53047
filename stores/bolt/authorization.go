package bolt

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"github.com/patchbay-mcp/patchbay/oauth/authserver"
)

const (
	// maxKind and maxKey are the maximum lengths of the names of records, in bytes. A kind has to
	// fit the length byte of the index of expiries, and a key has to fit the keys of bbolt.
	maxKind = 64
	maxKey  = 4 << 10

	// sweepEvery is the time between sweeps, which remove expired records. Such records are
	// invisible in any case.
	sweepEvery = time.Minute
	// sweepBatch is the maximum number of records that one write removes, so that it does not take
	// long. A write adds one record at most, so the sweeps keep up.
	sweepBatch = 500
)

// An AuthorizationStore is an [authserver.Store] in a file. It is safe for concurrent use.
//
// The file contains tokens and codes as hashes, and other secrets sealed, but it names which users
// authorized which clients. Without [authserver.Options.SealKeys] the file also contains the key of
// the sealed secrets: anyone with a copy of the file, such as a backup, can then sign tokens and
// read the tokens of identity providers.
type AuthorizationStore struct {
	file *file

	sweepMu sync.Mutex // held during a sweep
	swept   time.Time  // guarded by sweepMu
}

var _ authserver.Store = (*AuthorizationStore)(nil)

var errAuthorizationClosed = fmt.Errorf("%w: %w", ErrClosed, authserver.ErrStoreClosed)

// OpenAuthorization opens the store of an authorization server in a file, which is created if it
// does not exist. opts may be nil. The error is [ErrInUse] if the file stays open elsewhere, and
// [ErrDamaged] if the file is damaged. A file of another program or of a later version is not
// touched.
func OpenAuthorization(path string, opts *Options) (*AuthorizationStore, error) {
	f, err := openFile(path, opts, authorizationSchema)
	if err != nil {
		return nil, err
	}
	return &AuthorizationStore{file: f}, nil
}

// Path returns the path of the file.
func (s *AuthorizationStore) Path() string { return s.file.db.Path() }

// Close waits for changes that are being written, and closes the file. Afterwards all methods
// return an error that is [ErrClosed] and [authserver.ErrStoreClosed].
func (s *AuthorizationStore) Close() error { return s.file.Close() }

// Get returns the value of a record, or nil if the store does not contain the record.
func (s *AuthorizationStore) Get(ctx context.Context, kind, key string) (value []byte, err error) {
	err = s.read(ctx, func(tx *bbolt.Tx) error {
		value = bytes.Clone(getValue(tx, kind, key, time.Now()))
		return nil
	})
	return value, err
}

// Put writes a record.
func (s *AuthorizationStore) Put(ctx context.Context, kind, key string, value []byte, expires time.Time) error {
	return s.write(ctx, kind, key, len(value), func(tx *bbolt.Tx) error {
		return putValue(tx, kind, key, value, expires)
	})
}

// GetAndDelete removes a record and returns its value, or nil if the store does not contain the
// record.
func (s *AuthorizationStore) GetAndDelete(ctx context.Context, kind, key string) ([]byte, error) {
	// Most requests for records that do not exist are guesses. They take no write.
	if value, err := s.Get(ctx, kind, key); value == nil {
		return nil, err
	}
	var value []byte
	err := s.write(ctx, kind, key, 0, func(tx *bbolt.Tx) error {
		value = bytes.Clone(getValue(tx, kind, key, time.Now()))
		return deleteValue(tx, kind, key)
	})
	if err != nil {
		return nil, err
	}
	return value, nil
}

// Update changes a record.
func (s *AuthorizationStore) Update(ctx context.Context, kind, key string,
	change func(old []byte) ([]byte, time.Time, error)) error {
	err := s.write(ctx, kind, key, 0, func(tx *bbolt.Tx) error {
		value, expires, err := change(bytes.Clone(getValue(tx, kind, key, time.Now())))
		switch {
		case err != nil:
			return refusedError{err}
		case value == nil:
			return deleteValue(tx, kind, key)
		}
		return putValue(tx, kind, key, value, expires)
	})
	if refused, ok := errors.AsType[refusedError](err); ok {
		return refused.error
	}
	return err
}

func (s *AuthorizationStore) read(ctx context.Context, do func(tx *bbolt.Tx) error) error {
	return authorizationError(s.file.read(ctx, do))
}

func (s *AuthorizationStore) write(ctx context.Context, kind, key string, size int, do func(tx *bbolt.Tx) error) error {
	switch {
	case kind == "" || len(kind) > maxKind:
		return fmt.Errorf("bolt: invalid kind of %d bytes: must have 1 to %d", len(kind), maxKind)
	case key == "" || len(key) > maxKey:
		return fmt.Errorf("bolt: invalid key of %d bytes: must have 1 to %d", len(key), maxKey)
	}
	if err := s.sweepIfDue(ctx); err != nil {
		return err
	}
	return authorizationError(s.file.write(ctx, size, do))
}

// sweepIfDue removes expired records. If they exceed a batch, the next sweep is due at once.
func (s *AuthorizationStore) sweepIfDue(ctx context.Context) error {
	s.sweepMu.Lock()
	defer s.sweepMu.Unlock()
	now := time.Now()
	if now.Sub(s.swept) < sweepEvery {
		return nil
	}
	done := false
	err := s.file.write(ctx, 0, func(tx *bbolt.Tx) (err error) {
		done, err = sweepValues(tx, now)
		return err
	})
	if err == nil && done {
		s.swept = now
	}
	return authorizationError(err)
}

func authorizationError(err error) error {
	if errors.Is(err, ErrClosed) {
		return errAuthorizationClosed
	}
	return err
}

// The buckets of an authorization store. Each kind adds a bucket: key → expiry in nanoseconds since
// 1970, value.
var (
	bucketValueExpires = []byte("expires") // expiry, length of the kind, kind, key → empty

	authorizationSchema = schema{format: "patchbay authserver store 2", buckets: [][]byte{bucketValueExpires}}
)

const (
	kindPrefix = "kind " // of the names of the buckets of kinds
	expiryLen  = 8
)

func kindBucket(kind string) []byte { return []byte(kindPrefix + kind) }

// getValue returns a value that has not expired, or nil. The value is valid during the transaction.
func getValue(tx *bbolt.Tx, kind, key string, now time.Time) []byte {
	records := tx.Bucket(kindBucket(kind))
	if records == nil || key == "" {
		return nil
	}
	stored := records.Get([]byte(key))
	if len(stored) < expiryLen {
		return nil
	}
	if expires := binary.BigEndian.Uint64(stored); expires != 0 && expires <= expiryNanos(now) {
		return nil
	}
	return stored[expiryLen:]
}

func putValue(tx *bbolt.Tx, kind, key string, value []byte, expires time.Time) error {
	records, err := tx.CreateBucketIfNotExists(kindBucket(kind))
	if err != nil {
		return err
	}
	stored := binary.BigEndian.AppendUint64(make([]byte, 0, expiryLen+len(value)), expiryNanos(expires))
	err = errors.Join(unindexValue(tx, records, kind, key), records.Put([]byte(key), append(stored, value...)))
	if !expires.IsZero() {
		err = errors.Join(err, tx.Bucket(bucketValueExpires).Put(valueExpiryKey(stored[:expiryLen], kind, key), nil))
	}
	return err
}

func deleteValue(tx *bbolt.Tx, kind, key string) error {
	records := tx.Bucket(kindBucket(kind))
	if records == nil || records.Get([]byte(key)) == nil {
		return nil
	}
	return errors.Join(unindexValue(tx, records, kind, key), records.Delete([]byte(key)))
}

func unindexValue(tx *bbolt.Tx, records *bbolt.Bucket, kind, key string) error {
	stored := records.Get([]byte(key))
	if len(stored) < expiryLen {
		return nil
	}
	return tx.Bucket(bucketValueExpires).Delete(valueExpiryKey(stored[:expiryLen], kind, key))
}

// expiryNanos returns the stored form of an expiry: 0 for never, otherwise nanoseconds since 1970,
// limited to what int64 can represent.
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

func valueExpiryKey(nanos []byte, kind, key string) []byte {
	return slices.Concat(nanos, []byte{byte(len(kind))}, []byte(kind), []byte(key))
}

func parseValueExpiryKey(index []byte) (kind, key string, ok bool) {
	if len(index) < expiryLen+1 {
		return "", "", false
	}
	kindLen, names := int(index[expiryLen]), string(index[expiryLen+1:])
	if len(names) < kindLen {
		return "", "", false
	}
	return names[:kindLen], names[kindLen:], true
}

// sweepValues removes a batch of expired records, the oldest first. It reports whether no expired
// record is left.
func sweepValues(tx *bbolt.Tx, now time.Time) (done bool, err error) {
	var expired [][]byte
	cursor := tx.Bucket(bucketValueExpires).Cursor()
	for index, _ := cursor.First(); index != nil && len(expired) < sweepBatch; index, _ = cursor.Next() {
		if len(index) > expiryLen && binary.BigEndian.Uint64(index) > expiryNanos(now) {
			break
		}
		expired = append(expired, bytes.Clone(index))
	}
	if len(expired) == 0 {
		return true, errNoChange
	}
	for _, index := range expired {
		if kind, key, ok := parseValueExpiryKey(index); ok {
			err = errors.Join(err, deleteValue(tx, kind, key))
		}
		err = errors.Join(err, tx.Bucket(bucketValueExpires).Delete(index))
	}
	return len(expired) < sweepBatch, err
}
