package mcp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// readAll reads to the end. It returns each message as a line and each refusal as "refused" with its code.
func readAll(t *testing.T, conn mcp.Conn) (got []string) {
	t.Helper()
	for {
		m, err := conn.Read(t.Context())
		var refused *jsonrpc.DecodeError
		switch {
		case err == nil:
			got = append(got, string(jsonrpc.Append(nil, m)))
		case errors.As(err, &refused):
			got = append(got, fmt.Sprintf("refused %d", refused.Err.Code))
		case err == io.EOF:
			return got
		default:
			t.Fatalf("Read: %v", err)
		}
	}
}

func numbered(n int) string { return fmt.Sprintf(`{"jsonrpc":"2.0","method":"m%d"}`, n) }

// Requirement: STDIO-02
func TestOneMessagePerLine(t *testing.T) {
	input := numbered(1) + "\n" +
		"\n \t\r\n" + // blank lines
		numbered(2) + "\r\n" + // CRLF
		"{\"jsonrpc\":\"2.0\",\n" + // half a message
		"what?\n" +
		strings.Repeat(" ", 100) + numbered(3) + "\n" + // too long because of its spaces
		numbered(4) // without a line end
	want := []string{numbered(1), numbered(2), "refused -32700", "refused -32700", "refused -32600", numbered(4)}
	for name, r := range map[string]io.Reader{
		"whole":       strings.NewReader(input),
		"one byte":    iotest.OneByteReader(strings.NewReader(input)),
		"halves":      iotest.HalfReader(strings.NewReader(input)),
		"data at EOF": iotest.DataErrReader(strings.NewReader(input)),
		"direct":      directReader{iotest.OneByteReader(strings.NewReader(input))},
	} {
		conn := mcp.NewStreamConn(r, io.Discard, &mcp.StreamConnOptions{MaxMessage: 100})
		if got := readAll(t, conn); !slices.Equal(got, want) {
			t.Errorf("%s: read %q, want %q", name, got, want)
		}
		if _, err := conn.Read(t.Context()); err != io.EOF {
			t.Errorf("%s: after the end: %v", name, err)
		}
	}
}

// A directReader has deadlines, so the goroutine that calls Read reads from it.
type directReader struct{ io.Reader }

func (directReader) SetReadDeadline(time.Time) error { return nil }

// Bytes that arrive with the end of a long line belong to the next line.
func TestLongAndShortLinesAlternate(t *testing.T) {
	var input strings.Builder
	var want []string
	for _, size := range []int{100, 70_000, 32 << 10, 100, 32<<10 - 1, 32<<10 + 1, 1 << 20, 5_000, 300_000, 6 << 20, 200} {
		input.WriteString(paddedMessage(size) + "\n" + numbered(size) + "\n")
		want = append(want, paddedMessage(size), numbered(size))
	}
	for name, r := range map[string]io.Reader{
		"by a goroutine":      strings.NewReader(input.String()),
		"direct":              directReader{strings.NewReader(input.String())},
		"direct, halves":      directReader{iotest.HalfReader(strings.NewReader(input.String()))},
		"direct, data at EOF": directReader{iotest.DataErrReader(strings.NewReader(input.String()))},
	} {
		if got := readAll(t, mcp.NewStreamConn(r, io.Discard, nil)); !slices.Equal(got, want) {
			t.Errorf("%s: read %d messages, want %d as they were sent", name, len(got), len(want))
		}
	}
	// Two streams do not share the buffers that they have read into.
	streams := []mcp.Conn{
		mcp.NewStreamConn(directReader{strings.NewReader(input.String())}, io.Discard, nil),
		mcp.NewStreamConn(directReader{strings.NewReader(input.String())}, io.Discard, nil),
	}
	for i, text := range want {
		for n, s := range streams {
			if m, err := s.Read(t.Context()); err != nil || string(jsonrpc.Append(nil, m)) != text {
				t.Errorf("alternating: stream %d: message %d differs from what was sent, %v", n, i, err)
			}
		}
	}
}

// paddedMessage is a message of exactly n bytes.
func paddedMessage(n int) string {
	const frame = `{"jsonrpc":"2.0","method":"m","params":[""]}`
	return frame[:len(frame)-3] + strings.Repeat("x", n-len(frame)) + frame[len(frame)-3:]
}

