package cli

import (
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func freshState(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "state")
	t.Setenv(envStateDir, dir)
	return dir
}

func noted(t *testing.T, at *target) (ids []string) {
	t.Helper()
	all, err := notesOf(at)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range all {
		ids = append(ids, n.ID)
	}
	return ids
}

func TestNotesOfATarget(t *testing.T) {
	dir := freshState(t)
	web := &target{url: "https://Example.com/mcp?team=1"}
	same := &target{url: "HTTPS://ann:pw@example.com/mcp?team=1#x"}
	other := &target{url: "https://example.com/mcp?team=2"}
	command := &target{command: []string{"/usr/bin/server", "--key", "s3cret"}}
	elsewhere := &target{command: command.command, directory: os.TempDir()}
	for i, at := range []*target{web, same, other, command, elsewhere} {
		n := &note{Key: at.key(), Target: at.public(), ID: fmt.Sprint("id", i), Tool: "t",
			Started: time.Now().Add(time.Duration(i) * time.Millisecond)}
		if err := n.save(); err != nil {
			t.Fatal(err)
		}
	}
	for i, at := range []*target{web, same, other, command, elsewhere} {
		want := []string{fmt.Sprint("id", i)}
		if i < 2 {
			want = []string{"id1", "id0"}
		}
		if got := noted(t, at); !slices.Equal(got, want) {
			t.Errorf("%s has %q, want %q", at, got, want)
		}
	}
	all, err := notes()
	if err != nil || len(all) != 5 {
		t.Fatalf("%d notes, %v", len(all), err)
	}
	all[4].remove()
	if got := noted(t, web); !slices.Equal(got, []string{"id1"}) {
		t.Errorf("after one is forgotten there are %q", got)
	}
	err = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if info, err := d.Info(); runtime.GOOS != "windows" && (err != nil || info.Mode().Perm()&0o077 != 0) {
			t.Errorf("%s has the mode %v, %v", name, info.Mode(), err)
		}
		if text, err := os.ReadFile(name); !d.IsDir() &&
			(err != nil || strings.Contains(string(text), "s3cret") || strings.Contains(string(text), "pw@") ||
				strings.Contains(string(text), "team=")) {
			t.Errorf("the note has secrets: %s, %v", text, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestPublicTargetHasNoSecrets(t *testing.T) {
	for want, at := range map[string]*target{
		"https://h:1/a b": {url: "https://u:p@h:1/a%20b?key=k#f"},
		"server …":        {command: []string{"/x/server", "--key=k"}},
		"server":          {command: []string{"server"}},
		"web":             {url: "https://h/", name: "web", from: "mcp.json"},
	} {
		if got := at.public(); strings.ReplaceAll(got, "%20", " ") != want {
			t.Errorf("%+v is %q, want %q", at, got, want)
		}
	}
}

func TestNotesAreBounded(t *testing.T) {
	dir := freshState(t)
	at := &target{url: "https://h/", header: http.Header{}}
	began := time.Now().Add(-time.Hour)
	var writing sync.WaitGroup // like concurrent programs
	for i := range maxNotes + 20 {
		writing.Go(func() {
			n := &note{Key: at.key(), ID: fmt.Sprint(i), Started: began.Add(time.Duration(i) * time.Second)}
			if err := n.save(); err != nil {
				t.Error(err)
			}
		})
	}
	writing.Wait()
	if got := noted(t, at); len(got) != maxNotes || got[0] != fmt.Sprint(maxNotes+19) {
		t.Errorf("%d notes are kept, the newest is %s", len(got), got[0])
	}
	files, err := os.ReadDir(filepath.Join(dir, "tasks"))
	if err != nil || len(files) != maxNotes {
		t.Errorf("there are %d files, %v", len(files), err)
	}
	huge := &note{Key: at.key(), ID: strings.Repeat("x", maxNote), Started: time.Now()}
	if err := huge.save(); err == nil {
		t.Error("a note that is too large was saved")
	}
}

func TestOldAndInvalidNotesAreIgnored(t *testing.T) {
	dir := freshState(t)
	at := &target{url: "https://h/"}
	now := time.Now()
	for id, n := range map[string]*note{
		"fresh":    {Started: now},
		"kept":     {Started: now.Add(-2 * noteTTL), Expires: now.Add(time.Hour)},
		"old":      {Started: now.Add(-2 * noteTTL)},
		"expired":  {Started: now.Add(-3 * noteGrace), Expires: now.Add(-2 * noteGrace)},
		"just now": {Started: now.Add(-time.Hour), Expires: now.Add(-time.Minute)},
	} {
		n.Key, n.ID = at.key(), id
		if err := n.save(); err != nil {
			t.Fatal(err)
		}
	}
	folder := filepath.Join(dir, "tasks")
	for name, text := range map[string]string{"z.json": "{", "y.json": "null",
		"x.json": strings.Repeat(" ", maxNote) + "{}", "w.txt": "mine", "v.new": "{"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got := noted(t, at)
	slices.Sort(got)
	if want := []string{"fresh", "just now", "kept"}; !slices.Equal(got, want) {
		t.Errorf("there are %q, want %q", got, want)
	}
	left, err := os.ReadDir(folder)
	if err != nil || len(left) != 3+5 {
		t.Errorf("there are %d files, %v: those that are over should be gone, and nothing else", len(left), err)
	}
	if err := (&note{Key: at.key(), ID: "next", Started: now}).save(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(folder, "w.txt")); err != nil {
		t.Error("another file was removed")
	}
}
