package target

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/userdir"
)

const (
	// maxNotes bounds the notes. The oldest are removed.
	maxNotes = 200
	// maxNote bounds the file of a note, in bytes. Task ids and server names can be long.
	maxNote = 8 << 10
	// noteTTL is the lifetime of a note of a task without a TTL.
	noteTTL = 30 * 24 * time.Hour
	// noteGrace is added to the TTL of a task: servers may keep tasks for longer.
	noteGrace = 24 * time.Hour
	// noteStamp is the time format that begins a note's file name, so that names sort by time.
	noteStamp = "20060102T150405.000"
	noteEnd   = ".json"
)

// A Note is the record of a task that was started on this machine. It must not contain secrets: a
// hash represents the target, because a command line or the query of a URL may contain some.
type Note struct {
	Key     string    `json:"key"`    // hash of the target
	Target  string    `json:"target"` // to show
	ID      string    `json:"id"`
	Tool    string    `json:"tool"`
	Started time.Time `json:"started"`
	Expires time.Time `json:"expires,omitzero"` // end of the TTL; zero if the task lives forever

	file string
}

// isOver reports whether the server has probably deleted the task.
func (n *Note) isOver(now time.Time) bool {
	if n.Expires.IsZero() {
		return now.After(n.Started.Add(noteTTL))
	}
	return now.After(n.Expires.Add(noteGrace))
}

// Key returns a hash of the target. It is the same for all spellings of a URL.
func (t *Target) Key() string {
	parts := []string{"url"}
	if u, err := url.Parse(t.URL); t.URL != "" && err == nil {
		parts = append(parts, strings.ToLower(u.Scheme), strings.ToLower(u.Host), u.EscapedPath(), u.RawQuery)
	} else {
		dir, err := filepath.Abs(t.Directory)
		if err != nil {
			dir = t.Directory
		}
		parts = append([]string{"command", dir}, t.Command...)
	}
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	const size = 16 // bytes, enough against collisions
	return hex.EncodeToString(sum[:size])
}

// Public returns the name of a target without the parts that may be secret.
func (t *Target) Public() string {
	if t.From != "" {
		return t.Name
	}
	if u, err := url.Parse(t.URL); t.URL != "" && err == nil {
		return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
	}
	name := filepath.Base(t.Command[0])
	if len(t.Command) > 1 {
		name += " …"
	}
	return name
}

// Save writes a note to a file of its own, so that no lock is needed, and removes the oldest notes.
func (n *Note) Save() error {
	dir, err := userdir.Dir("tasks")
	if err != nil {
		return err
	}
	text, err := json.Marshal(n)
	if err == nil && len(text) > maxNote {
		err = fmt.Errorf("the task id and the server name are too long: want at most %d bytes", maxNote)
	}
	if err != nil {
		return err
	}
	n.file = filepath.Join(dir, n.Started.UTC().Format(noteStamp)+"-"+rand.Text()+noteEnd)
	if err := os.WriteFile(n.file, text, 0o600); err != nil {
		return err
	}
	return pruneNotes(dir)
}

func pruneNotes(dir string) error {
	files, err := os.ReadDir(dir) // sorted by name, so by time
	if err != nil {
		return err
	}
	files = slices.DeleteFunc(files, func(f fs.DirEntry) bool { return !strings.HasSuffix(f.Name(), noteEnd) })
	for _, f := range files[:max(len(files)-maxNotes, 0)] {
		if err := os.Remove(filepath.Join(dir, f.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Notes returns all notes, the newest first. It ignores other files.
func Notes() ([]*Note, error) {
	dir, err := userdir.Dir("tasks")
	if err != nil {
		return nil, err
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var all []*Note
	for _, f := range slices.Backward(files) {
		if !strings.HasSuffix(f.Name(), noteEnd) || len(all) == maxNotes {
			continue
		}
		n, err := readNote(filepath.Join(dir, f.Name()))
		switch {
		case errors.Is(err, errNotNote), errors.Is(err, fs.ErrNotExist): // removed by another process
		case err != nil:
			return nil, err
		case n.isOver(time.Now()):
			n.Remove()
		default:
			all = append(all, n)
		}
	}
	return all, nil
}

// NotesOf returns the notes of the tasks of a target.
func NotesOf(t *Target) ([]*Note, error) {
	all, err := Notes()
	key := t.Key()
	return slices.DeleteFunc(all, func(n *Note) bool { return n.Key != key }), err
}

// errNotNote is returned for a file that is not a note.
var errNotNote = errors.New("not a note of a task")

func readNote(file string) (*Note, error) {
	text, err := term.ReadRegular(file)
	if err != nil {
		return nil, err
	}
	n := &Note{}
	if err := json.Unmarshal(text, n); err != nil || len(text) > maxNote || n.ID == "" || n.Key == "" {
		return nil, fmt.Errorf("%s: %w", file, errNotNote)
	}
	n.file = file
	return n, nil
}

// Remove removes a note. It ignores errors: a note that stays expires.
func (n *Note) Remove() { _ = os.Remove(n.file) }
