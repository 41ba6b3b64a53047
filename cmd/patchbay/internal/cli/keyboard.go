package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

const (
	// maxLine bounds a line that is typed or piped in, in bytes.
	maxLine = 64 << 10
	// maxInput bounds what is read from standard input or a file: no larger message is sent.
	maxInput = 16 << 20
)

// errInputEnds says that there is nobody to answer any more.
var errInputEnds = errors.New("the input has ended")

// A keyboard is standard input. A read cannot be called off, so it goes on apart from who waits for it, and whoever comes
// next gets what it read.
type keyboard struct {
	r     io.Reader
	lines *bufio.Scanner
	next  chan typed // of a read that goes on; nil without one
}

// typed is what was read.
type typed struct {
	text string
	err  error
}

func newKeyboard(r io.Reader) *keyboard {
	k := &keyboard{r: r, lines: bufio.NewScanner(r)}
	k.lines.Buffer(nil, maxLine)
	return k
}

// line returns the next line without its end. It is for one caller at a time.
func (k *keyboard) line(ctx context.Context) (string, error) {
	if k.next == nil {
		next := make(chan typed, 1)
		go func() { next <- k.read() }() // ends with the line, the input or the program
		k.next = next
	}
	select {
	case line := <-k.next:
		k.next = nil
		return line.text, line.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

func (k *keyboard) read() typed {
	if k.lines.Scan() {
		return typed{text: strings.TrimSuffix(k.lines.Text(), "\r")}
	}
	if err := k.lines.Err(); err != nil {
		return typed{err: fmt.Errorf("standard input: %w", err)}
	}
	return typed{err: errInputEnds}
}

// all reads the whole input.
func (k *keyboard) all(ctx context.Context) ([]byte, error) {
	read := make(chan typed, 1)
	go func() {
		data, err := readAll(k.r)
		read <- typed{string(data), err}
	}()
	select {
	case whole := <-read:
		if whole.err != nil {
			return nil, fmt.Errorf("standard input: %w", whole.err)
		}
		return []byte(whole.text), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func readAll(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxInput+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxInput {
		return nil, fmt.Errorf("more than %s", bytesOf(maxInput))
	}
	return data, nil
}
