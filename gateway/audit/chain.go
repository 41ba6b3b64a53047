package audit

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/internal/filelock"
	"github.com/patchbay-mcp/patchbay/gateway/internal/private"
)

// Events of the log itself.
const (
	eventSegment    = "segment"    // the first record of a file
	eventOpen       = "open"       // a process continues the chain
	eventClose      = "close"      // a process ended normally
	eventTorn       = "torn"       // the last line of a process that was killed was removed: it was incomplete
	eventDropped    = "dropped"    // records were dropped
	eventCheckpoint = "checkpoint" // all records before it are signed
	eventRetention  = "retention"  // a segment was removed because of its age
)

// Limits of the records that no checkpoint covers.
const (
	checkpointRecords = 1000
	checkpointTime    = 60 * time.Second
)

// logFile is the subset of *os.File that a chain uses.
type logFile interface {
	io.WriteCloser
	Truncate(size int64) error
	Sync() error
}

// createFile opens a file for appending, and creates it if it does not exist. Tests replace it.
type createFile func(path string) (logFile, error)

func createOnDisk(path string) (logFile, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		err = private.CheckWriters(path, info)
	}
	if err != nil {
		_ = f.Close() // the file is empty
		return nil, err
	}
	return f, nil
}

// A position is where a chain ends. It is copied before a write, and restored if that fails.
type position struct {
	seq  uint64            // of the last record
	last [sha256.Size]byte // its hash
	size int64             // of the file, without the bytes of a failed write

	unsigned int       // records after the last checkpoint
	since    time.Time // of the first of these
	unsynced time.Time // time of the first record that may not be on disk; zero if all are
	head     *Checkpoint
}

// A chain writes the segments of one process. It is not safe for concurrent use.
type chain struct {
	opts    *Options
	create  createFile
	encoder encoder
	name    string
	lock    io.Closer // nil on systems without locks
	file    logFile
	segment int
	began   time.Time // of the segment
	kept    time.Time // when old segments were last removed
	tried   time.Time // when makeRoom last failed; zero if the log is not full
	others  int64     // size of all segments except the present segment
	damaged bool      // the file may contain more than size bytes
	buf     []byte
	position
}

// openChain continues the chain of a process that ended, or begins a new chain.
func openChain(o *Options) (*chain, error) {
	if err := private.MkdirAll(o.Dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.HeadDir, 0o700); err != nil { // another user may own HeadDir, to protect it
		return nil, err
	}
	c := &chain{opts: o, create: createOnDisk, encoder: newEncoder(o)}
	if o.create != nil {
		c.create = o.create
	}
	continued, torn, err := c.resume()
	if err == nil && !continued {
		err = c.begin()
	}
	c.measure()
	if err == nil && continued {
		err = c.append(c.opening(torn))
	}
	if err != nil {
		c.release()
		return nil, err
	}
	return c, nil
}

func (c *chain) opening(torn int64) (entries []*entry) {
	if torn > 0 {
		entries = append(entries, &entry{event: eventTorn, detail: map[string]int64{"bytes": torn}})
	}
	return append(entries, &entry{event: eventOpen, detail: map[string]int{"pid": os.Getpid()}})
}

// chainTimeFormat is the format of the time with which the name of a chain begins.
const chainTimeFormat = "20060102T150405Z"

// begin begins a chain with its first segment.
func (c *chain) begin() (err error) {
	c.name = time.Now().UTC().Format(chainTimeFormat) + "-" + strings.ToLower(rand.Text()[:8])
	c.lock, err = filelock.Open(filepath.Join(c.opts.Dir, c.name+lockSuffix))
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return c.open(1)
}

// open creates a segment with its first record. The last segment stays in use if there is an error.
func (c *chain) open(number int) error {
	path := filepath.Join(c.opts.Dir, segmentName(c.name, number))
	f, err := c.create(path)
	if err != nil {
		return err
	}
	old := *c
	c.file, c.segment, c.began, c.size, c.damaged = f, number, time.Now(), 0, false
	e := &entry{event: eventSegment, detail: segmentDetail{Chain: c.name, Segment: number,
		Key: hex.EncodeToString(c.opts.public()), PID: os.Getpid()}}
	if err = f.Truncate(0); err == nil { // of an attempt that failed
		err = c.write(c.opts.Sync != SyncNever, func(now time.Time) { c.add(e, now) })
	}
	if err == nil && c.opts.Sync != SyncNever {
		err = syncDir(c.opts.Dir)
	}
	if err != nil {
		buf := c.buf
		*c = old
		c.buf = buf
		_ = f.Close()
		_ = os.Remove(path) // else the next attempt overwrites it
		return err
	}
	if old.file != nil {
		_ = old.file.Close() // it was synchronized
	}
	return nil
}

// A segmentDetail is the detail of the first record of a segment.
type segmentDetail struct {
	Chain   string `json:"chain"`
	Segment int    `json:"segment"`
	Key     string `json:"key"` // the public key, in hex
	PID     int    `json:"pid"`
}

func (o *Options) public() ed25519.PublicKey { return o.Key.Public().(ed25519.PublicKey) }

// append writes entries. After an error the file contains no part of them.
func (c *chain) append(entries []*entry) error {
	now := time.Now()
	if err := c.rotate(now); err != nil {
		return err
	}
	if err := c.makeRoom(now); err != nil {
		return err
	}
	sync := c.opts.Sync == SyncRecord
	for _, e := range entries {
		sync = sync || e.stored != nil
	}
	return c.write(sync, func(now time.Time) {
		for _, e := range entries {
			if c.add(e, now); c.unsigned >= checkpointRecords {
				c.addCheckpoint(now)
			}
		}
	})
}

