package cli

import (
	"bufio"
	"context"
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
)

// An input is standard input. A read cannot be cancelled: one whose caller has given up goes on,
// and the next caller gets its line.
type input struct {
	r     io.Reader
	lines *bufio.Scanner
	next  chan inputLine // of a pending read; nil without one
}

type inputLine struct {
	text string
	err  error
}

func newInput(r io.Reader) *input {
	in := &input{r: r, lines: bufio.NewScanner(r)}
	in.lines.Buffer(nil, maxLine)
	return in
}

// readLine returns the next line without its line break, and io.EOF after the last. It must not be
// called concurrently.
func (in *input) readLine(ctx context.Context) (string, error) {
	if in.next == nil {
		in.next = make(chan inputLine, 1)
		go func(next chan<- inputLine) { next <- in.scan() }(in.next) // ends with the line, the input or the program
	}
	select {
	case line := <-in.next:
		in.next = nil
		return line.text, line.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

func (in *input) scan() inputLine {
	if in.lines.Scan() {
		return inputLine{text: strings.TrimSuffix(in.lines.Text(), "\r")}
	}
	if err := in.lines.Err(); err != nil {
		return inputLine{err: fmt.Errorf("standard input: %w", err)}
	}
	return inputLine{err: io.EOF}
}

// readSource reads a file, or standard input if the name is "-".
func (in *input) readSource(ctx context.Context, name string) ([]byte, error) {
	if name != "-" {
		return readFile(name)
	}
	var data []byte
	done := make(chan error, 1)
	go func() { // ends with the input or the program
		var err error
		data, err = readAll(in.r)
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			return nil, fmt.Errorf("standard input: %w", err)
		}
		return data, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func readFile(name string) ([]byte, error) {
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
