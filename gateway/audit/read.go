package audit

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strconv"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
)

// lines reads the complete lines of a file.
type lines struct {
	file   *os.File
	r      *bufio.Reader
	line   []byte // without the line feed; valid until the next call
	offset int64  // behind the line
	torn   int64  // bytes after the last complete line
	err    error
}

var errLongLine = fmt.Errorf("a line has more than %d bytes", maxLine)

func openLines(path string) (*lines, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	const buffer = 64 << 10
	return &lines{file: f, r: bufio.NewReaderSize(f, buffer)}, nil
}

// next reads the next line. It reports false at the end, and if err is set.
func (l *lines) next() bool {
	l.line = l.line[:0]
	for {
		part, err := l.r.ReadSlice('\n')
		l.line = append(l.line, part...)
		switch {
		case len(l.line) > maxLine+1:
			l.err = errLongLine
			return false
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF):
			l.torn = int64(len(l.line))
			return false
		case err != nil:
			l.err = err
			return false
		}
		l.offset += int64(len(l.line))
		l.line = l.line[:len(l.line)-1]
		return true
	}
}

func (l *lines) close() { _ = l.file.Close() } // it was only read

// A parsedRecord is a record whose line contains its own hash.
type parsedRecord struct {
	line       []byte
	seq        uint64
	event      string
	prev, hash [sha256.Size]byte
}

var (
	errForm = errors.New("not a record of this log")
	errHash = errors.New("the hash is not that of the line")
)

// parseRecord checks the form and the hash of a line. The result aliases it.
func parseRecord(line []byte) (*parsedRecord, error) {
	const before, between, digits = `,"prev":"`, `","hash":"`, 2 * sha256.Size
	tail := len(before) + len(between) + 2*digits + len(`"}`)
	at := len(line) - tail
	if at < 0 || rawjson.Valid(line) != nil || rawjson.Kind(line) != '{' {
		return nil, errForm
	}
	r := &parsedRecord{line: line}
	end := line[at:]
	prev, rest, ok := cutHex(end, before)
	if !ok || !bytes.HasPrefix(rest, []byte(between)) {
		return nil, errForm
	}
	sum, rest, ok := cutHex(rest, between)
	if !ok || string(rest) != `"}` {
		return nil, errForm
	}
	r.prev, r.hash = prev, sum
	hashed := line[:len(line)-len(rest)-digits-len(`,"hash":"`)]
	if sha256.Sum256(hashed) != r.hash {
		return nil, errHash
	}
	number, _ := rawjson.Get(line, "seq")
	var err error
	if r.seq, err = strconv.ParseUint(string(number), 10, 64); err != nil {
		return nil, errForm
	}
	r.event = rawjson.GetString(line, "event")
	return r, nil
}

// cutHex returns the digest that follows a text.
func cutHex(b []byte, before string) (sum [sha256.Size]byte, rest []byte, ok bool) {
	b, ok = bytes.CutPrefix(b, []byte(before))
	if !ok || len(b) < hex.EncodedLen(len(sum)) {
		return sum, nil, false
	}
	text := b[:hex.EncodedLen(len(sum))]
	_, err := hex.Decode(sum[:], text)
	return sum, b[len(text):], err == nil && hex.EncodeToString(sum[:]) == string(text)
}

// text returns a text of the detail.
func (r *parsedRecord) text(key string) string {
	detail, _ := rawjson.Get(r.line, "detail")
	if rawjson.Kind(detail) != '{' {
		return ""
	}
	return rawjson.GetString(detail, key)
}

func (r *parsedRecord) time() time.Time {
	t, _ := time.Parse(timeFormat, rawjson.GetString(r.line, "t")) // zero if it is not a time
	return t
}

// An Entry is a record as it was read. Its fields are the members of the line.
type Entry struct {
	Version    int       `json:"v"`
	Seq        uint64    `json:"seq"`
	Time       time.Time `json:"t"`
	Event      string    `json:"event"` // a [event.Kind], or an event of the log itself
	ID         string    `json:"id"`
	Kind       string    `json:"kind"`
	Method     string    `json:"method"`
	Caller     string    `json:"caller"`
	Key        string    `json:"key"` // the name of the caller's key
	Profile    string    `json:"profile"`
	Client     struct{ Name, Version string }
	Server     string          `json:"server"`
	Target     string          `json:"target"`
	Public     string          `json:"public"`
	Definition string          `json:"def"`
	Arguments  *ArgumentsEntry `json:"args"`
	Rule       string          `json:"rule"`
	DryRun     []string        `json:"dryRun"`
	Channel    string          `json:"channel"`
	Approver   string          `json:"approver"`
	Outcome    string          `json:"outcome"`
	Result     *ResultEntry    `json:"result"`
	Error      *ErrorEntry     `json:"error"`
	Millis     float64         `json:"ms"`
	MayHaveRun bool            `json:"mayHaveRun"`
	Detail     json.RawMessage `json:"detail"`

	// Chain is the chain of the record, and Raw its line.
	Chain string          `json:"-"`
	Raw   json.RawMessage `json:"-"`
}

