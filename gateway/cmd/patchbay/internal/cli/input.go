package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

const (
	// maxLine bounds one line of standard input, in bytes.
	maxLine = 64 << 10
	// maxInput bounds what is read from standard input or a file, in bytes. Messages are no larger.
	maxInput = 16 << 20
	// chunkSize is the size of one read, in bytes. A terminal sends at most one line.
	chunkSize = 4 << 10
)

// An input is standard input. A read cannot be cancelled: one whose caller has given up goes on,
// and the next caller gets its bytes.
type input struct {
	r      io.Reader
	next   chan typedChunk // of a pending read; nil without one
	buffer []byte          // read and not used yet
	err    error           // that ended the input
}

type typedChunk struct {
	data []byte
	err  error
}

func newInput(r io.Reader) *input { return &input{r: r} }

// fill adds to the buffer. It must not be called concurrently.
func (in *input) fill(ctx context.Context) error {
	if in.err != nil {
		return in.err
	}
	if in.next == nil {
		in.next = make(chan typedChunk, 1)
		go func(next chan<- typedChunk) { // ends with a chunk, the input or the program
			data := make([]byte, chunkSize)
			n, err := in.r.Read(data)
			next <- typedChunk{data[:n], err}
		}(in.next)
	}
	select {
	case c := <-in.next:
		in.receive(c)
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// receive adds what the pending read has returned to the buffer.
func (in *input) receive(c typedChunk) {
	in.next = nil
	in.buffer = append(in.buffer, c.data...)
	if in.err = c.err; c.err != nil && !errors.Is(c.err, io.EOF) {
		in.err = fmt.Errorf("standard input: %w", c.err)
	}
}

// readLine returns the next line without its line break, and io.EOF after the last. It must not be
// called concurrently.
func (in *input) readLine(ctx context.Context) (string, error) {
	for {
		line, rest, found := bytes.Cut(in.buffer, []byte("\n"))
		switch {
		case found || in.err != nil && len(line) > 0:
			in.buffer = rest
			return strings.TrimSuffix(string(line), "\r"), nil
		case len(line) >= maxLine:
			in.err = fmt.Errorf("standard input: a line of more than %s", formatBytes(maxLine))
			in.buffer = nil
		}
		if err := in.fill(ctx); err != nil {
			return "", err
		}
	}
}

// readSource reads a file, or standard input if the name is "-".
func (in *input) readSource(ctx context.Context, name string) ([]byte, error) {
	if name != "-" {
		return readFile(ctx, name)
	}
	return await(ctx, func() ([]byte, error) {
		data, err := readAll(in.r)
		if err != nil {
			return nil, fmt.Errorf("standard input: %w", err)
		}
		return data, nil
	})
}

// readFile reads a file that the user has named. It may be a pipe, such as that of <(command): opening
// and reading one wait for the program that writes, and end with ctx.
func readFile(ctx context.Context, name string) ([]byte, error) {
	return await(ctx, func() ([]byte, error) { return readRegular(name) })
}

// await returns what read returns, or the cause of ctx if it ends before.
func await(ctx context.Context, read func() ([]byte, error)) ([]byte, error) {
	type result struct {
		data []byte
		err  error
	}
	done := make(chan result, 1)
	go func() { // ends with the input or the program
		data, err := read()
		done <- result{data, err}
	}()
	select {
	case r := <-done:
		return r.data, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// readRegular reads a file that is not a pipe.
func readRegular(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := readAll(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return data, nil
}

func readAll(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxInput+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxInput {
		return nil, fmt.Errorf("more than %s", formatBytes(maxInput))
	}
	return data, nil
}
