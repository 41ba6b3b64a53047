package audit

import (
	"cmp"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
)

// VerifyOptions configures [Verify]. The zero value is valid.
type VerifyOptions struct {
	// HeadDir is the folder of the last checkpoints. Default: the folder of the log.
	HeadDir string
	// Keys are the public keys whose checkpoints are accepted. Default: the keys that the log
	// names, in which case a log that was written again as a whole is not detected.
	Keys []ed25519.PublicKey
	// Progress is called after each 1,000 records with the number of records that were read so far. An
	// error ends Verify, which returns it. Default: nothing is called.
	Progress func(records int) error
}

// progressRecords is how often Progress is called: about each 10 ms.
const progressRecords = 1000

// A ProblemKind is the kind of a [Problem].
type ProblemKind string

// Kinds of problems.
const (
	ProblemAltered ProblemKind = "altered" // a record differs from the record that was written
	ProblemRemoved ProblemKind = "removed" // records are missing before others
	ProblemCut     ProblemKind = "cut"     // records are missing at the end
	ProblemForged  ProblemKind = "forged"  // a checkpoint lacks a valid signature of an accepted key
)

// A Problem is the first record of a chain that is not as it was written.
type Problem struct {
	Kind ProblemKind `json:"kind"`
	// Seq is the number of the record, and File and Line where it is or should be.
	Seq  uint64 `json:"seq"`
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
	Text string `json:"text"`
}

// Error returns the place and the finding.
func (p *Problem) Error() string {
	at := ""
	if p.File != "" {
		at = fmt.Sprintf("%s:%d: ", filepath.Base(p.File), p.Line)
	}
	return fmt.Sprintf("%srecord %d: %s: %s", at, p.Seq, p.Kind, p.Text)
}

// A ChainReport is the outcome for a chain.
type ChainReport struct {
	Chain    string `json:"chain"`
	Segments int    `json:"segments"`
	// Records is the number of valid records, from First to Last. Removed is the number of earlier
	// records that were removed because of their age or the size of the log.
	Records int       `json:"records"`
	First   time.Time `json:"first"`
	Last    time.Time `json:"last"`
	Removed uint64    `json:"removed,omitempty"`
	// Seq is the number of the last record, and Signed the number of the last record that a
	// checkpoint covers. Later records can be cut unnoticed.
	Seq    uint64 `json:"seq"`
	Signed uint64 `json:"signed"`
	// Torn is the size of an incomplete last line: it is being written, or its process was killed.
	Torn    int64    `json:"torn,omitempty"`
	Warning string   `json:"warning,omitempty"`
	Problem *Problem `json:"problem,omitempty"`
}

// A Report is the outcome of [Verify].
type Report struct {
	Chains []*ChainReport `json:"chains"`
}

// Err returns the problems of all chains, or nil.
func (r *Report) Err() error {
	var errs []error
	for _, c := range r.Chains {
		if c.Problem != nil {
			errs = append(errs, fmt.Errorf("chain %s: %w", c.Chain, c.Problem))
		}
	}
	return errors.Join(errs...)
}

// Verify checks all chains of a folder, even while processes write to them. The error reports files
// that cannot be read; the Report contains the problems of records.
func Verify(dir string, o *VerifyOptions) (*Report, error) {
	v := &verifier{dir: dir, retired: map[string]retentionDetail{}}
	if o != nil {
		v.VerifyOptions = *o
	}
	v.HeadDir = cmp.Or(v.HeadDir, dir)
	heads, err := v.heads() // first, so that it is not newer than the files
	if err != nil {
		return nil, err
	}
	all, err := segments(dir)
	if err != nil {
		return nil, err
	}
	names := maps.Clone(all)
	for name := range heads {
		names[name] = all[name]
	}
	report := &Report{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		c := &chainVerifier{verifier: v, report: &ChainReport{Chain: name, Segments: len(all[name])}, head: heads[name]}
		if err := c.verify(all[name]); err != nil {
			return nil, err
		}
		report.Chains = append(report.Chains, c.report)
		v.starts = append(v.starts, c.start)
	}
	for i, c := range report.Chains {
		v.checkStart(c, all[c.Chain], heads[c.Chain], v.starts[i])
	}
	return report, nil
}

type verifier struct {
	VerifyOptions
	dir     string
	retired map[string]retentionDetail // by chain: the last segment that was removed because of its age
	starts  []chainStart
	records int // read so far
}