// An ArgumentsEntry contains arguments in one of the forms.
type ArgumentsEntry struct {
	Bytes    int             `json:"bytes"`
	Shape    json.RawMessage `json:"shape"`
	Hash     string          `json:"hash"`
	Redacted json.RawMessage `json:"redacted"`
	Full     json.RawMessage `json:"full"`
	Masked   bool            `json:"masked"` // Full contains "[secret]" in place of secrets
}

// A ResultEntry describes a result. Hash is an HMAC-SHA-256 with a key of the log.
type ResultEntry struct {
	Bytes   int    `json:"bytes"`
	IsError bool   `json:"isError"`
	Hash    string `json:"hash"`
}

// An ErrorEntry is an error. Code is the code of a [hosterr.Error], or a JSON-RPC code.
type ErrorEntry struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func parseEntry(chain string, line []byte) (*Entry, error) {
	e := &Entry{Chain: chain, Raw: bytes.Clone(line)}
	if err := json.Unmarshal(e.Raw, e); err != nil {
		return nil, err
	}
	return e, nil
}

// Read returns the records of all chains of a folder, in the order of their times; records of a
// chain stay in their order. It does not verify hashes: see [Verify]. A line that is not a record
// is an error, after which reading continues. Read skips an incomplete last line, which is being
// written or whose process was killed.
func Read(dir string) iter.Seq2[*Entry, error] {
	return func(yield func(*Entry, error) bool) {
		all, err := segments(dir)
		if err != nil {
			yield(nil, err)
			return
		}
		var readers []*chainReader
		defer func() {
			for _, r := range readers {
				r.stop()
			}
		}()
		for _, files := range all {
			r := newChainReader(files)
			readers = append(readers, r)
			if !r.advance(yield) {
				return
			}
		}
		for {
			first := earliest(readers)
			if first == nil {
				return
			}
			if !yield(first.entry, nil) || !first.advance(yield) {
				return
			}
		}
	}
}

// A chainReader holds the next entry of a chain.
type chainReader struct {
	next  func() (*Entry, error, bool)
	stop  func()
	entry *Entry // nil at the end
}

func newChainReader(files []segmentFile) *chainReader {
	r := &chainReader{}
	r.next, r.stop = iter.Pull2(readChain(files))
	return r
}

// advance reads the next entry, and yields the errors before it.
func (r *chainReader) advance(yield func(*Entry, error) bool) bool {
	for {
		e, err, ok := r.next()
		if !ok || err == nil {
			r.entry = e
			return true
		}
		if !yield(nil, err) {
			return false
		}
	}
}

func earliest(all []*chainReader) (first *chainReader) {
	for _, r := range all {
		if r.entry != nil && (first == nil || r.entry.Time.Before(first.entry.Time) ||
			r.entry.Time.Equal(first.entry.Time) && r.entry.Chain < first.entry.Chain) {
			first = r
		}
	}
	return first
}

// readChain returns the entries of the segments of a chain.
func readChain(files []segmentFile) iter.Seq2[*Entry, error] {
	return func(yield func(*Entry, error) bool) {
		for _, f := range files {
			r, err := openLines(f.path)
			if err != nil {
				if !errors.Is(err, os.ErrNotExist) && !yield(nil, err) { // it was just removed because of its age
					return
				}
				continue
			}
			for n := 1; r.next(); n++ {
				e, err := parseEntry(f.chain, r.line)
				if err != nil {
					e, err = nil, fmt.Errorf("%s:%d: invalid record: %w", f.path, n, err)
				}
				if !yield(e, err) {
					r.close()
					return
				}
			}
			r.close()
			if r.err != nil && !yield(nil, fmt.Errorf("%s: %w", f.path, r.err)) {
				return
			}
		}
	}
}

// readSmall reads a file of a bounded size.
func readSmall(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("%s has more than %d bytes", path, most)
	}
	return text, err
}