func TestMessageAtTheDefaultLimitIsRead(t *testing.T) {
	const limit = 32 << 20 // the documented default
	input := io.MultiReader(strings.NewReader(paddedMessage(limit)+"\n"+paddedMessage(limit+1)+"\n"), strings.NewReader(numbered(1)+"\n"))
	conn := mcp.NewStreamConn(input, io.Discard, nil)
	m, err := conn.Read(t.Context())
	if err != nil || len(m.Params) < limit-100 {
		t.Fatalf("the longest message: %v", err)
	}
	_, err = conn.Read(t.Context())
	var refused *jsonrpc.DecodeError
	if !errors.As(err, &refused) || !refused.ID.IsZero() || refused.Err.Code != mcp.CodeInvalidRequest || !strings.Contains(refused.Err.Message, "33554432") {
		t.Fatalf("one byte more: %v", err)
	}
	if m, err = conn.Read(t.Context()); err != nil || m.Method != "m1" {
		t.Fatalf("the next message: %v", err)
	}
}

// An endlessReader never ends a line. It records the peak of live bytes.
type endlessReader struct {
	left int
	peak int64
}

func (r *endlessReader) Read(p []byte) (int, error) {
	const step = 4 << 20
	if r.left/step != (r.left-len(p))/step {
		r.peak = max(r.peak, liveBytes())
	}
	if r.left -= len(p); r.left < 0 {
		return 0, io.EOF
	}
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

func liveBytes() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestMemoryOfAReaderIsLimited(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	const limit, slack = 16 << 20, 256 << 10 // the slack is for the rest of the test program
	for _, direct := range []bool{false, true} {
		before := heapInUse() // without what earlier tests have left in a sync.Pool
		endless := &endlessReader{left: 128 << 20}
		var r io.Reader = endless
		if direct {
			r = directReader{r}
		}
		conn := mcp.NewStreamConn(r, io.Discard, &mcp.StreamConnOptions{MaxMessage: limit})
		if got := readAll(t, conn); !slices.Equal(got, []string{"refused -32600"}) {
			t.Errorf("read %q, want one refusal", got)
		}
		if used := endless.peak - before; used > limit+64<<10+slack {
			t.Errorf("held %d bytes, want at most %d", used, limit+64<<10)
		}
	}

	conn := mcp.NewStreamConn(io.MultiReader(strings.NewReader(paddedMessage(limit)+"\n"), strings.NewReader(numbered(1)+"\n")), io.Discard, nil)
	before := heapInUse()
	for range 2 {
		if _, err := conn.Read(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if kept := heapInUse() - before; kept > 64<<10+slack {
		t.Errorf("%d bytes still in use after a long message, want at most %d", kept, 64<<10+slack)
	}
	runtime.KeepAlive(conn)
}

// A countingWriter counts writes.
type countingWriter struct {
	bytes.Buffer
	writes int
}

func (w *countingWriter) Write(p []byte) (int, error) {
	w.writes++
	return w.Buffer.Write(p)
}

// Requirement: STDIO-02
func TestMessageIsWrittenAsOneLineInOneWrite(t *testing.T) {
	var w countingWriter
	conn := mcp.NewStreamConn(strings.NewReader(""), &w, nil)
	params := []byte("{\n  \"a\": \"b\\n\"\r\n}")
	if err := conn.Write(t.Context(), &jsonrpc.Message{Method: "m", Params: params}); err != nil {
		t.Fatal(err)
	}
	if got, want := w.String(), `{"jsonrpc":"2.0","method":"m","params":{   "a": "b\n"  }}`+"\n"; got != want || w.writes != 1 {
		t.Errorf("wrote %q in %d writes, want %q", got, w.writes, want)
	}
}

func TestConcurrentWritesStayWhole(t *testing.T) {
	r, w := io.Pipe()
	out := mcp.NewStreamConn(strings.NewReader(""), w, nil)
	in := mcp.NewStreamConn(r, io.Discard, nil)
	const writers, each = 8, 50
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			for range each {
				if err := out.Write(t.Context(), &jsonrpc.Message{Method: "m", Params: []byte(`["` + strings.Repeat("x", i*10_000) + `"]`)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	go func() {
		wg.Wait()
		out.Close()
	}()
	if got := readAll(t, in); len(got) != writers*each || slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, "refused") }) {
		t.Errorf("read %d messages, want %d", len(got), writers*each)
	}
}

// withAndWithoutDeadlines runs a test on a stream whose reads and writes have deadlines and on one without deadlines.
func withAndWithoutDeadlines(t *testing.T, test func(t *testing.T, near mcp.Conn, far io.ReadWriteCloser)) {
	t.Run("deadlines", func(t *testing.T) {
		near, far := net.Pipe()
		test(t, mcp.NewStreamConn(near, near, nil), far)
	})
	t.Run("no deadlines", func(t *testing.T) {
		r, farW := io.Pipe()
		farR, w := io.Pipe()
		test(t, mcp.NewStreamConn(r, w, nil), struct {
			io.Reader
			io.Writer
			io.Closer
		}{farR, farW, farW})
	})
}

func TestReadEndsWithItsContextAndLosesNothing(t *testing.T) {
	withAndWithoutDeadlines(t, func(t *testing.T, near mcp.Conn, far io.ReadWriteCloser) {
		cause := errors.New("cause")
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			io.WriteString(far, numbered(1)[:10]) // read, and not lost
			cancel(cause)
		}()
		if _, err := near.Read(ctx); err != cause {
			t.Fatalf("Read: %v, want %v", err, cause)
		}
		if _, err := near.Read(ctx); err != cause {
			t.Fatalf("Read again: %v, want %v", err, cause)
		}
		go io.WriteString(far, numbered(1)[10:]+"\n")
		if m, err := near.Read(t.Context()); err != nil || m.Method != "m1" {
			t.Fatalf("Read: %v, %v", m, err)
		}
		near.Close()
		far.Close()
	})
}

func TestCloseEndsReading(t *testing.T) {
	withAndWithoutDeadlines(t, func(t *testing.T, near mcp.Conn, far io.ReadWriteCloser) {
		go near.Close()
		if _, err := near.Read(t.Context()); !errors.Is(err, mcp.ErrClosed) {
			t.Errorf("Read: %v", err)
		}
		if err := near.Write(t.Context(), &jsonrpc.Message{Method: "m"}); !errors.Is(err, mcp.ErrClosed) {
			t.Errorf("Write: %v", err)
		}
		if err := near.Close(); err != nil {
			t.Errorf("a second Close: %v", err)
		}
		far.Close()
	})
}

func TestWriteEndsWithItsContext(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	conn := mcp.NewStreamConn(near, near, nil)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := conn.Write(ctx, &jsonrpc.Message{Method: "m1"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Write to a peer that does not read: %v", err)
	}
	go conn.Write(t.Context(), &jsonrpc.Message{Method: "m2"}) // nothing of m1 was written
	line := make([]byte, len(numbered(2)))
	if _, err := io.ReadFull(far, line); err != nil || string(line) != numbered(2) {
		t.Fatalf("read %q, %v", line, err)
	}

	ctx, cancel = context.WithCancel(t.Context())
	go func() {
		io.ReadFull(far, line[:5]) // the end of m2 and a part of m3
		cancel()
	}()
	if err := conn.Write(ctx, &jsonrpc.Message{Method: "m3"}); !errors.Is(err, context.Canceled) {
		t.Fatalf("partly read Write: got %v, want context.Canceled", err)
	}
	if err := conn.Write(t.Context(), &jsonrpc.Message{Method: "m4"}); !errors.Is(err, mcp.ErrDisconnected) {
		t.Errorf("Write after a partly written message: got %v, want ErrDisconnected", err)
	}
}

func TestStreamErrorsAreErrDisconnected(t *testing.T) {
	conn := mcp.NewStreamConn(iotest.ErrReader(errors.New("wire cut")), failingWriter{}, nil)
	if _, err := conn.Read(t.Context()); !errors.Is(err, mcp.ErrDisconnected) || !strings.Contains(err.Error(), "wire cut") {
		t.Errorf("Read: %v", err)
	}
	if err := conn.Write(t.Context(), &jsonrpc.Message{Method: "m"}); !errors.Is(err, mcp.ErrDisconnected) {
		t.Errorf("Write: %v", err)
	}
	if _, err := mcp.NewStreamConn(emptyReader{}, io.Discard, nil).Read(t.Context()); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("Read from a reader that returns no bytes: got %v, want io.ErrNoProgress", err)
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errors.New("wire cut") }

type emptyReader struct{}

func (emptyReader) Read([]byte) (int, error) { return 0, nil }

func TestPipeCopiesMessages(t *testing.T) {
	client, server := mcp.Pipe()
	params := []byte(`{"a":1}`)
	if err := client.Write(t.Context(), &jsonrpc.Message{ID: jsonrpc.IntID(1), Method: "m", Params: params}); err != nil {
		t.Fatal(err)
	}
	copy(params, `{"b":2}`)
	m, err := server.Read(t.Context())
	if err != nil || string(m.Params) != `{"a":1}` || m.ID != jsonrpc.IntID(1) {
		t.Errorf("read %+v, %v", m, err)
	}
}

func TestPipeDeliversMessagesWrittenBeforeClose(t *testing.T) {
	client, server := mcp.Pipe()
	client.Write(t.Context(), &jsonrpc.Message{Method: "m1"})
	client.Write(t.Context(), &jsonrpc.Message{Method: "m2"})
	client.Close()
	if got := readAll(t, server); !slices.Equal(got, []string{numbered(1), numbered(2)}) {
		t.Errorf("read %q", got)
	}
	if err := server.Write(t.Context(), &jsonrpc.Message{Method: "m"}); !errors.Is(err, mcp.ErrDisconnected) {
		t.Errorf("Write to a closed end: %v", err)
	}
	if err := client.Write(t.Context(), &jsonrpc.Message{Method: "m"}); !errors.Is(err, mcp.ErrClosed) || errors.Is(err, mcp.ErrDisconnected) {
		t.Errorf("Write on a closed end: %v", err)
	}
	if _, err := client.Read(t.Context()); !errors.Is(err, mcp.ErrClosed) {
		t.Errorf("Read on a closed end: %v", err)
	}
}

func TestPipeHasABoundedBuffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := mcp.Pipe()
		written := 0
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		for client.Write(ctx, &jsonrpc.Message{Method: "m"}) == nil {
			written++
		}
		if written < 2 || written > 1000 {
			t.Errorf("wrote %d messages into a pipe without a reader, want 2 to 1000", written)
		}
		go client.Close()
		if got := readAll(t, server); len(got) != written {
			t.Errorf("read %d messages, want %d", len(got), written)
		}
	})
}

