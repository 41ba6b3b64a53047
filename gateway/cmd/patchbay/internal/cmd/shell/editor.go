package shell

import (
	"bytes"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ergochat/readline"
	xterm "golang.org/x/term"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/visible"
)

// An editor reads lines from a terminal. Text that is written to it appears above the line that the
// user types. It is safe for concurrent use, except for readLine.
type editor struct {
	library   *readline.Instance
	keys      *sharedInput
	out       io.Writer
	history   *history
	prompting atomic.Bool
	closed    chan struct{}
	ended     atomic.Bool // whether the terminal was closed
}

const (
	// QueryCursor asks a terminal for the position of the cursor.
	QueryCursor = "\x1b[6n"
	// cursorAtStart is the answer of a terminal whose cursor is in the first column.
	cursorAtStart = "\x1b[1;1R"
)

// newEditor returns an editor for the terminal of keys and out.
func newEditor(prompt string, keys *sharedInput, out io.Writer, h *history, complete readline.AutoCompleter,
) (*editor, error) {
	e := &editor{keys: keys, out: out, history: h, closed: make(chan struct{})}
	cfg := &readline.Config{
		Prompt: prompt, AutoComplete: complete, Undo: true, HistoryLimit: maxHistory, DisableAutoSaveHistory: true,
		Stdin: (*editorInput)(e), Stdout: (*editorOutput)(e), Stderr: out, EOFPrompt: "exit",
		FuncIsTerminal:      func() bool { return true },
		FuncGetSize:         func() (width, height int) { return sizeOf(out) },
		FuncFilterInputRune: filterKey,
	}
	if _, ok := keys.r.(*os.File); !ok { // a test
		cfg.FuncMakeRaw, cfg.FuncExitRaw = func() error { return nil }, func() error { return nil }
		cfg.FuncOnWidthChanged = func(func()) {}
	}
	var err error
	if e.library, err = readline.NewFromConfig(cfg); err != nil {
		return nil, err
	}
	for _, line := range h.lines {
		_ = e.library.SaveToHistory(line) // in memory
	}
	return e, nil
}

// filterKey omits invisible characters and NUL, which remains of a Ctrl-D that was typed while a
// command ran. Negative values represent keys of the library.
func filterKey(r rune) (key rune, ok bool) { return r, r != 0 && (r <= 0x7F || !visible.Hidden(r)) }

// sizeOf returns the size of a terminal, or a usual size if the terminal does not tell.
func sizeOf(stream any) (width, height int) {
	const defaultHeight = 24
	if f, ok := stream.(*os.File); ok {
		width, height, _ = xterm.GetSize(int(f.Fd()))
	}
	if height < 3 { // less is not a real height
		height = defaultHeight
	}
	return term.RealWidth(width), height
}

// readLine returns the next line. The error is io.EOF for Ctrl-D, readline.ErrInterrupt for Ctrl-C.
func (e *editor) readLine() (string, error) {
	e.prompting.Store(true)
	line, err := e.library.ReadLine()
	e.prompting.Store(false)
	if err == nil && e.ended.Load() {
		err = io.EOF // the line is not complete
	}
	return line, err
}

// remember adds a line to the history.
func (e *editor) remember(line string) error {
	if !e.history.wants(line) {
		return nil
	}
	_ = e.library.SaveToHistory(line) // in memory
	return e.history.add(line)
}

// Write writes whole lines above the line that is edited.
func (e *editor) Write(b []byte) (int, error) {
	if e.prompting.Load() && !bytes.HasSuffix(b, []byte("\n")) {
		_, err := e.library.Stderr().Write(append(slices.Clone(b), '\n'))
		return len(b), err
	}
	return e.library.Stderr().Write(b)
}

// close ends readLine and restores the terminal.
func (e *editor) close() { _ = e.library.Close() }

// editorInput reads single bytes for the library: remaining keys stay for a command's prompts.
type editorInput editor

func (in *editorInput) Read(p []byte) (int, error) {
	n, err := in.keys.read(p[:min(len(p), 1)], in.closed)
	if err != nil {
		in.ended.Store(true)
	}
	return n, err
}

// editorOutput is the output of the library. The library asks the terminal for the position of the
// cursor and waits for the answer without a time limit. editorOutput answers instead: prompts begin
// in the first column.
type editorOutput editor

func (o *editorOutput) Write(b []byte) (int, error) {
	rest := b
	if bytes.Contains(b, []byte(QueryCursor)) {
		o.keys.inject(cursorAtStart)
		rest = bytes.ReplaceAll(b, []byte(QueryCursor), nil)
	}
	if _, err := o.out.Write(rest); err != nil {
		return 0, err
	}
	return len(b), nil
}

// A sharedInput is a terminal that the editor and the prompts of commands read in turn. The read of
// a prompt continues after the prompt has ended, and the next reader receives its bytes.
type sharedInput struct {
	r      io.Reader
	chunks chan inputChunk // of the pending read

	mu      sync.Mutex // guards the fields below
	rest    []byte
	pending bool
}

type inputChunk struct {
	data []byte
	err  error
}

func newSharedInput(r io.Reader) *sharedInput {
	return &sharedInput{r: r, chunks: make(chan inputChunk, 1)}
}

// inject puts text before the bytes of the next read.
func (s *sharedInput) inject(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rest = append([]byte(text), s.rest...)
}

// read reads into p. It returns io.EOF when stop is closed. It must not be called concurrently.
func (s *sharedInput) read(p []byte, stop <-chan struct{}) (int, error) {
	s.mu.Lock()
	if n := copy(p, s.rest); n > 0 {
		s.rest = s.rest[n:]
		s.mu.Unlock()
		return n, nil
	}
	if !s.pending {
		s.pending = true
		buf := make([]byte, len(p))
		go func() { // ends with the input or the program
			n, err := s.r.Read(buf)
			s.chunks <- inputChunk{buf[:n], err}
		}()
	}
	s.mu.Unlock()
	select {
	case <-stop:
		return 0, io.EOF
	case c := <-s.chunks:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.pending = false
		select {
		case <-stop: // both were ready
			s.rest = append(s.rest, c.data...)
			return 0, io.EOF
		default:
		}
		n := copy(p, c.data)
		s.rest = append(s.rest, c.data[n:]...)
		return n, c.err
	}
}

// A lease reads a sharedInput until it ends.
type lease struct {
	shared *sharedInput
	stop   chan struct{}
	reads  sync.Mutex // held during a read
}

func (l *lease) Read(p []byte) (int, error) {
	l.reads.Lock()
	defer l.reads.Unlock()
	select {
	case <-l.stop:
		return 0, io.EOF
	default:
		return l.shared.read(p, l.stop)
	}
}

// end ends the reads of the lease, and waits for that.
func (l *lease) end() {
	close(l.stop)
	l.reads.Lock()
	l.reads.Unlock() //nolint:staticcheck // waits for the last read
}
