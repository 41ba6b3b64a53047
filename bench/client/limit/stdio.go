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

// A stdioCaller connects to a server on stdio, with a slot for each call in flight. The
// id of a call determines its slot, so no lookup is needed.
type stdioCaller struct {
	codec
	writing sync.Mutex
	to      io.Writer
	slots   []*slot
	free    chan *slot
}

// A slot is reused for one call in flight at a time.
type slot struct {
	id     int64
	answer []byte
	ready  chan struct{}
}

func newStdioCaller(t rig.Target, c codec) (*stdioCaller, error) {
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
	p := &stdioCaller{codec: c, to: to, free: make(chan *slot, t.Width)}
	first := int64(firstID - firstID%t.Width)
	for i := range t.Width {
		s := &slot{id: first + int64(i), answer: make([]byte, 0, responseSize), ready: make(chan struct{}, 1)}
		p.slots = append(p.slots, s)
		p.free <- s
	}
	go p.read(bufio.NewReaderSize(from, 1<<16))
	return p, nil
}

func (p *stdioCaller) echo(ctx context.Context, message string) (string, error) {
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

// read passes each line to its slot. At the end of input it fails all waiting
// calls.
func (p *stdioCaller) read(r *bufio.Reader) {
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
		return 0, fmt.Errorf("response without id: %.300q", answer)
	}
	return strconv.ParseInt(string(digits), 10, 64)
}