// The test program runs as a server on its standard streams.
func TestStdio(t *testing.T) {
	if os.Getenv("PATCHBAY_TEST_STDIO") != "" {
		stdioChild()
		return
	}
	start := func(t *testing.T) (*exec.Cmd, mcp.Conn, *bytes.Buffer) {
		cmd := exec.Command(os.Args[0], "-test.run=^TestStdio$")
		cmd.Env = append(os.Environ(), "PATCHBAY_TEST_STDIO=1")
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		conn := mcp.NewStreamConn(stdout, stdin, nil)
		request, refused := jsonrpc.Decode([]byte(modernLine(`1`, "tools/call", "")))
		if refused != nil {
			t.Fatal(refused)
		}
		if err := conn.Write(t.Context(), request); err != nil {
			t.Fatal(err)
		}
		if m, err := conn.Read(t.Context()); err != nil || m.ID != jsonrpc.IntID(1) { // STDIO-03: the print does not reach standard output
			t.Fatalf("answer: %v, %v", m, err)
		}
		return cmd, conn, &stderr
	}
	finish := func(t *testing.T, cmd *exec.Cmd, stderr *bytes.Buffer) {
		if err := cmd.Wait(); err != nil {
			t.Errorf("the server ended with %v", err)
		}
		if got := stderr.String(); !strings.Contains(got, "a stray print") || !strings.Contains(got, "ended: <nil>") {
			t.Errorf("got standard error %q, want the stray print and a nil error", got)
		}
	}
	t.Run("ends with standard input", func(t *testing.T) {
		cmd, conn, stderr := start(t)
		conn.Close()
		finish(t, cmd, stderr)
	})
	t.Run("ends with a signal", func(t *testing.T) {
		if runtime.GOOS == "windows" {
			t.Skip("Windows has no interrupt signal for processes")
		}
		cmd, conn, stderr := start(t)
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if got := readAll(t, conn); got != nil {
			t.Errorf("wrote %q", got)
		}
		finish(t, cmd, stderr)
		conn.Close()
	})
}

