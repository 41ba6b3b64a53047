// Package audit keeps a log of the requests that a [host.Host] serves, and of changes to its
// servers, in files that nobody can alter or remove unnoticed.
//
//	log, err := audit.Open(&audit.Options{Dir: dir, Key: key})
//	if err != nil {
//		return err
//	}
//	defer log.Close()
//	h, err := host.Open(ctx, file, &host.Options{Recorder: log})
//
// # Format
//
// The files contain JSON lines. A record ends with "prev", the hash of the record before, and
// "hash": the SHA-256 digest of its line up to the comma before "hash". The records of a process
// form a chain, which a later process continues. Processes that run at the same time write separate
// chains in the same folder. A file is a segment of a chain: CHAIN.NUMBER.jsonl, whose first record
// contains the last hash of the segment before.
//
// Hashes alone protect against changes of single records: whoever can write the files can compute
// all hashes again. Every 1,000 records or 60 seconds, and at the end, the log therefore contains a
// signed checkpoint (Ed25519). The last checkpoint of a chain is also in the file CHAIN.head, which
// may be in another folder: [Verify] then detects that the end of the log was cut. Records after
// the last checkpoint are not protected.
//
// # Failures
//
// If the disk is full or broken, records wait in memory and are written later. Records over the
// limit are only counted; the log then contains a record "dropped" with their number. With
// [Options].Strict, requests are refused instead ([hosterr.CodeUnrecorded]): a request must be on disk
// before it is sent.
package audit

import (
	"cmp"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/host/event"
)

// An Arguments chooses how records contain the arguments of requests.
type Arguments string

// Forms of arguments. Secrets of the configuration are masked in all of them.
const (
	ArgumentsShape    Arguments = "shape"    // names, types and lengths
	ArgumentsHash     Arguments = "hash"     // an HMAC-SHA-256 with a key of the log
	ArgumentsRedacted Arguments = "redacted" // values, except values that look like secrets or are long
	ArgumentsFull     Arguments = "full"     // everything; needed to send a call again
)

// A Sync chooses when the operating system is asked to write the files to the disk.
type Sync string

// Modes of Sync.
const (
	SyncSecond Sync = "second" // at most one second after a record was written
	SyncRecord Sync = "record" // with each record, or group of records that arrive together
	SyncNever  Sync = "never"  // when the system does: records survive the process, not a crash of the system
)

// Defaults of [Options].
const (
	defaultSegmentSize = 64 << 20
	defaultSegmentAge  = 24 * time.Hour
	defaultKeep        = 90 * 24 * time.Hour
	defaultMaxSize     = 16 << 30
)

// minSegments is the minimum number of segments in a log that has reached MaxSize.
const minSegments = 4

// Options configures a [Log]. Dir and Key are required.
type Options struct {
	// Dir is the folder of the log. [Open] creates it with mode 0700 if it does not exist. On Unix,
	// it must not contain segments that another user owns or can write, nor be such a folder
	// itself.
	Dir string
	// HeadDir is the folder of the last checkpoints. A folder that those who may write Dir cannot
	// write protects the end of the log. Default: Dir.
	HeadDir string
	// Key signs checkpoints, and keys of hashes are derived from it.
	Key ed25519.PrivateKey
	// Arguments is how records contain arguments. Default: ArgumentsShape.
	Arguments Arguments
	// Sync is when files are written to the disk. Default: SyncSecond.
	Sync Sync
	// Strict records the intent of each request, and returns from [Log.Record] when it is on disk.
	// It cannot be used with SyncNever.
	Strict bool
	// SegmentSize and SegmentAge are the size in bytes and the age at which a segment ends. Defaults:
	// 64 MiB and 24 hours.
	SegmentSize int64
	SegmentAge  time.Duration
	// Keep is how long a segment is kept after the signed time of the checkpoint at its end. A
	// segment with records that no checkpoint covers is not removed. Default: 90 days; a negative
	// value means no limit.
	Keep time.Duration
	// MaxSize limits the size of the log in bytes: the segments of all processes together. At the
	// limit, the oldest segments are removed; a signed record documents each removal. If no segment
	// can be removed, records wait in memory as if the disk were full. With Strict, no segment is
	// removed before Keep has passed: requests are refused until there is room. The last record may
	// exceed the limit. Default: 16 GiB; a negative value means no limit.
	MaxSize int64
	// Logger logs failures. Default: slog.Default().
	Logger *slog.Logger

	create createFile // of tests
	queue  int        // bound of the queue, less in tests
}

// Bounds of the records that wait for the writer. They use memory of the process.
const (
	maxQueue      = 1 << 16
	maxQueueBytes = 64 << 20 // of arguments and results
)

var (
	// ErrFull is returned for a record that was dropped, because too many wait to be written.
	ErrFull = errors.New("audit: too many records wait to be written")
	// ErrClosed is returned after [Log.Close].
	ErrClosed = errors.New("audit: the log is closed")
)

// A StoreError reports that records could not be written. Err is the error of the file system.
type StoreError struct {
	Dir string
	Err error
}

