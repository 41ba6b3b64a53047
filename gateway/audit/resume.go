package audit

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/internal/filelock"
	"github.com/patchbay-mcp/patchbay/gateway/internal/private"
	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
)

// maxResume bounds the chains that are tried. More are free only after a failure of the system.
const maxResume = 16

// resume continues the newest chain that no process uses, that this key signs, and that is intact.
// It returns the size of the incomplete line that it removed.
func (c *chain) resume() (ok bool, torn int64, err error) {
	all, err := segments(c.opts.Dir)
	if err != nil {
		return false, 0, err
	}
	names := slices.Sorted(maps.Keys(all)) // they begin with a time
	slices.Reverse(names)
	for _, name := range names[:min(len(names), maxResume)] {
		lock, err := filelock.Open(filepath.Join(c.opts.Dir, name+lockSuffix))
		if errors.Is(err, filelock.ErrLocked) {
			continue
		}
		if errors.Is(err, errors.ErrUnsupported) {
			return false, 0, nil
		}
		if err != nil {
			return false, 0, err
		}
		c.lock = lock
		torn, reason := c.resumeSegments(name, all[name])
		if reason == nil {
			return true, torn, nil
		}
		c.release()
		if pathError := (*os.PathError)(nil); errors.As(reason, &pathError) || errors.Is(reason, private.ErrExposed) {
			return false, 0, reason
		}
		c.opts.Logger.Warn("audit: began a new chain, because the last one cannot be continued", "dir", c.opts.Dir,
			"chain", name, "reason", reason)
	}
	return false, 0, nil
}

var (
	errOtherKey = errors.New("it is signed with another key")
	errBeyond   = errors.New("it ends before its last checkpoint")
)

// resumeSegments opens the last segment of a chain for appending.
func (c *chain) resumeSegments(name string, files []segmentFile) (torn int64, err error) {
	last := files[len(files)-1]
	tail, err := readTail(last)
	if err != nil {
		return 0, err
	}
	if tail.lines == 0 { // the process was killed when it created the file
		return 0, c.resumeEmpty(name, files)
	}
	head, err := c.loadHead(name)
	switch {
	case err != nil:
		return 0, err
	case head != nil && head.Seq > tail.seq:
		return 0, errBeyond
	case tail.key != c.encoder.public:
		return 0, errOtherKey
	}
	f, err := c.create(last.path)
	if err != nil {
		return 0, err
	}
	if err := f.Truncate(tail.size); err != nil {
		_ = f.Close()
		return 0, err
	}
	c.name, c.segment, c.file = name, last.number, f
	c.position = position{seq: tail.seq, last: tail.last, size: tail.size, unsigned: tail.unsigned,
		since: time.Now(), head: head}
	c.began = tail.began
	return tail.torn, nil
}

// resumeEmpty continues a chain whose last segment contains no complete line.
func (c *chain) resumeEmpty(name string, files []segmentFile) error {
	if len(files) == 1 {
		// The segment is empty. If a head contradicts that, the file must stay as it is.
		head, err := c.loadHead(name)
		if err == nil && head != nil {
			err = errBeyond
		}
		if err == nil && files[0].number != 1 {
			err = errors.New("its first segment is missing")
		}
		if err != nil {
			return err
		}
		c.name = name
		return c.open(1)
	}
	before := files[:len(files)-1]
	if _, err := c.resumeSegments(name, before); err != nil {
		return err
	}
	return c.open(files[len(before)].number)
}

// A tail is where a segment ends.
type tail struct {
	lines    int
	seq      uint64
	last     [sha256.Size]byte
	prev     [sha256.Size]byte // the hash of the last but one record
	size     int64             // of the complete lines
	torn     int64             // bytes after the complete lines
	unsigned int               // records after the last checkpoint of the segment
	key      string
	began    time.Time

	checkpoint json.RawMessage // the detail of the last record, if it is a checkpoint
}

// readTail reads a segment, and checks its records.
func readTail(f segmentFile) (*tail, error) {
	t := &tail{}
	r, err := openLines(f.path)
	if err != nil {
		return nil, err
	}
	defer r.close()
	for r.next() {
		rec, err := parseRecord(r.line)
		switch {
		case err != nil:
			return nil, err
		case t.lines > 0 && (rec.seq != t.seq+1 || rec.prev != t.last):
			return nil, errors.New("its records do not follow each other")
		case t.lines == 0 && rec.event != eventSegment:
			return nil, errors.New("its first record is not that of a segment")
		case t.lines == 0:
			t.key, t.began = rec.text("key"), rec.time()
		}
		t.lines++
		t.seq, t.last, t.prev = rec.seq, rec.hash, rec.prev
		t.size = r.offset
		if t.unsigned++; rec.event == eventCheckpoint {
			t.unsigned = 0
			detail, _ := rawjson.Get(rec.line, "detail")
			t.checkpoint = slices.Clone(detail)
		}
	}
	t.torn = r.torn
	return t, r.err
}
