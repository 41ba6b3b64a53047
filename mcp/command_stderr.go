package mcp

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"sync"
)

const (
	// maxStderrLine is where a line of standard error is cut: people read it.
	maxStderrLine = 64 << 10
	// lastLines and lastBytes bound what is kept of standard error to explain the end of a server: about a screen.
	lastLines = 16
	lastBytes = 4 << 10
)

// A stderrReader reads what a server writes to its standard error, as fast as the server does, so that it never waits.
type stderrReader struct {
	r     io.ReadCloser
	notes *noteQueue
	ended chan struct{} // closed when there is no more

	mu    sync.Mutex // guards the fields below
	lines [lastLines][]byte
	count int // of all lines
}

func newStderrReader(r io.ReadCloser, notes *noteQueue) *stderrReader {
	s := &stderrReader{r: r, notes: notes, ended: make(chan struct{})}
	go s.run()
	return s
}

func (s *stderrReader) run() {
	defer close(s.ended)
	in := bufio.NewReaderSize(s.r, maxStderrLine)
	for {
		line, err := in.ReadSlice('\n')
		if text := bytes.TrimRight(line, "\r\n"); len(text) > 0 || err == nil {
			s.keep(text)
			s.notes.line(text)
		}
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = in.ReadSlice('\n')
		}
		if err != nil {
			return
		}
	}
}

// Close ends reading.
func (s *stderrReader) Close() error {
	err := s.r.Close()
	<-s.ended
	return err
}

// keep remembers a line in the place of the oldest one.
func (s *stderrReader) keep(line []byte) {
	if len(line) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	place := &s.lines[s.count%lastLines]
	*place = append((*place)[:0], line[:min(len(line), lastBytes)]...)
	s.count++
}

// last returns the last lines, as many as fit.
func (s *stderrReader) last() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var text string
	for i := s.count - 1; i >= max(0, s.count-lastLines); i-- {
		line := strings.ToValidUTF8(string(s.lines[i%lastLines]), "\uFFFD")
		if text != "" {
			line += "\n"
		}
		if len(line)+len(text) > lastBytes {
			break
		}
		text = line + text
	}
	return text
}
