package load

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
)

// A Pipe is one end of a pipe to a server's standard input or output, such as
// an *os.File.
type Pipe interface {
	io.ReadWriteCloser
	SetDeadline(time.Time) error
}

// A Stdio load keeps a window of calls in flight over one pair of pipes, from
// one goroutine: it reads the available responses and writes as many calls. All
// messages of a window must fit into a pipe in both directions, or both sides
// could block in a write. A pipe has 64 KiB on Linux, enough for 128 calls.
// Larger messages need a window of one.
type Stdio struct {
	call       Call
	quickCheck quickCheck
	window     int
	to, from   Pipe
	template   []byte // one call and its newline
	at         int    // of the id in template
	next       int    // id of the next call
	out        []byte
	in         []byte       // unread bytes are in[:unread]
	unread     int          // of an incomplete line
	open       map[int]bool // ids of the calls in flight
	answered   int          // since the pipes were opened
	idText     [idDigits]byte
}

// maxLine bounds a line of a server. A whole window of small lines fits into
// it.
const maxLine = 1 << 18

// errEnded is returned when a server exits with calls in flight.
var errEnded = errors.New("server ended")

// NewStdio returns a load with window calls in flight over the two pipes. It
// opens a session in the session era and checks the first response. The load
// takes ownership of the pipes, also on error.
func NewStdio(to, from Pipe, window int, call Call) (*Stdio, error) {
	s := &Stdio{
		call: call, quickCheck: call.quickCheck(), window: window, to: to, from: from,
		next: firstID, in: make([]byte, maxLine), open: make(map[int]bool, window),
	}
	s.template, s.at = call.message()
	s.template = append(s.template, '\n')
	if err := s.ready(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Stdio) ready() error {
	if err := s.setDeadline(time.Now().Add(grace)); err != nil {
		return err
	}
	if s.call.Era == echo.Session {
		if err := s.openSession(); err != nil {
			return err
		}
	}
	if err := s.write(1); err != nil {
		return err
	}
	for len(s.open) > 0 {
		if err := s.read(); err != nil {
			return err
		}
	}
	return nil
}

func (s *Stdio) openSession() error {
	if _, err := s.to.Write(append(bytes.Clone(initialize), '\n')); err != nil {
		return fmt.Errorf("initialize: %w", err)
	}
	var line []byte
	for !bytes.HasSuffix(line, []byte("\n")) {
		n, err := s.from.Read(s.in)
		if err != nil {
			return fmt.Errorf("initialize: %w", err)
		}
		line = append(line, s.in[:n]...)
	}
	if err := checkInitialized(line); err != nil {
		return err
	}
	_, err := s.to.Write(append(bytes.Clone(initialized), '\n'))
	return err
}

// Run implements Load.
func (s *Stdio) Run(d time.Duration) (Slice, error) {
	begin := time.Now()
	if err := s.setDeadline(begin.Add(d + grace)); err != nil {
		return Slice{}, err
	}
	before := s.answered
	for more := true; ; more = time.Since(begin) < d {
		if more {
			if err := s.write(s.window - len(s.open)); err != nil {
				return Slice{}, err
			}
		}
		if len(s.open) == 0 {
			return Slice{Calls: s.answered - before, Wall: time.Since(begin)}, nil
		}
		if err := s.read(); err != nil {
			return Slice{}, err
		}
	}
}

// write sends n calls at once.
func (s *Stdio) write(n int) error {
	s.out = s.out[:0]
	for range n {
		begin := len(s.out)
		s.out = append(s.out, s.template...)
		strconv.AppendInt(s.out[begin+s.at:begin+s.at], int64(s.next), 10)
		s.open[s.next] = true
		s.next++
	}
	_, err := s.to.Write(s.out)
	return err
}

// read reads once and processes the complete responses.
func (s *Stdio) read() error {
	n, err := s.from.Read(s.in[s.unread:])
	if errors.Is(err, io.EOF) {
		return errEnded
	}
	if err != nil {
		return err
	}
	rest := s.in[:s.unread+n]
	for {
		line, after, found := bytes.Cut(rest, []byte("\n"))
		if !found {
			break
		}
		if err := s.match(line); err != nil {
			return err
		}
		rest = after
	}
	if len(rest) == len(s.in) {
		return errLargeAnswer
	}
	s.unread = copy(s.in, rest)
	return nil
}

// match finds the call of a response, which must be in flight, and checks it.
func (s *Stdio) match(line []byte) error {
	id, ok := answerID(line)
	if !ok || !s.open[id] {
		return fmt.Errorf("response matches no call in flight: %.300q", line)
	}
	delete(s.open, id)
	s.answered++
	text := strconv.AppendInt(s.idText[:0], int64(id), 10)
	if s.answered%sampleEvery != 1 {
		return s.quickCheck.check(line, text)
	}
	return s.call.check(line, text)
}

func (s *Stdio) setDeadline(t time.Time) error {
	return errors.Join(s.to.SetDeadline(t), s.from.SetDeadline(t))
}

// Close implements Load. A server on stdio ends when its input does.
func (s *Stdio) Close() error {
	return errors.Join(s.to.Close(), s.from.Close())
}
