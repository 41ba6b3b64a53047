package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

// maxLarge is the largest message, in either direction.
const maxLarge = echo.LargeSize + maxBody

var largeBuffers = sync.Pool{New: func() any { return new([maxLarge]byte) }}

// serveCount serves calls with large arguments. It reads them, validates the
// JSON in one pass, and copies the string for the handler. The validation is
// this project's, a fast strict scanner.
func (h *handler) serveCount(w http.ResponseWriter, r *http.Request) {
	in := largeBuffers.Get().(*[maxLarge]byte)
	defer largeBuffers.Put(in)
	if r.Method != http.MethodPost || r.ContentLength <= 0 || r.ContentLength > maxLarge {
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	body := in[:r.ContentLength]
	if _, err := io.ReadFull(r.Body, body); err != nil {
		http.Error(w, "bad body", http.StatusBadRequest)
		return
	}
	if !handleHandshake(w, body[:min(len(body), maxBody)]) {
		return
	}
	b := buffers.Get().(*buffer)
	defer buffers.Put(b)
	var err error
	if b.out, err = h.appendCount(b.out[:0], body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(b.out)
}

// serveLongLines is serveLines for large arguments.
func serveLongLines(in io.Reader, out io.Writer, a *answers) error {
	r := bufio.NewReaderSize(in, maxLarge)
	var answer []byte
	for {
		line, err := r.ReadSlice('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if string(method(line)) == "notifications/initialized" {
			continue
		}
		if answer, err = a.appendCount(answer[:0], line[:len(line)-1]); err != nil {
			return err
		}
		if _, err := out.Write(append(answer, '\n')); err != nil {
			return err
		}
	}
}

// appendCount appends the response to a request, which may be a call of
// echo.CountTool.
func (a *answers) appendCount(dst, body []byte) ([]byte, error) {
	if string(method(body)) != "tools/call" {
		return a.append(dst, body), nil
	}
	if err := jsonscan.Valid(body, jsonscan.Limits{}); err != nil {
		return nil, err
	}
	_, message, _ := bytes.Cut(body, []byte(`"message":"`))
	message = message[:max(0, bytes.LastIndexByte(message, '"'))]
	dst = append(append(dst, opening...), id(body)...)
	dst = append(append(dst, a.result[0]...), '"')
	dst = strconv.AppendInt(dst, int64(count(string(message))), 10)
	return append(append(dst, '"'), a.result[1]...), nil
}

// count represents the handler. Its argument is a copy.
//
//go:noinline
func count(message string) int { return len(message) }

// serveLarge serves a large result. It validates the text and copies it into
// the response in one pass, and writes the response with its Content-Length.
func (h *handler) serveLarge(w http.ResponseWriter, r *http.Request) {
	b := buffers.Get().(*buffer)
	defer buffers.Put(b)
	body, ok := b.read(w, r)
	if !ok || !handleHandshake(w, body) {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if string(method(body)) != "tools/call" {
		b.out = h.append(b.out[:0], body)
		w.Write(b.out)
		return
	}
	large := largeBuffers.Get().(*[maxLarge]byte)
	defer largeBuffers.Put(large)
	out := append(append(large[:0], opening...), id(body)...)
	out = append(out, h.result[0]...)
	out = jsonscan.AppendQuote(out, echo.Large())
	out = append(out, h.result[1]...)
	w.Header().Set("Content-Length", strconv.Itoa(len(out)))
	w.Write(out)
}
