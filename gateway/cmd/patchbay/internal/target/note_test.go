package target

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

func TestNotesBelongToATarget(t *testing.T) {
	dir := freshState(t)
	web := &Target{URL: "https://Example.com/mcp?team=1"}
	same := &Target{URL: "HTTPS://ann:pw@example.com/mcp?team=1#x"}
	other := &Target{URL: "https://example.com/mcp?team=2"}
	command := &Target{Command: []string{"/usr/bin/server", "--key", "s3cret"}}
	elsewhere := &Target{Command: command.Command, Directory: os.TempDir()}
	for i, at := range []*Target{web, same, other, command, elsewhere} {
		n := &Note{Key: at.Key(), Target: at.Public(), ID: fmt.Sprint("id", i), Tool: "t",
			Started: time.Now().Add(time.Duration(i) * time.Millisecond)}
		if err := n.Save(); err != nil {
			t.Fatal(err)
		}
	}
	for i, at := range []*Target{web, same, other, command, elsewhere} {
		want := []string{fmt.Sprint("id", i)}
		if i < 2 {
			want = []string{"id1", "id0"}
		}
		if got := noteIDs(t, at); !slices.Equal(got, want) {
			t.Errorf("notes of %s: %q, want %q", at, got, want)
		}
	}
	all, err := Notes()
	if err != nil || len(all) != 5 {
		t.Fatalf("%d notes, %v, want 5", len(all), err)
	}
	all[4].Remove()
	if got := noteIDs(t, web); !slices.Equal(got, []string{"id1"}) {
		t.Errorf("notes after a removal: %q, want id1", got)
	}
	err = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if info, err := d.Info(); runtime.GOOS != "windows" && (err != nil || info.Mode().Perm()&0o077 != 0) {
			t.Errorf("%s: mode %v, %v, want no access for others", name, info.Mode(), err)
		}
		if text, err := os.ReadFile(name); !d.IsDir() &&
			(err != nil || strings.Contains(string(text), "s3cret") || strings.Contains(string(text), "pw@") ||
				strings.Contains(string(text), "team=")) {
			t.Errorf("note %s, %v, want no secrets in it", text, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestPublicTargetHasNoSecrets(t *testing.T) {
	for want, at := range map[string]*Target{
		"https://h:1/a b": {URL: "https://u:p@h:1/a%20b?key=k#f"},
		"server …":        {Command: []string{"/x/server", "--key=k"}},
		"server":          {Command: []string{"server"}},
		"web":             {URL: "https://h/", Name: "web", From: "mcp.json"},
	} {
		if got := at.Public(); strings.ReplaceAll(got, "%20", " ") != want {
			t.Errorf("public name of %+v: %q, want %q", at, got, want)
		}
	}
}

func TestNotesAreBounded(t *testing.T) {
	dir := freshState(t)
	at := &Target{URL: "https://h/", Header: http.Header{}}
	began := time.Now().Add(-time.Hour)
	var writers sync.WaitGroup // like concurrent programs
	for i := range maxNotes + 20 {
		writers.Go(func() {
			n := &Note{Key: at.Key(), ID: fmt.Sprint(i), Started: began.Add(time.Duration(i) * time.Second)}
			if err := n.Save(); err != nil {
				t.Error(err)
			}
		})
	}
	writers.Wait()
	if got := noteIDs(t, at); len(got) != maxNotes || got[0] != fmt.Sprint(maxNotes+19) {
		t.Errorf("%d notes, the newest %s, want %d and %d", len(got), got[0], maxNotes, maxNotes+19)
	}
	files, err := os.ReadDir(filepath.Join(dir, "tasks"))
	if err != nil || len(files) != maxNotes {
		t.Errorf("%d files, %v, want %d", len(files), err, maxNotes)
	}
	huge := &Note{Key: at.Key(), ID: strings.Repeat("x", maxNote), Started: time.Now()}
	if err := huge.Save(); err == nil {
		t.Error("saving a note that is too large: no error, want one")
	}
}

func TestOldAndInvalidNotesAreIgnored(t *testing.T) {
	dir := freshState(t)
	at := &Target{URL: "https://h/"}
	now := time.Now()
	for id, n := range map[string]*Note{
		"fresh":    {Started: now},
		"kept":     {Started: now.Add(-2 * noteTTL), Expires: now.Add(time.Hour)},
		"old":      {Started: now.Add(-2 * noteTTL)},
		"expired":  {Started: now.Add(-3 * noteGrace), Expires: now.Add(-2 * noteGrace)},
		"just now": {Started: now.Add(-time.Hour), Expires: now.Add(-time.Minute)},
	} {
		n.Key, n.ID = at.Key(), id
		if err := n.Save(); err != nil {
			t.Fatal(err)
		}
	}
	folder := filepath.Join(dir, "tasks")
	for name, text := range map[string]string{"z.json": "{", "y.json": "null",
		"x.json": strings.Repeat(" ", maxNote) + "{}", "w.txt": "mine", "v.new": "{"} {
		writeFile(t, filepath.Join(folder, name), text)
	}
	got := noteIDs(t, at)
	slices.Sort(got)
	if want := []string{"fresh", "just now", "kept"}; !slices.Equal(got, want) {
		t.Errorf("notes %q, want %q", got, want)
	}
	left, err := os.ReadDir(folder)
	if err != nil || len(left) != 3+5 {
		t.Errorf("%d files, %v, want 8: only the files of expired notes are removed", len(left), err)
	}
	if err := (&Note{Key: at.Key(), ID: "next", Started: now}).Save(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(folder, "w.txt")); err != nil {
		t.Error("saving a note removed another program's file")
	}
}
