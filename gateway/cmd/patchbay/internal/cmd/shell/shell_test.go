package shell

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestShellHistoryIsPrivateAndBounded(t *testing.T) {
	dir := freshState(t)
	h, err := loadHistory()
	if err != nil || len(h.lines) != 0 {
		t.Fatalf("got %q, %v, want an empty history", h.lines, err)
	}
	file := filepath.Join(dir, "shell", "history")
	for i := range maxHistory + historySlack + 1 {
		if line := fmt.Sprintf("ping %d", i); !h.wants(line) || h.add(line) != nil {
			t.Fatalf("line %d was not added", i)
		}
	}
	for _, line := range []string{"", " secret", "ping 1200", "a\x1b[2Jb", strings.Repeat("x", maxHistoryLine+1)} {
		if h.wants(line) {
			t.Errorf("line %.20q is kept, want it left out", line)
		}
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("history file: %v, %v, want mode 0600", info.Mode(), err)
	}
	writeFile(t, file, readText(t, file)+"evil \x1b[2J\n")
	for range 2 { // the first one rewrites the file
		h, err = loadHistory()
		if err != nil || len(h.lines) != maxHistory || h.lines[maxHistory-1] != "ping 1200" ||
			h.lines[0] != "ping 201" {
			t.Errorf("got %d lines, %v, want the last %d", len(h.lines), err, maxHistory)
		}
	}
	if n := strings.Count(readText(t, file), "\n"); n != maxHistory {
		t.Errorf("the file has %d lines, want %d", n, maxHistory)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("rewritten history file: %v, %v, want mode 0600", info.Mode(), err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/zero", file); err != nil {
		t.Fatal(err)
	}
	if h, err := loadHistory(); err == nil || h.add("x") != nil {
		t.Errorf("a symbolic link: no error, want one, and a history in memory")
	}
}

func TestSharedInputGivesBytesToOneReader(t *testing.T) {
	r, w := io.Pipe()
	keys := newSharedInput(r)
	first := &lease{shared: keys, stop: make(chan struct{})}
	read := make(chan string, 1)
	go func() {
		b := make([]byte, 10)
		n, err := first.Read(b)
		read <- fmt.Sprint(string(b[:n]), err)
	}()
	first.end()
	if got := <-read; got != "EOF" {
		t.Errorf("a read of a lease that has ended: got %q, want EOF", got)
	}
	go func() { _, _ = io.WriteString(w, "abc") }()
	second := &lease{shared: keys, stop: make(chan struct{})}
	keys.inject("_")
	var got []byte
	for len(got) < 4 {
		b := make([]byte, 1)
		if _, err := second.Read(b); err != nil {
			t.Fatal(err)
		}
		got = append(got, b...)
	}
	second.end()
	if n, err := second.Read(make([]byte, 1)); string(got) != "_abc" || n != 0 || err != io.EOF {
		t.Errorf("got %q, then %d, %v, want _abc and then EOF", got, n, err)
	}
}
