package shell

import (
	"bufio"
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/userdir"
	"github.com/patchbay-mcp/patchbay/visible"
)

const (
	// maxHistory is the number of lines of the history that are kept.
	maxHistory = 1000
	// maxHistoryLine limits a line, in bytes: a longer line is probably pasted data.
	maxHistoryLine = 4 << 10
	// historySlack is the number of lines above maxHistory after which the file is rewritten.
	historySlack = 200
)

// A history holds the lines that the user typed. All shells share its file, and a shell sees the
// lines of other shells when it starts. A history without a file is in memory only.
type history struct {
	lines []string // the oldest first
	file  string
}

// loadHistory reads the history of the user. It is empty after an error.
func loadHistory() (*history, error) {
	dir, err := userdir.Dir("shell")
	if err != nil {
		return &history{}, err
	}
	h := &history{file: filepath.Join(dir, "history")}
	info, err := os.Lstat(h.file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return h, nil
	case err != nil:
		return &history{}, err
	case !info.Mode().IsRegular():
		return &history{}, errors.New(h.file + " is not a regular file")
	}
	data, err := term.ReadRegular(h.file)
	if err != nil {
		return &history{}, err
	}
	scanner := bufio.NewScanner(bytes.NewReader(data))
	for scanner.Scan() {
		if line := scanner.Text(); h.wants(line) {
			h.lines = append(h.lines, line)
		}
	}
	read := len(h.lines)
	h.lines = h.lines[max(read-maxHistory, 0):]
	if read > maxHistory+historySlack {
		err = h.rewrite()
	}
	return h, err
}

// wants reports whether a line is kept. As in other shells, a space at the beginning keeps it out.
func (h *history) wants(line string) bool {
	return line != "" && line[0] != ' ' && len(line) <= maxHistoryLine && !strings.ContainsFunc(line, visible.Hidden) &&
		(len(h.lines) == 0 || h.lines[len(h.lines)-1] != line)
}

// add appends a line to the history and its file.
func (h *history) add(line string) error {
	h.lines = append(h.lines, line)
	if h.file == "" {
		return nil
	}
	f, err := os.OpenFile(h.file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line + "\n")
	return errors.Join(err, f.Chmod(0o600), f.Close())
}

// rewrite replaces the file by the lines that are kept.
func (h *history) rewrite() error {
	f, err := os.CreateTemp(filepath.Dir(h.file), "history-*")
	if err != nil {
		return err
	}
	_, err = f.WriteString(strings.Join(h.lines, "\n") + "\n")
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), h.file)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
