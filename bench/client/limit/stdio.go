package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"sync"

	"github.com/patchbay-mcp/patchbay/bench/internal/rig"
)

// pipes are those of a server on stdio, with a slot for each call in flight.
// The id of a call leads to its slot, so nothing has to be looked up.
type pipes struct {
	codec
	writing sync.Mutex
	to      io.Writer
	slots   []*slot
	free    chan *slot
}

// A slot is one call in flight, and then the next.
type slot struct {
	id     int64
	answer []byte
	ready  chan struct{}
}

func newPipes(t rig.Target, c codec) (*pipes, error) {
	cmd := exec.Command(t.Command[0], t.Command[1:]...)
	to, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	from, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &pipes{codec: c, to: to, free: make(chan *slot, t.Width)}
	first := int64(firstID - firstID%t.Width)
	for i := range t.Width {
		s := &slot{id: first + int64(i), answer: make([]byte, 0, room), ready: make(chan struct{}, 1)}
		p.slots = append(p.slots, s)
		p.free <- s
	}
	go p.read(bufio.NewReaderSize(from, 1<<16))
	return p, nil
}

func (p *pipes) echo(ctx context.Context, message string) (string, error) {
	s := <-p.free
	defer func() { p.free <- s }()
	s.id += int64(len(p.slots))
	line, err := p.request(s.id, message)
	if err != nil {
		return "", err
	}
	p.writing.Lock()
	_, err = p.to.Write(append(line, '\n'))
	p.writing.Unlock()
	if err != nil {
		return "", err
	}
	select {
	case _, ok := <-s.ready:
		if !ok {
			return "", errors.New("server ended")
		}
		return p.text(s.answer)
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// read hands every line to its slot. When there are no more, no call will be
// answered.
func (p *pipes) read(r *bufio.Reader) {
	defer func() {
		for _, s := range p.slots {
			close(s.ready)
		}
	}()
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return
		}
		id, err := answerID(line)
		if err != nil {
			return
		}
		s := p.slots[id%int64(len(p.slots))]
		s.answer = append(s.answer[:0], line...)
		s.ready <- struct{}{}
	}
}

func answerID(answer []byte) (int64, error) {
	_, after, _ := bytes.Cut(answer, []byte(`"id":`))
	digits, _, found := bytes.Cut(after, []byte{','})
	if !found {
		return 0, fmt.Errorf("answer without id: %.300q", answer)
	}
	return strconv.ParseInt(string(digits), 10, 64)
}