// The writer of standard input has closed it before the server starts.
func TestStdioReadsInputWrittenBeforeItStarts(t *testing.T) {
	text := plainLine(`1`, "ping", `{}`) + "\n" + plainLine(`2`, "ping", `{}`) + "\n"
	pipe, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(w, text)
	w.Close()
	name := filepath.Join(t.TempDir(), "input")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	for name, stdin := range map[string]*os.File{"a pipe": pipe, "a file": file} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestStdio$")
		cmd.Env = append(os.Environ(), "PATCHBAY_TEST_STDIO=1")
		cmd.Stdin = stdin
		got, err := cmd.Output()
		stdin.Close()
		if want := resultLine(`1`, `{}`) + "\n" + resultLine(`2`, `{}`) + "\n"; err != nil || string(got) != want {
			t.Errorf("%s: wrote %q and ended with %v, want %q", name, got, err, want)
		}
	}
}

func stdioChild() {
	noisy := mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
		fmt.Println("a stray print")
		return refuseAll(ctx, req)
	})
	err := mcp.Serve(context.Background(), noisy, mcp.Stdio(), nil)
	fmt.Fprintln(os.Stderr, "ended:", err)
	os.Exit(0) // before the test framework prints
}

// refuseAll is a handler without methods.
var refuseAll = mcp.HandlerFunc(func(_ context.Context, req *mcp.Request) (mcp.Result, error) {
	return nil, mcp.Errorf(mcp.CodeMethodNotFound, "no method %s", req.Method)
})

