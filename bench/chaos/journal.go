package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// A journal is a file of lines that survives a kill of its process. Each line is one write, so it
// is in the file completely or not at all.
type journal struct{ file *os.File }

func openJournal(path string) (*journal, error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	return &journal{file}, nil
}

// write appends a line of fields, which contain no spaces.
func (j *journal) write(fields ...string) error {
	_, err := j.file.WriteString(strings.Join(fields, " ") + "\n")
	return err
}

// sync is a write that is on the disk when it returns.
func (j *journal) sync(fields ...string) error {
	return errors.Join(j.write(fields...), j.file.Sync())
}

// A journalReader reads the lines that were appended to a journal since the last call of next.
type journalReader struct {
	path   string
	offset int64
	limit  int64 // set by mark
}

// mark makes the next call of next return the lines that are in the file now, and no later ones.
func (r *journalReader) mark() {
	r.limit = r.offset
	if info, err := os.Stat(r.path); err == nil {
		r.limit = info.Size()
	}
}

func (r *journalReader) next() (lines []string, err error) {
	file, err := os.Open(r.path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data := make([]byte, r.limit-r.offset)
	if _, err := file.ReadAt(data, r.offset); err != nil {
		return nil, err
	}
	end := strings.LastIndexByte(string(data), '\n') + 1 // a line is one write: this is the end of the data
	r.offset += int64(end)
	for line := range strings.Lines(string(data[:end])) {
		lines = append(lines, strings.TrimSuffix(line, "\n"))
	}
	return lines, nil
}

// A onceStore is an mcp.OnceStore in a file: a key that was used is refused after a restart, too.
type onceStore struct {
	mu   sync.Mutex // guards the field below
	used map[string]bool
	file *journal
}

func openOnceStore(path string) (*onceStore, error) {
	file, err := openJournal(path)
	if err != nil {
		return nil, err
	}
	reader := &journalReader{path: path}
	reader.mark()
	lines, err := reader.next()
	s := &onceStore{used: map[string]bool{}, file: file}
	for _, key := range lines {
		s.used[key] = true
	}
	return s, err
}

// Once reports whether this is the first call with the key, in all processes that used the file.
func (s *onceStore) Once(_ context.Context, key string, _ time.Time) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used[key] {
		return false, nil
	}
	s.used[key] = true
	return true, s.file.sync(key)
}

// Put refuses: the states of this program are small.
func (s *onceStore) Put(_ context.Context, key string, state []byte, _ time.Time) error {
	return fmt.Errorf("state %s of %d bytes: must be small enough to travel with the client", key, len(state))
}

// Get returns nothing, since Put stores nothing.
func (s *onceStore) Get(context.Context, string) ([]byte, error) { return nil, nil }
