// Package recording writes the messages between a client and a server to a file, and replays them
// as a server.
//
// A recording contains one JSON value per line. The first line of each connection contains the
// version of the format; every line identifies its connection, so that several processes can append
// to a file. `patchbay help recordings` specifies the members.
package recording

import (
	"bufio"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/patchbay-mcp/patchbay/gateway/internal/private"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// Version is the version of the format.
const Version = 1

const (
	// maxMessage limits a recorded message, in bytes: images would make a file that no editor
	// opens.
	maxMessage = 4 << 20
	// maxFile bounds a recording, in bytes: a replay holds it in memory.
	maxFile = 256 << 20
	// maxHeaders and maxHeader limit the recorded headers of a message, and characters of a value.
	maxHeaders, maxHeader = 100, 1000
	// maxLine bounds a line, in bytes: the message, and the headers in their longest encoding.
	maxLine = maxMessage + maxHeaders*maxHeader*12
	// maxStart bounds the beginning of a message that is cut, in characters.
	maxStart = 1000
)

// An Entry is a line of a recording.
type Entry struct {
	Version    int            `json:"recording,omitzero"` // in the first line of a connection
	Program    string         `json:"program,omitzero"`
	Target     string         `json:"target,omitzero"`
	Time       time.Time      `json:"time"`
	Connection string         `json:"connection"`
	From       string         `json:"from,omitzero"`
	HTTP       *httpFacts     `json:"http,omitzero"`
	Message    jsontext.Value `json:"message,omitzero"`
	Cut        int            `json:"cut,omitzero"`   // the size of a message that is not complete
	Start      string         `json:"start,omitzero"` // the beginning of its JSON
}

// Values of Entry.From.
const (
	FromClient = "client"
	FromServer = "server"
)

type httpFacts struct {
	Method string              `json:"method"`
	Status int                 `json:"status,omitzero"`
	Header map[string][]string `json:"header,omitzero"`
}

// A Writer writes a recording. It is safe for concurrent use.
type Writer struct {
	mu   sync.Mutex // guards the fields below
	file *os.File
	size int64
	err  error // the first error, after which nothing is written
}

// Open creates a file of mode 0600, or opens a file to append to it. An existing file must be
// regular, accessible only to its user, and begin like a recording; symbolic links are rejected.
func Open(path string) (*Writer, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if !errors.Is(err, os.ErrExist) {
		if err != nil {
			return nil, err
		}
		return &Writer{file: f}, nil
	}
	info, err := os.Lstat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s: not a regular file", path)
	}
	if err == nil {
		err = private.CheckOwner(path, info)
	}
	if err != nil {
		return nil, err
	}
	if f, err = os.OpenFile(path, os.O_RDWR|os.O_APPEND, 0); err != nil {
		return nil, err
	}
	opened, err := f.Stat()
	if err == nil && !os.SameFile(info, opened) {
		err = fmt.Errorf("%s: replaced while it was opened", path)
	}
	if err == nil {
		err = checkAppend(f, opened.Size())
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return &Writer{file: f, size: opened.Size()}, nil
}

// checkAppend reports whether a file is empty or a recording with complete lines.
func checkAppend(f *os.File, size int64) error {
	if size == 0 {
		return nil
	}
	const maxFirst = 64 << 10 // bytes of the first line
	text, err := bufio.NewReader(io.NewSectionReader(f, 0, maxFirst)).ReadBytes('\n')
	var first Entry
	if err != nil || json.Unmarshal(text, &first) != nil || first.Version == 0 {
		return fmt.Errorf("%s exists and is not a recording: choose another file", f.Name())
	}
	if first.Version != Version {
		return fmt.Errorf("%s has version %d of the format, want %d: choose another file",
			f.Name(), first.Version, Version)
	}
	last := make([]byte, 1)
	if _, err := f.ReadAt(last, size-1); err != nil || last[0] != '\n' {
		return fmt.Errorf("%s: the last line is not complete: remove it, or choose another file", f.Name())
	}
	return nil
}

// Trace returns a function for [mcp.Trace] that records a connection. target names the server.
func (w *Writer) Trace(program, target string) func(mcp.Frame) {
	connection := rand.Text()[:8]
	w.write(&Entry{Version: Version, Program: program, Target: target, Connection: connection})
	return func(f mcp.Frame) {
		l := &Entry{Connection: connection, From: FromServer}
		if f.Sent {
			l.From = FromClient
		}
		if f.Method != "" {
			l.HTTP = &httpFacts{Method: f.Method, Status: f.Status, Header: boundedHeader(f.Header)}
		}
		if f.Message != nil {
			l.Message = jsonrpc.Append(nil, f.Message)
		}
		if len(l.Message) > maxMessage {
			l.Cut, l.Start = len(l.Message), strings.ToValidUTF8(string(l.Message[:maxStart]), "")
			l.Message = jsonrpc.Append(nil, withoutContent(f.Message))
		}
		w.write(l)
	}
}

// withoutContent returns a message of the same kind without params, result or text.
func withoutContent(m *jsonrpc.Message) *jsonrpc.Message {
	short := &jsonrpc.Message{ID: m.ID, Method: m.Method}
	switch {
	case m.Error != nil:
		short.Error = &jsonrpc.Error{Code: m.Error.Code}
	case m.Result != nil:
		short.Result = []byte("{}")
	}
	return short
}

func boundedHeader(header map[string][]string) map[string][]string {
	bounded := map[string][]string{}
	for name, values := range header {
		if len(bounded) == maxHeaders {
			break
		}
		value := strings.ToValidUTF8(strings.Join(values, ", "), "\uFFFD")
		if len(value) > maxHeader {
			value = strings.ToValidUTF8(value[:maxHeader], "") + "…"
		}
		bounded[strings.ToValidUTF8(name[:min(len(name), maxHeader)], "\uFFFD")] = []string{value}
	}
	return bounded
}

func (w *Writer) write(l *Entry) {
	l.Time = time.Now().UTC().Truncate(time.Microsecond)
	text, err := json.Marshal(l, json.Deterministic(true))
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.err != nil:
		return
	case err == nil && w.size+int64(len(text)) >= maxFile:
		err = fmt.Errorf("stopped: a recording has at most %d MiB", maxFile>>20)
	case err == nil:
		var n int
		n, err = w.file.Write(append(text, '\n')) // a single write, since other processes may append too
		w.size += int64(n)
	}
	w.err = err
}

// Close closes the file. It returns the first error of all writes.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.file.Close()
	if w.err != nil {
		err = w.err
	}
	return err
}
