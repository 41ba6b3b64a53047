package main

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"sync"
)

// A lineRelay sends the body of each request as a line to a server on stdio, and the line with the
// response back. It parses nothing. Because requests of different connections have the same ids, it
// gives each request an id of its own, and restores the id in the response.
type lineRelay struct {
	mu      sync.Mutex // guards the fields below and the writes of whole lines
	to      io.Writer
	next    int
	waiting map[int]chan []byte
}

// firstLineID makes all ids as long as the ids of the load, so that a line keeps its length.
const (
	firstLineID = 100_000_000
	lineIDSize  = 9
	maxLine     = 64 << 10
)

func newLineRelay(command []string) (*lineRelay, error) {
	cmd := exec.Command(command[0], command[1:]...)
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
	l := &lineRelay{to: to, next: firstLineID, waiting: make(map[int]chan []byte)}
	go l.receive(from)
	return l, nil
}

// A lineBuffer contains one request, and receives its response.
type lineBuffer struct {
	line     [maxLine]byte
	response chan []byte
}

var lineBuffers = sync.Pool{New: func() any { return &lineBuffer{response: make(chan []byte, 1)} }}

func (l *lineRelay) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b := lineBuffers.Get().(*lineBuffer)
	defer lineBuffers.Put(b)
	if r.ContentLength <= 0 || r.ContentLength >= maxLine {
		http.Error(w, "bad length", http.StatusBadRequest)
		return
	}
	line := b.line[:r.ContentLength+1]
	if _, err := io.ReadFull(r.Body, line[:r.ContentLength]); err != nil {
		return
	}
	line[r.ContentLength] = '\n'
	at := idOf(line)
	if at < 0 {
		http.Error(w, "no id", http.StatusBadRequest)
		return
	}
	var id [lineIDSize]byte
	copy(id[:], line[at:])
	if err := l.send(line, at, b.response); err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	response := <-b.response
	copy(response[idOf(response):], id[:])
	w.Header()["Content-Type"] = jsonType
	w.Write(response)
}

var jsonType = []string{"application/json"}

// send replaces the id of a request and writes the request.
func (l *lineRelay) send(line []byte, at int, response chan []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting[l.next] = response
	strconv.AppendInt(line[at:at], int64(l.next), 10)
	l.next++
	_, err := l.to.Write(line)
	return err
}

// receive passes responses on until the server ends.
func (l *lineRelay) receive(from io.Reader) {
	in := bufio.NewReaderSize(from, maxLine)
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			os.Exit(1)
		}
		at := idOf(line)
		if at < 0 {
			continue
		}
		id, _ := strconv.Atoi(string(line[at : at+lineIDSize]))
		l.mu.Lock()
		response := l.waiting[id]
		delete(l.waiting, id)
		l.mu.Unlock()
		if response != nil {
			response <- bytes.Clone(line)
		}
	}
}

// idOf returns the offset of the id in a message, or -1.
func idOf(line []byte) int {
	const key = `"id":`
	at := bytes.Index(line, []byte(key))
	if at < 0 || at+len(key)+lineIDSize > len(line) {
		return -1
	}
	return at + len(key)
}
