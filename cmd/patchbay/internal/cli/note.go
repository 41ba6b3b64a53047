package cli

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
)

const (
	// maxNotes is how many tasks are remembered; the oldest are forgotten. Nobody looks through more.
	maxNotes = 200
	// maxNote bounds the file of a note, in bytes: ids and names of servers can be long.
	maxNote = 8 << 10
	// noteTTL is for how long a task is remembered whose server does not say how long it keeps it.
	noteTTL = 30 * 24 * time.Hour
	// noteGrace is for how long one is remembered that its server need not keep any more: servers may keep it all the same.
	noteGrace = 24 * time.Hour
	// noteStamp begins the name of a note's file, so that names sort by time.
	noteStamp = "20060102T150405.000"
	noteEnd   = ".json"
)

// A note is what is remembered of a task that was started here: enough to find it again. There are no secrets in it: a
// command line or the query of a URL may have some, so that only a hash tells these apart.
type note struct {
	Key     string    `json:"key"`    // of the target
	Target  string    `json:"target"` // for people
	ID      string    `json:"id"`
	Tool    string    `json:"tool"`
	Started time.Time `json:"started"`
	Expires time.Time `json:"expires,omitzero"` // when the server need not keep it any more, if it says so

	file string
}

// isOver reports whether a note is good for nothing any more.
func (n *note) isOver(now time.Time) bool {
	if n.Expires.IsZero() {
		return now.After(n.Started.Add(noteTTL))
	}
	return now.After(n.Expires.Add(noteGrace))
}

// key is the same for all ways to write one target.
func (t *target) key() string {
	parts := []string{"url"}
	if u, err := url.Parse(t.url); t.url != "" && err == nil {
		parts = append(parts, strings.ToLower(u.Scheme), strings.ToLower(u.Host), u.EscapedPath(), u.RawQuery)
	} else {
		dir, err := filepath.Abs(t.directory)
		if err != nil {
			dir = t.directory
		}
		parts = append([]string{"command", dir}, t.command...)
	}
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	const enough = 16 // bytes, so that no two targets meet
	return hex.EncodeToString(sum[:enough])
}

// public names a target without what may be secret in it.
func (t *target) public() string {
	if t.from != "" {
		return t.name
	}
	if u, err := url.Parse(t.url); t.url != "" && err == nil {
		return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
	}
	words := filepath.Base(t.command[0])
	if len(t.command) > 1 {
		words += " …"
	}
	return words
}

// noteDir is where notes are, each in a file of its own: programs that run at once need not wait for each other.
func noteDir() (string, error) { return stateDir("tasks") }

// remember writes a note, and drops those that are too many.
func (n *note) remember() error {
	dir, err := noteDir()
	if err != nil {
		return err
	}
	text, err := json.Marshal(n)
	if err == nil && len(text) > maxNote {
		err = errors.New("its id and its server have names that are too long")
	}
	if err != nil {
		return err
	}
	name := n.Started.UTC().Format(noteStamp) + "-" + rand.Text()
	fresh := filepath.Join(dir, name+".new")
	if err := os.WriteFile(fresh, text, 0o600); err != nil {
		return err
	}
	n.file = filepath.Join(dir, name+noteEnd)
	if err := os.Rename(fresh, n.file); err != nil {
		return errors.Join(err, os.Remove(fresh))
	}
	return dropNotes(dir)
}

// dropNotes removes the oldest notes, and what a process left that was killed.
func dropNotes(dir string) error {
	files, err := os.ReadDir(dir) // sorted by name, so by time
	if err != nil {
		return err
	}
	kept := 0
	for _, f := range slices.Backward(files) {
		switch ours := strings.HasSuffix(f.Name(), noteEnd); {
		case ours && kept < maxNotes:
			kept++
			continue
		case !ours && !isAbandoned(f):
			continue
		}
		if err := os.Remove(filepath.Join(dir, f.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// isLeft reports whether a file is a note that was never finished.
func isAbandoned(f fs.DirEntry) bool {
	info, err := f.Info()
	return strings.HasSuffix(f.Name(), ".new") && err == nil && time.Since(info.ModTime()) > time.Minute
}

// notes returns what is remembered, the newest first. A file that is no note is passed over.
func notes() ([]*note, error) {
	dir, err := noteDir()
	if err != nil {
		return nil, err
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var all []*note
	for _, f := range slices.Backward(files) {
		if !strings.HasSuffix(f.Name(), noteEnd) || len(all) == maxNotes {
			continue
		}
		n, err := readNote(filepath.Join(dir, f.Name()))
		switch {
		case errors.Is(err, errNotNote), errors.Is(err, fs.ErrNotExist): // another process has dropped it
		case err != nil:
			return nil, err
		case n.isOver(time.Now()):
			n.forget()
		default:
			all = append(all, n)
		}
	}
	return all, nil
}

// notesOf returns the notes of one target.
func notesOf(t *target) ([]*note, error) {
	all, err := notes()
	key := t.key()
	return slices.DeleteFunc(all, func(n *note) bool { return n.Key != key }), err
}

// errNotNote says that a file is no note.
var errNotNote = errors.New("no note of a task")

func readNote(file string) (*note, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxNote+1))
	if err != nil {
		return nil, err
	}
	n := &note{}
	if err := json.Unmarshal(text, n); err != nil || n.ID == "" || n.Key == "" {
		return nil, fmt.Errorf("%s: %w", file, errNotNote)
	}
	n.file = file
	return n, nil
}

// forget removes a note. One that stays does no harm: it is found to be over again.
func (n *note) forget() { _ = os.Remove(n.file) }