// Error returns the folder and the reason.
func (e *StoreError) Error() string { return fmt.Sprintf("write audit log in %s: %v", e.Dir, e.Err) }

// Unwrap returns the reason.
func (e *StoreError) Unwrap() error { return e.Err }

// A Log is a [event.Recorder] that writes files. It is safe for concurrent use.
type Log struct {
	opts  Options
	chain *chain        // used by the writer only
	wake  chan struct{} // buffered(1)
	done  chan struct{} // closed when the writer ends

	mu      sync.Mutex // guards the fields below
	queue   []*entry
	bytes   int    // of the queue
	dropped int    // records dropped since the last written record
	lost    uint64 // records in total
	kept    int    // entries that the writer holds to write them again
	waiting int    // entries of the queue with a reader of stored
	closed  bool
	failure error // of the last attempt to write
}

// An entry is a record on its way to the file.
type entry struct {
	record *event.Record
	event  string // of the log itself; record is nil
	detail any
	size   int
	stored chan error // receives the outcome if it is not nil
}

// Open opens a log. It continues the chain of a process that ended, or else begins a new chain.
func Open(o *Options) (*Log, error) {
	l := &Log{opts: *o, wake: make(chan struct{}, 1), done: make(chan struct{})}
	if err := l.opts.fill(); err != nil {
		return nil, err
	}
	var err error
	if l.chain, err = openChain(&l.opts); err != nil {
		return nil, &StoreError{o.Dir, err}
	}
	go l.write() // ends with Close
	return l, nil
}

func (o *Options) fill() error {
	o.HeadDir = cmp.Or(o.HeadDir, o.Dir)
	o.Arguments = cmp.Or(o.Arguments, ArgumentsShape)
	o.Sync = cmp.Or(o.Sync, SyncSecond)
	o.SegmentSize = cmp.Or(o.SegmentSize, defaultSegmentSize)
	o.SegmentAge = cmp.Or(o.SegmentAge, defaultSegmentAge)
	o.Keep = cmp.Or(o.Keep, defaultKeep)
	if o.MaxSize = cmp.Or(o.MaxSize, defaultMaxSize); o.MaxSize > 0 {
		o.SegmentSize = min(o.SegmentSize, max(o.MaxSize/minSegments, 1)) // a full log must contain segments to remove
	}
	o.Logger = cmp.Or(o.Logger, slog.Default())
	o.queue = cmp.Or(o.queue, maxQueue)
	switch {
	case o.Dir == "":
		return errors.New("audit: missing Options.Dir")
	case len(o.Key) != ed25519.PrivateKeySize:
		return fmt.Errorf("audit: Options.Key has %d bytes, want %d", len(o.Key), ed25519.PrivateKeySize)
	case o.Strict && o.Sync == SyncNever:
		return errors.New("audit: Options.Strict cannot be used with SyncNever: an intent has to be on disk")
	}
	return nil
}

// Record implements [event.Recorder]. It returns at once, except for the intents of a strict log. The
// error is [ErrFull], [ErrClosed] or, for an intent, a [*StoreError].
func (l *Log) Record(r *event.Record) error {
	if r.Event == event.Intent && !l.opts.Strict {
		return nil
	}
	e := &entry{record: r, size: len(r.Arguments) + len(r.Result) + len(r.Answers) + len(r.Detail)}
	if (r.Event == event.Intent || r.Event == event.Answer) && l.opts.Strict {
		e.stored = make(chan error, 1)
	}
	if err := l.add(e); err != nil || e.stored == nil {
		return err
	}
	return <-e.stored
}

// add adds an entry to the queue.
func (l *Log) add(e *entry) error {
	l.mu.Lock()
	switch {
	case l.closed:
		l.mu.Unlock()
		return ErrClosed
	case len(l.queue) >= l.opts.queue || l.bytes+e.size > maxQueueBytes && len(l.queue) > 0:
		if e.stored == nil {
			l.drop()
		}
		l.mu.Unlock()
		return ErrFull
	}
	l.queue = append(l.queue, e)
	l.bytes += e.size
	first := len(l.queue) == 1
	if e.stored != nil {
		l.waiting++
		first = true
	}
	l.mu.Unlock()
	if first {
		l.signal()
	}
	return nil
}

func (l *Log) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Err returns the error of the last attempt to write, or nil if it succeeded. Status reports
// contain it.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failure
}

// Backlog returns how many records wait to be written, and how many were dropped since the log was opened: see
// [host.Stats]. If many wait, records cannot be written.
func (l *Log) Backlog() (waiting int, lost uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.queue) + l.kept, l.lost
}

// drop counts a record that is not written. The lock is held.
func (l *Log) drop() {
	l.dropped++
	l.lost++
}

// Close writes the records of the queue and a checkpoint, and closes the files. The error reports
// records that could not be written.
func (l *Log) Close() error {
	l.mu.Lock()
	first := !l.closed
	l.closed = true
	l.mu.Unlock()
	if first {
		l.signal()
	}
	<-l.done
	return l.Err()
}