// repair removes the bytes of a failed write.
func (c *chain) repair() error {
	if !c.damaged {
		return nil
	}
	if err := c.file.Truncate(c.size); err != nil {
		return err
	}
	c.damaged = false
	return nil
}

// write calls a function that encodes records and writes the result. It synchronizes the file if
// sync is set.
func (c *chain) write(sync bool, encode func(now time.Time)) error {
	if err := c.repair(); err != nil {
		return err
	}
	before := c.position
	c.buf = c.buf[:0]
	encode(time.Now())
	if _, err := c.file.Write(c.buf); err != nil {
		c.position, c.damaged = before, true
		return err
	}
	c.size += int64(len(c.buf))
	const most = 4 << 20 // bytes of the buffer that the next batch reuses
	if cap(c.buf) > most {
		c.buf = nil
	}
	signed := c.head != before.head
	if sync || signed && c.opts.Sync != SyncNever {
		if err := c.file.Sync(); err != nil {
			c.position, c.damaged = before, true
			return err
		}
		c.unsynced = time.Time{}
	}
	if signed {
		c.saveHead()
	}
	return nil
}

// add encodes an entry.
func (c *chain) add(e *entry, now time.Time) {
	c.seq++
	start, prev := len(c.buf), c.last
	c.buf, c.last = c.encoder.appendEntry(c.buf, e, c.seq, now, prev)
	if len(c.buf)-start > maxLine {
		c.encoder.brief = true
		c.buf, c.last = c.encoder.appendEntry(c.buf[:start], e, c.seq, now, prev)
		c.encoder.brief = false
	}
	if c.unsigned++; c.unsigned == 1 {
		c.since = now
	}
	if c.unsynced.IsZero() {
		c.unsynced = now
	}
}

// rotate begins the next segment if the current segment is large or old.
func (c *chain) rotate(now time.Time) error {
	if c.size < c.opts.SegmentSize && now.Sub(c.began) < c.opts.SegmentAge {
		return nil
	}
	if c.isFull() { // a new segment needs room as well
		return nil
	}
	if err := c.sign(); err != nil {
		return err
	}
	err := c.open(c.segment + 1)
	c.measure()
	return err
}

// keep does the work that is due: synchronization, a checkpoint, a new segment, the end of old
// segments.
func (c *chain) keep(now time.Time) error {
	if c.unsigned > 0 && now.Sub(c.since) >= checkpointTime {
		if err := c.sign(); err != nil {
			return err
		}
	}
	if c.opts.Sync == SyncSecond && !c.unsynced.IsZero() && now.Sub(c.unsynced) >= syncTime {
		if err := c.file.Sync(); err != nil {
			return err
		}
		c.unsynced = time.Time{}
	}
	if now.Sub(c.kept) >= retentionTime {
		c.kept = now
		c.removeOld(now)
	}
	return nil
}

// due returns the latest time until keep must run again.
func (c *chain) due(now time.Time) time.Duration {
	wait := c.kept.Add(retentionTime).Sub(now)
	if c.unsigned > 0 {
		wait = min(wait, c.since.Add(checkpointTime).Sub(now))
	}
	if c.opts.Sync == SyncSecond && !c.unsynced.IsZero() {
		wait = min(wait, c.unsynced.Add(syncTime).Sub(now))
	}
	return max(wait, 0)
}

// close ends the chain, with a last checkpoint unless writes fail.
func (c *chain) close(works bool) (err error) {
	if works {
		err = c.write(false, func(now time.Time) {
			c.add(&entry{event: eventClose, detail: map[string]int{"pid": os.Getpid()}}, now)
			c.addCheckpoint(now)
		})
	}
	if c.opts.Sync != SyncNever {
		err = errors.Join(err, c.file.Sync())
	}
	err = errors.Join(err, c.file.Close())
	c.release()
	return err
}

func (c *chain) release() {
	if c.lock != nil {
		_ = c.lock.Close()
		c.lock = nil
	}
}

// Suffixes of the names of files.
const (
	segmentSuffix = ".jsonl"
	lockSuffix    = ".lock"
	headSuffix    = ".head"
)

func segmentName(chain string, number int) string {
	return fmt.Sprintf("%s.%06d%s", chain, number, segmentSuffix)
}

// A segmentFile is a file of a chain.
type segmentFile struct {
	chain  string
	number int
	path   string
}

// parseSegment returns the chain and the segment number of a file name.
func parseSegment(name string) (chain string, number int, ok bool) {
	base, ok := strings.CutSuffix(name, segmentSuffix)
	dot := strings.LastIndexByte(base, '.')
	if !ok || dot <= 0 || len(base)-dot-1 < 6 {
		return "", 0, false
	}
	if _, err := fmt.Sscanf(base[dot+1:], "%d", &number); err != nil || segmentName(base[:dot], number) != name {
		return "", 0, false
	}
	return base[:dot], number, true
}

// segments returns the segments of a folder by chain, in order.
func segments(dir string) (map[string][]segmentFile, error) {
	all, err := os.ReadDir(dir) // sorted by name, so that the numbers of a chain are in order
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	found := map[string][]segmentFile{}
	for _, d := range all {
		if chain, number, ok := parseSegment(d.Name()); ok && !d.IsDir() {
			found[chain] = append(found[chain], segmentFile{chain, number, filepath.Join(dir, d.Name())})
		}
	}
	return found, nil
}