func TestStdioDoesNotReplaceStdoutBeforeServe(t *testing.T) {
	stdout := os.Stdout
	mcp.Stdio()
	mcp.Stdio()
	if os.Stdout != stdout {
		t.Error("Stdio replaced os.Stdout")
	}
}

// Pipes replace the standard streams of this process.
func TestServeRestoresStdout(t *testing.T) {
	stdin, stdout := os.Stdin, os.Stdout
	defer func() { os.Stdin, os.Stdout = stdin, stdout }()
	in, client, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	answers, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer answers.Close()
	defer out.Close()
	os.Stdin, os.Stdout = in, out
	first, second := mcp.Stdio(), mcp.Stdio()
	served := make(chan error, 1)
	go func() { served <- mcp.Serve(t.Context(), refuseAll, first, nil) }()
	conn := mcp.NewStreamConn(answers, client, nil)
	for range 2 {
		if err := conn.Write(t.Context(), &jsonrpc.Message{ID: jsonrpc.IntID(1), Method: "ping"}); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := mcp.Serve(t.Context(), refuseAll, second, nil); err == nil || !strings.Contains(err.Error(), "served already") {
			t.Errorf("second Serve: got %v, want \"served already\"", err)
		}
	}
	client.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if os.Stdout != out {
		t.Error("os.Stdout was not restored")
	}
}

func FuzzLines(f *testing.F) {
	for _, s := range []string{
		numbered(1), numbered(1) + "\n" + numbered(2) + "\n", "\n\n\r\n", "x\n" + numbered(1), strings.Repeat("y", 300) + "\n" + numbered(1) + "\n",
		"\xff\n" + numbered(1), "\ufeff" + numbered(1) + "\n", `[` + numbered(1) + `]` + "\n", `{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}` + "\n",
		numbered(1) + numbered(2) + "\n", "{\"jsonrpc\":\"2.0\",\"method\":\"m\n\"}\n", paddedMessage(200) + "\n" + paddedMessage(201) + "\n",
	} {
		f.Add([]byte(s), byte(7))
	}
	const limit = 200
	f.Fuzz(func(t *testing.T, input []byte, step byte) {
		var want []string
		begun := false
		for line := range bytes.SplitSeq(input, []byte{'\n'}) {
			tooLong := len(line) > limit
			if !begun && !tooLong { // the stream may begin with a byte order mark
				begun, line = true, bytes.TrimPrefix(line, []byte("\ufeff"))
			}
			switch m, err := jsonrpc.Decode(line); {
			case tooLong:
				want = append(want, "refused -32600")
			case len(bytes.Trim(line, " \t\r")) == 0:
			case err != nil:
				want = append(want, fmt.Sprintf("refused %d", err.(*jsonrpc.DecodeError).Err.Code))
			default:
				want = append(want, string(jsonrpc.Append(nil, m)))
			}
		}
		size := int(step)%17 + 1
		for name, r := range map[string]io.Reader{
			"by a goroutine": &chunkReader{data: bytes.Clone(input), size: size},
			"direct":         directReader{&chunkReader{data: bytes.Clone(input), size: size}},
		} {
			conn := mcp.NewStreamConn(r, io.Discard, &mcp.StreamConnOptions{MaxMessage: limit})
			if got := readAll(t, conn); !slices.Equal(got, want) {
				t.Errorf("%s: read %q, want %q", name, got, want)
			}
		}
	})
}

// A chunkReader returns size bytes at a time and overwrites the rest of the buffer, as an io.Reader may.
type chunkReader struct {
	data []byte
	size int
}

func (r *chunkReader) Read(p []byte) (int, error) {
	if len(r.data) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.data[:min(r.size, len(r.data))])
	r.data = r.data[n:]
	for i := n; i < len(p) && i < 2*n; i++ {
		p[i] = '\n'
	}
	return n, nil
}
