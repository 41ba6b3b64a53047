package term

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
	// MaxLine limits a line of standard input, in bytes.
	MaxLine = 64 << 10
	// MaxInput limits standard input and files, in bytes: no message may be larger.
	MaxInput = 16 << 20
	// ChunkSize limits a single read, in bytes. A terminal sends at most a line.
	ChunkSize = 4 << 10
)

// An Input is standard input. A read cannot be cancelled: it continues after its caller has given
// up, and the next caller receives its bytes.
type Input struct {
	R      io.Reader
	next   chan typedChunk // receives the pending read; nil if no read is pending
	buffer []byte          // read and not used yet
	err    error           // that ended the input
}

type typedChunk struct {
	data []byte
	err  error
}

// NewInput returns an input that reads from r.
func NewInput(r io.Reader) *Input { return &Input{R: r} }

// fill adds to the buffer. It must not be called concurrently.
func (in *Input) fill(ctx context.Context) error {
	if in.err != nil {
		return in.err
	}
	if in.next == nil {
		in.next = make(chan typedChunk, 1)
		go func(next chan<- typedChunk) { // ends with a chunk, the input or the program
			data := make([]byte, ChunkSize)
			n, err := in.R.Read(data)
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

// receive appends the bytes of the pending read to the buffer.
func (in *Input) receive(c typedChunk) {
	in.next = nil
	in.buffer = append(in.buffer, c.data...)
	if in.err = c.err; c.err != nil && !errors.Is(c.err, io.EOF) {
		in.err = fmt.Errorf("standard input: %w", c.err)
	}
}

// ReadLine returns the next line, or io.EOF after the last. It must not be called concurrently.
func (in *Input) ReadLine(ctx context.Context) (string, error) {
	for {
		line, rest, found := bytes.Cut(in.buffer, []byte("\n"))
		switch {
		case found || in.err != nil && len(line) > 0:
			in.buffer = rest
			return strings.TrimSuffix(string(line), "\r"), nil
		case len(line) >= MaxLine:
			in.err = fmt.Errorf("standard input: a line of more than %s", FormatBytes(MaxLine))
			in.buffer = nil
		}
		if err := in.fill(ctx); err != nil {
			return "", err
		}
	}
}

// ReadSource reads a file, or standard input if the name is "-".
func (in *Input) ReadSource(ctx context.Context, name string) ([]byte, error) {
	if name != "-" {
		return ReadFile(ctx, name)
	}
	return await(ctx, func() ([]byte, error) {
		data, err := readAll(in.R)
		if err != nil {
			return nil, fmt.Errorf("standard input: %w", err)
		}
		return data, nil
	})
}

// ReadFile reads a file that the user named. The file may be a pipe, such as <(command): opening
// and reading it wait for the program that writes, and end with ctx.
func ReadFile(ctx context.Context, name string) ([]byte, error) {
	return await(ctx, func() ([]byte, error) { return ReadRegular(name) })
}

// await returns the result of read, or the cause of ctx if ctx ends first.
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

// ReadRegular reads a file that is not a pipe.
func ReadRegular(name string) ([]byte, error) {
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
	data, err := io.ReadAll(io.LimitReader(r, MaxInput+1))
	if err != nil {
		return nil, err
	}
	if len(data) > MaxInput {
		return nil, fmt.Errorf("more than %s", FormatBytes(MaxInput))
	}
	return data, nil
}
