package config_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/patchbay-mcp/patchbay/host/config"
)

// Each server of a merged file keeps the directory, the inputs and the trust of its own file.
func TestMergedServersKeepTheirFiles(t *testing.T) {
	dir := t.TempDir()
	load := func(name, text string) *config.File {
		t.Helper()
		path := filepath.Join(dir, name, "mcp.json")
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := config.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	a := load("a", `{"mcpServers": {"fs": {"command": "x", "cwd": "."}, "bad": {"args": []}}, "patchbay": {"listen": "127.0.0.1:1"}}`)
	b := load("b", `{"servers": {"fs": {"command": "y", "cwd": "sub"}, "key": {"command": "${input:k}"}},
		"inputs": [{"id": "k", "type": "promptString"}]}`)
	b.Project = true
	m := config.Merge(a, []config.Entry{
		{Name: "fs", File: a, Server: "fs"}, {Name: "bad", File: a, Server: "bad"}, {Name: "cursor:fs", File: b, Server: "fs"},
		{Name: "fs", File: b, Server: "key"}, {Name: "key", File: b, Server: "key"}, {Name: "no", File: b, Server: "no"},
	})
	if got, want := m.Names(), []string{"fs", "bad", "cursor:fs", "key"}; !slices.Equal(got, want) {
		t.Errorf("names %q, want %q", got, want)
	}
	if string(m.Extra["patchbay"]) != `{"listen": "127.0.0.1:1"}` || !slices.Equal(a.Names(), []string{"fs", "bad"}) {
		t.Errorf("settings %s of %q, want those of the first file, which is unchanged", m.Extra["patchbay"], a.Names())
	}
	for name, want := range map[string]struct {
		command, dir string
		project      bool
		inputs       int
	}{
		"fs":        {"x", filepath.Join(dir, "a"), false, 0},
		"cursor:fs": {"y", filepath.Join(dir, "b", "sub"), true, 0},
		"key":       {"typed", filepath.Join(dir, "b"), true, 1},
	} {
		s, err := m.Server(name)
		if err != nil {
			t.Fatal(err)
		}
		inputs := len(s.Inputs)
		s, err = s.Expand(t.Context(), func(string) (string, bool) { return "typed", true })
		if err != nil || s.Name != name || s.Command != want.command || s.Dir != want.dir || s.Project != want.project ||
			inputs != want.inputs {
			t.Errorf("%s: %+v with %d inputs, %v, want %+v", name, s, inputs, err, want)
		}
	}
	if _, err := m.Server("bad"); err == nil {
		t.Error("an invalid entry has no error")
	}
	if empty := config.Merge(nil, nil); len(empty.Names()) != 0 || len(empty.Extra) != 0 {
		t.Errorf("an empty file: %+v", empty)
	}
}
