package audit

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/internal/filelock"
	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
)

const (
	// retentionTime is the time between two removals of old segments.
	retentionTime = time.Hour
	// roomTime is the minimum time between two attempts to make room in a full log.
	roomTime = time.Second
)

// A retentionDetail is the detail of a record that a segment was removed.
type retentionDetail struct {
	Chain   string `json:"chain"`
	Segment int    `json:"segment"`
	Seq     uint64 `json:"through"`          // the last record
	Hash    string `json:"last"`             // its hash in hex
	Reason  string `json:"reason,omitempty"` // "size" if the segment was removed because the log was full
}

// errSize is the cause of a [StoreError] if the log is full.
var errSize = errors.New("the log has reached its maximum size")

// removeOld removes the segments of all chains that are older than [Options].Keep. Failures are logged:
// the next attempt is in an hour.
func (c *chain) removeOld(now time.Time) {
	if c.opts.Keep < 0 {
		return
	}
	all, err := segments(c.opts.Dir)
	isOld := func(last time.Time) bool { return now.Sub(last) >= c.opts.Keep }
	for name, files := range all {
		if err == nil && isOld(chainTime(name)) { // most chains, without reading them
			_, err = c.remove(name, files, isOld, len(files), "")
		}
	}
	if err != nil {
		c.opts.Logger.Warn("audit: old segments were not removed", "dir", c.opts.Dir, "error", err)
	}
	c.measure()
}

// chainTime returns the start time of a chain. It reads the time from the name of the chain, which
// checkpoints sign, and returns zero if the name contains no time.
func chainTime(name string) time.Time {
	start, _, _ := strings.Cut(name, "-")
	t, _ := time.Parse(chainTimeFormat, start)
	return t
}

// remove removes up to limit segments of a chain, oldest first, while due reports true for the time
// of their last record. It skips a chain that another process uses.
func (c *chain) remove(
	name string, files []segmentFile, due func(last time.Time) bool, limit int, reason string,
) (removed int, err error) {
	if name == c.name {
		return c.removeSegments(files[:min(len(files)-1, limit)], due, c.head, reason)
	}
	lock, err := filelock.Open(filepath.Join(c.opts.Dir, name+lockSuffix))
	if errors.Is(err, filelock.ErrLocked) || errors.Is(err, errors.ErrUnsupported) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer lock.Close()
	head, err := c.loadHead(name)
	if err != nil {
		return 0, nil //nolint:nilerr // signed with another key, so that the signature cannot be checked
	}
	if removed, err = c.removeSegments(files[:min(len(files), limit)], due, head, reason); err != nil {
		return removed, err
	}
	if left, err := segments(c.opts.Dir); err != nil || len(left[name]) > 0 {
		return removed, err
	}
	for _, path := range []string{c.headPath(name), filepath.Join(c.opts.Dir, name+lockSuffix)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return removed, err
		}
	}
	return removed, nil
}

// removeSegments removes segments, oldest first, until a segment is not due or contains records
// that no checkpoint covers. The time of a segment is the time in the checkpoint at its end,
// because the checkpoint is signed, whereas anyone who may write a file can set its modification
// time.
func (c *chain) removeSegments(
	files []segmentFile, due func(last time.Time) bool, head *Checkpoint, reason string,
) (removed int, err error) {
	for _, f := range files {
		if began, err := firstTime(f); err != nil || !due(began) {
			return removed, err
		}
		t, err := readTail(f)
		if err != nil {
			return removed, err
		}
		if head == nil || t.torn > 0 || t.unsigned > 0 || head.Seq+1 < t.seq {
			return removed, nil
		}
		last, ok := c.signedTime(f, t)
		if !ok {
			return removed, fmt.Errorf("%s: the last checkpoint is not signed with the key of this log", f.path)
		}
		if !due(last) {
			return removed, nil
		}
		e := &entry{event: eventRetention, detail: retentionDetail{f.chain, f.number, t.seq,
			hex.EncodeToString(t.last[:]), reason}}
		if err := c.write(c.opts.Sync != SyncNever, func(now time.Time) {
			c.add(e, now)
			c.addCheckpoint(now)
		}); err != nil {
			return removed, err
		}
		if err := os.Remove(f.path); err != nil {
			return removed, err
		}
		removed++
	}
	return removed, nil
}

// signedTime returns the time of the checkpoint at the end of a segment. ok is false if the
// checkpoint is not signed with the key of the log, or is not about this segment.
func (c *chain) signedTime(f segmentFile, t *tail) (last time.Time, ok bool) {
	var p Checkpoint
	if json.Unmarshal(t.checkpoint, &p) != nil || p.Chain != f.chain || p.Seq != t.seq-1 ||
		p.Hash != hex.EncodeToString(t.prev[:]) || !p.verify(c.opts.public()) {
		return time.Time{}, false
	}
	last, err := time.Parse(timeFormat, p.Time)
	return last, err == nil
}

// firstTime returns the time of the first record of a segment.
func firstTime(f segmentFile) (time.Time, error) {
	r, err := openLines(f.path)
	if err != nil {
		return time.Time{}, err
	}
	defer r.close()
	if !r.next() {
		return time.Time{}, r.err
	}
	return time.Parse(timeFormat, rawjson.GetString(r.line, "t"))
}

// measure sets others to the size of all segments except the present segment.
func (c *chain) measure() {
	c.others = 0
	all, err := segments(c.opts.Dir)
	if err != nil {
		return // the size of the folder is checked again later
	}
	for name, files := range all {
		for _, f := range files {
			if info, err := os.Stat(f.path); err == nil && (name != c.name || f.number != c.segment) {
				c.others += info.Size()
			}
		}
	}
}

func (c *chain) isFull() bool { return c.opts.MaxSize >= 0 && c.others+c.size >= c.opts.MaxSize }

// makeRoom removes and records segments if the log has reached [Options].MaxSize: segments older
// than [Options].Keep and, without [Options].Strict, further segments, oldest first. It returns
// errSize if the log is still full.
func (c *chain) makeRoom(now time.Time) error {
	if !c.isFull() {
		return nil
	}
	if now.Sub(c.tried) < roomTime {
		return errSize
	}
	c.tried = now
	c.removeOld(now)
	for !c.opts.Strict && c.isFull() {
		removed, err := c.removeOldest()
		if err != nil {
			return err
		}
		if !removed {
			break
		}
		c.measure()
		c.opts.Logger.Warn("audit: removed the oldest segment early: the log has reached its maximum size",
			"dir", c.opts.Dir, "maxSize", c.opts.MaxSize)
	}
	if c.isFull() {
		return errSize
	}
	c.tried = time.Time{}
	return nil
}

// removeOldest removes the oldest segment that can be removed.
func (c *chain) removeOldest() (removed bool, err error) {
	all, err := segments(c.opts.Dir)
	if err != nil {
		return false, err
	}
	for len(all) > 0 {
		oldest, first := "", time.Time{}
		for name, files := range all {
			began, err := firstTime(files[0])
			if err != nil {
				delete(all, name) // not a segment of a log
				continue
			}
			if oldest == "" || began.Before(first) {
				oldest, first = name, began
			}
		}
		if oldest == "" {
			return false, nil
		}
		n, err := c.remove(oldest, all[oldest], func(time.Time) bool { return true }, 1, "size")
		if n > 0 {
			return true, err
		}
		if err != nil {
			c.opts.Logger.Warn("audit: a segment was not removed", "dir", c.opts.Dir, "chain", oldest, "error", err)
		}
		delete(all, oldest) // another process uses the chain, or its last records are not signed
	}
	return false, nil
}