// A chainStart is the first record of a chain that is left.
type chainStart struct {
	seq  uint64
	prev [sha256.Size]byte
}

func (v *verifier) heads() (map[string]*Checkpoint, error) {
	all, err := os.ReadDir(v.HeadDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	heads := map[string]*Checkpoint{}
	for _, d := range all {
		name, ok := strings.CutSuffix(d.Name(), headSuffix)
		if !ok || d.IsDir() {
			continue
		}
		p, err := readHead(filepath.Join(v.HeadDir, d.Name()))
		if err != nil {
			p = &Checkpoint{} // invalid
		}
		if p != nil {
			heads[name] = p
		}
	}
	return heads, nil
}

// checkStart checks that records before the first record were removed because of their age.
func (v *verifier) checkStart(c *ChainReport, files []segmentFile, head *Checkpoint, s chainStart) {
	gone, known := v.retired[c.Chain]
	switch {
	case len(files) == 0 && head != nil && (!known || gone.Seq < head.Seq):
		c.Problem = &Problem{Kind: ProblemRemoved, Seq: 1, Text: "all segments of the chain are missing"}
	case s.seq > 1 && known && gone.Seq == s.seq-1 && gone.Hash == hex.EncodeToString(s.prev[:]):
		c.Removed = s.seq - 1
	case s.seq > 1 || len(files) > 0 && files[0].number > 1:
		first := uint64(1)
		if known {
			first = gone.Seq + 1
		}
		c.Problem = &Problem{Kind: ProblemRemoved, Seq: first, File: files[0].path, Line: 1,
			Text: fmt.Sprintf("the segments before %s are missing, and no signed record says that they were too old",
				filepath.Base(files[0].path))}
	}
}

// A chainVerifier checks a chain.
type chainVerifier struct {
	*verifier
	report *ChainReport
	head   *Checkpoint
	start  chainStart
	last   [sha256.Size]byte
	key    ed25519.PublicKey // the key that the chain names, unless keys are given
	gone   []retentionDetail // of records that no checkpoint covers yet
	signs  bool              // the chain contains a checkpoint
}

func (c *chainVerifier) verify(files []segmentFile) error {
	for i, f := range files {
		if i > 0 && f.number != files[i-1].number+1 {
			c.problem(ProblemRemoved, c.report.Seq+1, f.path, 1, "segment %d is missing", files[i-1].number+1)
			return nil
		}
		if err := c.segment(f, i == len(files)-1); err != nil {
			return err
		}
		if c.report.Problem != nil {
			return nil
		}
	}
	if len(files) == 0 {
		return nil
	}
	c.end(files[len(files)-1])
	return nil
}

func (c *chainVerifier) problem(kind ProblemKind, seq uint64, file string, line int, format string, args ...any) {
	c.report.Problem = &Problem{Kind: kind, Seq: seq, File: file, Line: line, Text: fmt.Sprintf(format, args...)}
}

// end checks the end of the chain against its head.
func (c *chainVerifier) end(last segmentFile) {
	r := c.report
	switch {
	case c.head == nil && c.signs:
		r.Warning = "the file " + r.Chain + headSuffix + " is missing: records after the last checkpoint of the " +
			"segments can have been cut"
	case c.head == nil:
	case !c.accepts(c.head):
		c.problem(ProblemForged, r.Seq, filepath.Join(c.HeadDir, r.Chain+headSuffix), 1,
			"the last checkpoint has no valid signature of an accepted key")
	case c.head.Seq > r.Seq:
		c.problem(ProblemCut, r.Seq+1, last.path, 0, "the chain ends with record %d, but a checkpoint covers record %d",
			r.Seq, c.head.Seq)
	}
}

// accepts reports whether an accepted key signed a checkpoint of the chain.
func (c *chainVerifier) accepts(p *Checkpoint) bool {
	keys := c.Keys
	if len(keys) == 0 {
		keys = []ed25519.PublicKey{c.key}
	}
	return p.Chain == c.report.Chain && slices.ContainsFunc(keys, p.verify)
}

func (c *chainVerifier) segment(f segmentFile, last bool) error {
	r, err := openLines(f.path)
	if err != nil {
		return err
	}
	defer r.close()
	n := 0
	for r.next() {
		n++
		if c.record(f, n, r.line); c.report.Problem != nil {
			return nil
		}
		if c.records++; c.records%progressRecords == 0 && c.Progress != nil {
			if err := c.Progress(c.records); err != nil {
				return err
			}
		}
	}
	switch {
	case errors.Is(r.err, errLongLine):
		c.problem(ProblemAltered, c.report.Seq+1, f.path, n+1, "%v", r.err)
	case r.err != nil:
		return r.err
	case r.torn > 0 && !last, n == 0 && !last:
		c.problem(ProblemAltered, c.report.Seq+1, f.path, n+1, "the line is incomplete, but a segment follows")
	default:
		c.report.Torn = r.torn
	}
	return nil
}

// record checks the next line.
func (c *chainVerifier) record(f segmentFile, line int, text []byte) {
	r := c.report
	rec, err := parseRecord(text)
	first := r.Records == 0
	switch {
	case err != nil:
		c.problem(ProblemAltered, r.Seq+1, f.path, line, "%v", err)
		return
	case first:
		c.start = chainStart{rec.seq, rec.prev}
		if rec.seq == 0 || rec.seq == 1 && rec.prev != c.last {
			c.problem(ProblemAltered, rec.seq, f.path, line, "the first record follows another one")
			return
		}
	case rec.seq > r.Seq+1:
		c.problem(ProblemRemoved, r.Seq+1, f.path, line, "record %d follows record %d", rec.seq, r.Seq)
		return
	case rec.seq <= r.Seq:
		c.problem(ProblemAltered, rec.seq, f.path, line, "record %d follows record %d", rec.seq, r.Seq)
		return
	case rec.prev != c.last:
		c.problem(ProblemAltered, r.Seq, f.path, max(line-1, 1), "its hash is not the one that record %d has", rec.seq)
		return
	}
	if (rec.event == eventSegment) != (line == 1) || line == 1 && !c.isStart(rec, f) {
		c.problem(ProblemAltered, rec.seq, f.path, line, "not the first record of this segment")
		return
	}
	r.Records, r.Seq, c.last, r.Last = r.Records+1, rec.seq, rec.hash, rec.time()
	if first {
		r.First = r.Last
	}
	switch {
	case rec.event == eventCheckpoint:
		c.checkpoint(f, line, rec)
	case rec.event == eventRetention:
		c.retention(rec)
	case c.head != nil && c.head.Seq == rec.seq && c.head.Hash != hex.EncodeToString(rec.hash[:]) && c.accepts(c.head):
		c.problem(ProblemAltered, r.Signed+1, f.path, line, "a record from %d to %d differs: the last checkpoint has "+
			"another hash", r.Signed+1, rec.seq)
	}
}

// isStart reports whether a record begins a segment, and notes its key.
func (c *chainVerifier) isStart(rec *parsedRecord, f segmentFile) bool {
	detail, _ := rawjson.Get(rec.line, "detail")
	var d segmentDetail
	if json.Unmarshal(detail, &d) != nil || d.Chain != f.chain || d.Segment != f.number {
		return false
	}
	key, err := hex.DecodeString(d.Key)
	if c.key == nil && err == nil {
		c.key = key
	}
	return err == nil
}

func (c *chainVerifier) checkpoint(f segmentFile, line int, rec *parsedRecord) {
	detail, _ := rawjson.Get(rec.line, "detail")
	var p Checkpoint
	r := c.report
	switch {
	case json.Unmarshal(detail, &p) != nil || !c.accepts(&p):
		c.problem(ProblemForged, r.Signed+1, f.path, line,
			"the checkpoint of records %d to %d has no valid signature of an accepted key", r.Signed+1, rec.seq-1)
	case p.Seq != rec.seq-1 || p.Hash != hex.EncodeToString(rec.prev[:]):
		c.problem(ProblemAltered, r.Signed+1, f.path, line,
			"a record from %d to %d differs: the checkpoint has another hash", r.Signed+1, rec.seq-1)
	default:
		r.Signed, c.signs = rec.seq, true
		for _, d := range c.gone {
			c.retired[d.Chain] = d
		}
		c.gone = nil
	}
}

// retention notes that a segment was removed, if a checkpoint follows.
func (c *chainVerifier) retention(rec *parsedRecord) {
	detail, _ := rawjson.Get(rec.line, "detail")
	var d retentionDetail
	if json.Unmarshal(detail, &d) == nil {
		c.gone = append(c.gone, d)
	}
}
