package config_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/host/config"
)

func newProjectServer() *config.Server {
	return &config.Server{Name: "a", Project: true, Type: config.TypeStdio, Command: "./run", Args: []string{"x"}}
}

// records returns the files of a store.
func records(t *testing.T, store *config.TrustStore) (paths []string) {
	t.Helper()
	files, err := os.ReadDir(store.Dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		paths = append(paths, filepath.Join(store.Dir, f.Name()))
	}
	return paths
}

func TestTrustStoreNeedsAnAbsoluteDirectory(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, dir := range []string{"", ".", "state"} {
		store := &config.TrustStore{Dir: dir}
		if err := store.Trust(newProjectServer()); err == nil {
			t.Errorf("directory %q: Trust returned no error", dir)
		}
		if !store.NeedsTrust(newProjectServer()) {
			t.Errorf("directory %q: a server is trusted", dir)
		}
		if err := store.Revoke(newProjectServer()); err == nil {
			t.Errorf("directory %q: Revoke returned no error", dir)
		}
	}
}

// A record that the user's programs did not write, such as one that was checked out, is not used.
func TestForeignTrustRecordsAreIgnored(t *testing.T) {
	mode := func(of func(record string) string, mode fs.FileMode) func(t *testing.T, record string) {
		return func(t *testing.T, record string) {
			if runtime.GOOS == "windows" {
				t.Skip("Windows has no such modes")
			}
			if err := os.Chmod(of(record), mode); err != nil {
				t.Fatal(err)
			}
		}
	}
	itself := func(record string) string { return record }
	for name, change := range map[string]func(t *testing.T, record string){
		"empty":                       func(t *testing.T, record string) { rewrite(t, record, "") },
		"other content":               func(t *testing.T, record string) { rewrite(t, record, "{}\n") },
		"file readable by others":     mode(itself, 0o644),
		"file writable by a group":    mode(itself, 0o660),
		"directory open to others":    mode(filepath.Dir, 0o755),
		"directory writable by group": mode(filepath.Dir, 0o770),
		"directory": func(t *testing.T, record string) {
			if err := os.Remove(record); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(record, 0o700); err != nil {
				t.Fatal(err)
			}
		},
		"symbolic link": func(t *testing.T, record string) {
			other := filepath.Join(t.TempDir(), "record")
			if err := os.Rename(record, other); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(other, record); err != nil {
				t.Skip(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			store := &config.TrustStore{Dir: filepath.Join(t.TempDir(), "trusted")}
			if err := store.Trust(newProjectServer()); err != nil || store.NeedsTrust(newProjectServer()) {
				t.Fatalf("Trust: %v, NeedsTrust %t", err, store.NeedsTrust(newProjectServer()))
			}
			change(t, records(t, store)[0])
			if !store.NeedsTrust(newProjectServer()) {
				t.Error("the server is trusted")
			}
		})
	}
}

func rewrite(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// The last trusted entry of a name replaces the one before: a repository cannot return to it.
func TestTrustEndsWhenAnotherEntryIsTrusted(t *testing.T) {
	store := &config.TrustStore{Dir: filepath.Join(t.TempDir(), "trusted")}
	first, second := newProjectServer(), newProjectServer()
	second.Args = []string{"y"}
	for _, s := range []*config.Server{first, second} {
		if err := store.Trust(s); err != nil {
			t.Fatal(err)
		}
	}
	if store.NeedsTrust(second) || !store.NeedsTrust(first) {
		t.Errorf("NeedsTrust is %t for the second entry and %t for the first, want false and true",
			store.NeedsTrust(second), store.NeedsTrust(first))
	}
	if err := store.Revoke(first); err != nil {
		t.Fatal(err)
	}
	if !store.NeedsTrust(second) || len(records(t, store)) != 0 {
		t.Errorf("Revoke left %q", records(t, store))
	}
}

// JSON replaces invalid UTF-8, so that two entries would have the same record.
func TestTrustRefusesInvalidUTF8(t *testing.T) {
	store := &config.TrustStore{Dir: filepath.Join(t.TempDir(), "trusted")}
	s := newProjectServer()
	s.Args = []string{"a\xff"}
	if err := store.Trust(s); err == nil || !store.NeedsTrust(s) {
		t.Errorf("Trust: %v, NeedsTrust %t, want an error and true", err, store.NeedsTrust(s))
	}
}

// A symbolic link to the current directory may lead to another repository later.
func TestTrustIsForTheDirectoryBehindALink(t *testing.T) {
	t.Setenv(config.PathEnv, "")
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	root := t.TempDir()
	for _, dir := range []string{"one", "two"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o700); err != nil {
			t.Fatal(err)
		}
		rewrite(t, filepath.Join(root, dir, ".mcp.json"), `{"servers": {"a": {"command": "./run"}}}`)
	}
	link := filepath.Join(root, "link")
	store := &config.TrustStore{Dir: filepath.Join(t.TempDir(), "trusted")}
	for _, step := range []struct {
		to      string
		trusted bool
	}{{"one", false}, {"one", true}, {"two", false}} {
		_ = os.Remove(link)
		if err := os.Symlink(filepath.Join(root, step.to), link); err != nil {
			t.Skip(err)
		}
		t.Chdir(link)
		configs, err := config.LoadAll("")
		if err != nil {
			t.Fatal(err)
		}
		s, err := configs[0].Server("a")
		if err != nil {
			t.Fatal(err)
		}
		if trusted := !store.NeedsTrust(s); trusted != step.trusted {
			t.Errorf("link to %s: trusted %t, want %t", step.to, trusted, step.trusted)
		}
		if step.to == "one" {
			if err := store.Trust(s); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// The text of an error must not carry lines or pages of a project file.
func TestErrorsOfEntriesAreBounded(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	for _, entry := range []string{
		`{"command": "a", "env": {"a\nb` + long + `": {}}}`,
		`{"command": "a", "type": "` + long + `"}`,
		`{"url": "http://a", "headers": {"` + long + `": []}}`,
		`{"command": "a", "env": {"` + long + `": "${A-}"}}`,
	} {
		c, err := config.Parse([]byte(`{"servers": {"a": ` + entry + `}}`))
		if err != nil {
			t.Fatal(err)
		}
		s, err := c.Server("a")
		if err == nil {
			_, err = s.Expand(t.Context(), os.LookupEnv)
		}
		if err == nil || len(err.Error()) > 500 || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.60s…: error of %d bytes, want one line of at most 500", entry, len(err.Error()))
		}
	}
}
