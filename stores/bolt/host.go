package bolt

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"
	"unicode/utf8"

	"go.etcd.io/bbolt"

	"github.com/patchbay-mcp/patchbay/host/state"
)

const (
	// maxStateKey and maxStateValue bound entries, in bytes: see [state.Store].
	maxStateKey   = 1 << 10
	maxStateValue = 32 << 20
	// maxHold limits how long consecutive transactions of a process may keep the file open, and
	// holdPause is the time for which the process then leaves the file to other processes.
	maxHold   = 100 * time.Millisecond
	holdPause = 5 * time.Millisecond
	// minPoll and maxPoll bound the time between attempts to open a file that is in use. It is random,
	// so that several processes take turns.
	minPoll, maxPoll = 500 * time.Microsecond, 4 * time.Millisecond
)

// A StateStore is a [state.Store] in a file that several processes may use: each transaction,
// or a few concurrent transactions together, opens the file and locks it. It is safe for concurrent
// use, and need not be closed.
type StateStore struct {
	path string
	wait time.Duration

	mu     sync.Mutex    // guards the fields below
	file   *file         // open for the users
	users  int           // transactions that use file
	until  time.Time     // no more users are added after that
	closed chan struct{} // closed after the file; nil if the file is not open
}

var _ state.Store = (*StateStore)(nil)

// OpenState returns the state of a host in a file. Files and directories are created with the first
// entry; the directory gets mode 0700. It checks an existing file: the error is [ErrInUse] if other
// processes keep it locked, and [ErrDamaged] if it is damaged. A file of another program or of a
// later version is not touched. opts may be nil.
//
// The errors of the methods also include [ErrFull] and [ErrReadOnly]. A read-only file can be read.
func OpenState(path string, opts *Options) (*StateStore, error) {
	s := &StateStore{path: path, wait: defaultWait}
	if opts != nil && opts.Wait != 0 {
		s.wait = max(opts.Wait, 0)
	}
	return s, s.read(context.Background(), func(*bbolt.Tx) error { return nil })
}

// Path returns the path of the file.
func (s *StateStore) Path() string { return s.path }

