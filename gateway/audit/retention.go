package audit

import (
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/filelock"
)

// retentionTime is the time between two removals of old segments.
const retentionTime = time.Hour

// A retentionDetail is the detail of a record that a segment was removed.
type retentionDetail struct {
	Chain   string `json:"chain"`
	Segment int    `json:"segment"`
	Seq     uint64 `json:"through"` // the last record
	Hash    string `json:"last"`    // its hash in hex
}

// removeOld removes the segments of all chains that are older than [Options].Keep. Failures are logged:
// the next attempt is in an hour.
func (c *chain) removeOld(now time.Time) {
	if c.opts.Keep < 0 {
		return
	}
	all, err := segments(c.opts.Dir)
	for name, files := range all {
		if err == nil {
			err = c.removeOldOf(name, files, now)
		}
	}
	if err != nil {
		c.opts.Logger.Warn("audit: old segments were not removed", "dir", c.opts.Dir, "error", err)
	}
}

// removeOldOf removes the old segments of a chain that no other process uses.
func (c *chain) removeOldOf(name string, files []segmentFile, now time.Time) error {
	if name == c.name {
		return c.removeSegments(files[:len(files)-1], now, c.head)
	}
	if info, err := os.Stat(files[0].path); err != nil || now.Sub(info.ModTime()) < c.opts.Keep {
		return nil // most chains, without a lock
	}
	lock, err := filelock.Open(filepath.Join(c.opts.Dir, name+lockSuffix))
	if errors.Is(err, filelock.ErrLocked) || errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	head, err := c.loadHead(name)
	if err != nil {
		return nil //nolint:nilerr // of another key, so that the signature cannot be checked
	}
	if err := c.removeSegments(files, now, head); err != nil {
		return err
	}
	if left, err := segments(c.opts.Dir); err != nil || len(left[name]) > 0 {
		return err
	}
	for _, path := range []string{c.headPath(name), filepath.Join(c.opts.Dir, name+lockSuffix)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// removeSegments removes segments from the first one on, until one is not old or has records that no
// checkpoint covers.
func (c *chain) removeSegments(files []segmentFile, now time.Time, head *Checkpoint) error {
	for _, f := range files {
		info, err := os.Stat(f.path)
		if err != nil {
			return err
		}
		if now.Sub(info.ModTime()) < c.opts.Keep {
			return nil
		}
		t, err := readTail(f)
		if err != nil {
			return err
		}
		// The last record of a segment is a checkpoint, which covers those before it.
		if head == nil || t.torn > 0 || t.unsigned > 0 || head.Seq+1 < t.seq {
			return nil
		}
		e := &entry{event: eventRetention, detail: retentionDetail{f.chain, f.number, t.seq,
			hex.EncodeToString(t.last[:])}}
		if err := c.append([]*entry{e}); err != nil {
			return err
		}
		if err := c.sign(); err != nil {
			return err
		}
		if err := os.Remove(f.path); err != nil {
			return err
		}
	}
	return nil
}