// Get returns an entry.
func (s *StateStore) Get(ctx context.Context, kind, key string) (value []byte, version uint64, err error) {
	err = s.read(ctx, func(tx *bbolt.Tx) (err error) {
		value, version, err = getEntry(tx.Bucket(kindBucket(kind)), []byte(key))
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	return value, version, nil
}

// CompareAndSet replaces or deletes an entry.
func (s *StateStore) CompareAndSet(ctx context.Context, kind, key string, version uint64, value []byte) error {
	switch {
	case kind == "" || len(kind) > maxKind || !utf8.ValidString(kind):
		return fmt.Errorf("bolt: invalid kind %.80q: must have 1 to %d bytes of UTF-8", kind, maxKind)
	case key == "" || len(key) > maxStateKey || !utf8.ValidString(key):
		return fmt.Errorf("bolt: invalid key %.80q: must have 1 to %d bytes of UTF-8", key, maxStateKey)
	case len(value) > maxStateValue:
		return fmt.Errorf("bolt: invalid value of %d bytes: must have at most %d", len(value), maxStateValue)
	}
	err := s.use(ctx, true, func(f *file) error {
		return f.write(ctx, len(value), func(tx *bbolt.Tx) error { return setEntry(tx, kind, key, version, value) })
	})
	if refused, ok := errors.AsType[refusedError](err); ok {
		return refused.error
	}
	return err
}

// List returns all entries of a kind.
func (s *StateStore) List(ctx context.Context, kind string) iter.Seq2[state.Entry, error] {
	return func(yield func(state.Entry, error) bool) {
		var all []state.Entry // a transaction that is open would keep other processes waiting
		err := s.read(ctx, func(tx *bbolt.Tx) error {
			b := tx.Bucket(kindBucket(kind))
			if b == nil {
				return nil
			}
			return b.ForEach(func(key, _ []byte) error {
				value, version, err := getEntry(b, key)
				all = append(all, state.Entry{Key: string(key), Value: value, Version: version})
				return err
			})
		})
		if err != nil {
			yield(state.Entry{}, err)
			return
		}
		for _, e := range all {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// read runs a transaction that reads. An absent file counts as empty.
func (s *StateStore) read(ctx context.Context, do func(tx *bbolt.Tx) error) error {
	err := s.use(ctx, false, func(f *file) error { return f.read(ctx, do) })
	if errors.Is(err, errNoFile) {
		return nil
	}
	return err
}

// entryLen is the length of the version and the checksum in front of a value.
const entryLen = 8 + 4

func entrySum(key, version, value []byte) uint32 {
	return crc32.Update(crc32.Update(crc32.Checksum(key, checksums), checksums, version), checksums, value)
}

// getEntry returns a copy of an entry. The bucket may be nil.
func getEntry(b *bbolt.Bucket, key []byte) (value []byte, version uint64, err error) {
	if b == nil || len(key) == 0 {
		return nil, 0, nil
	}
	stored := b.Get(key)
	if stored == nil {
		return nil, 0, nil
	}
	if len(stored) < entryLen || entrySum(key, stored[:8], stored[entryLen:]) != binary.BigEndian.Uint32(stored[8:]) {
		return nil, 0, fmt.Errorf("%w: invalid entry %.80q", ErrDamaged, key)
	}
	return append([]byte{}, stored[entryLen:]...), binary.BigEndian.Uint64(stored), nil
}

func setEntry(tx *bbolt.Tx, kind, key string, version uint64, value []byte) error {
	_, current, err := getEntry(tx.Bucket(kindBucket(kind)), []byte(key))
	if errors.Is(err, ErrDamaged) && version == 0 { // so that a program can replace it
		current, err = 0, nil
	}
	switch {
	case err != nil:
		return err
	case current != version:
		return refusedError{state.ErrConflict}
	case value == nil && version == 0:
		return errNoChange
	}
	b, err := tx.CreateBucketIfNotExists(kindBucket(kind))
	if err != nil {
		return err
	}
	if value == nil {
		return b.Delete([]byte(key))
	}
	next, err := b.NextSequence() // shared by all keys, so that a deleted key never gets a version again
	if err != nil {
		return err
	}
	stored := binary.BigEndian.AppendUint64(make([]byte, 0, entryLen+len(value)), next)
	stored = binary.BigEndian.AppendUint32(stored, entrySum([]byte(key), stored, value))
	return b.Put(bytes.Clone([]byte(key)), append(stored, value...))
}

// stateSchema contains a bucket for each kind, which is created with its first entry.
var stateSchema = schema{format: "patchbay host state 1"}

var errNoFile = fmt.Errorf("bolt: %w", fs.ErrNotExist)

// use runs a transaction with the file, which it opens unless other transactions of the process
// have opened it. It creates the file only to write.
func (s *StateStore) use(ctx context.Context, write bool, do func(f *file) error) error {
	f, err := s.acquire(ctx, write)
	if err != nil {
		return err
	}
	defer s.release()
	return do(f)
}

func (s *StateStore) acquire(ctx context.Context, write bool) (*file, error) {
	for {
		s.mu.Lock()
		if closed := s.closed; closed != nil { // another transaction opened the file, or opens it now
			if s.file != nil && time.Now().Before(s.until) && !(write && s.file.db.IsReadOnly()) {
				defer s.mu.Unlock()
				s.users++
				return s.file, nil
			}
			s.mu.Unlock()
			select {
			case <-closed:
				continue
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
		s.closed = make(chan struct{})
		s.mu.Unlock()
		f, err := s.open(ctx, write)
		s.mu.Lock()
		defer s.mu.Unlock()
		if err != nil {
			close(s.closed)
			s.closed = nil
			return nil, err
		}
		s.file, s.users, s.until = f, 1, time.Now().Add(maxHold)
		return f, nil
	}
}

// release ends a transaction. The last one closes the file.
func (s *StateStore) release() {
	s.mu.Lock()
	s.users--
	f := s.file
	if s.users > 0 {
		s.mu.Unlock()
		return
	}
	s.file = nil // new transactions wait until closed is
	late := time.Now().After(s.until)
	s.mu.Unlock()
	_ = f.Close() // all changes were written
	if late {
		time.Sleep(holdPause)
	}
	s.mu.Lock()
	close(s.closed)
	s.closed = nil
	s.mu.Unlock()
}

// open opens the file, and waits while another process has it open.
func (s *StateStore) open(ctx context.Context, write bool) (*file, error) {
	if err := s.prepare(write); err != nil {
		return nil, err
	}
	access := bbolt.Options{Timeout: 1} // a single attempt
	deadline := time.Now().Add(s.wait)
	for {
		f, err := openFileFor(s.path, access, stateSchema)
		switch {
		case err == nil:
			return f, nil
		case errors.Is(err, ErrReadOnly) && !write && !access.ReadOnly:
			access.ReadOnly = true
			continue
		case !errors.Is(err, ErrInUse) || time.Now().After(deadline):
			return nil, err
		}
		select {
		case <-time.After(minPoll + rand.N(maxPoll-minPoll)):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// prepare makes the directory of a file that does not exist.
func (s *StateStore) prepare(write bool) error {
	info, err := os.Stat(s.path)
	switch {
	case err == nil && (write || info.Size() > 0):
		return nil
	case err == nil || !write && errors.Is(err, fs.ErrNotExist):
		return errNoFile
	case !errors.Is(err, fs.ErrNotExist):
		return openError(s.path, err)
	}
	if err := os.MkdirAll(filepath.Dir(s.path), 0o700); err != nil {
		return openError(s.path, err)
	}
	return nil
}
