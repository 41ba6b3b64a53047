package skills_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/patchbay-mcp/patchbay/ext/skills"
)

func skillFile(name string) *fstest.MapFile {
	return &fstest.MapFile{Data: []byte("---\nname: " + name + "\ndescription: A skill\n---\n")}
}

func TestSkillInRoot(t *testing.T) {
	s, catalog := serve(t, fstest.MapFS{"SKILL.md": skillFile("alone"), "a/b.txt": {Data: []byte("b")}},
		&skills.Options{Prefix: "x-own://acme/"})
	c := dial(t, s)
	all, err := list(t.Context(), c)
	if err != nil || len(all) != 1 || all[0].URI != "x-own://acme/alone/SKILL.md" ||
		all[0].Files[1].URI != "x-own://acme/alone/a/b.txt" {
		t.Fatalf("got %v, %v", all, err)
	}
	if got := catalog.Skills(); len(got) != 1 || got[0].Fingerprint() != all[0].Fingerprint() {
		t.Errorf("Skills of the catalog: %v", got)
	}
	for _, dir := range []string{"x-own://acme/alone", "x-own://acme/alone/a"} {
		for _, err := range skills.ReadDir(t.Context(), c, dir) {
			if err != nil {
				t.Errorf("%s: %v", dir, err)
			}
		}
	}
}

// The order of the files does not affect the URIs of a skill inside the skill in the root.
func TestSkillsInsideSkillInRoot(t *testing.T) {
	for _, inner := range []string{"3d-print", "zebra", "+/x"} {
		t.Run(inner, func(t *testing.T) {
			s, catalog := serve(t, fstest.MapFS{
				"SKILL.md": skillFile("top"), inner + "/SKILL.md": skillFile(path.Base(inner)), inner +
					"/notes.txt": {Data: []byte("x")},
			}, nil)
			files := map[string]int{}
			for _, skill := range catalog.Skills() {
				if !strings.HasPrefix(skill.URI, "skill://top/") {
					t.Errorf("%s is outside of the skill in the root", skill.URI)
				}
				files[skill.Name] = len(skill.Files)
			}
			if len(files) != 2 || files["top"] != 3 || files[path.Base(inner)] != 2 {
				t.Errorf("skills and their number of files: %v", files)
			}
			c := dial(t, s)
			n := 0
			for _, err := range c.Resources(t.Context()) {
				if n++; err != nil {
					t.Fatal(err)
				}
			}
			if n != 3 {
				t.Errorf("%d resources, want 3", n)
			}
			var names []string
			for r, err := range skills.ReadDir(t.Context(), c, strings.TrimSuffix(catalog.Skills()[0].URI,
				"/SKILL.md")) {
				if err != nil {
					t.Fatal(err)
				}
				names = append(names, r.URI)
			}
			if len(names) != 2 {
				t.Errorf("entries of the inner directory: %q, want 2", names)
			}
		})
	}
}

// skillFilesWith returns a file system with a valid skill and further files, given as alternating
// names and contents.
func skillFilesWith(files ...any) fstest.MapFS {
	m := fstest.MapFS{"good/SKILL.md": skillFile("good")}
	for i := 0; i < len(files); i += 2 {
		if f, ok := files[i+1].(*fstest.MapFile); ok {
			m[files[i].(string)] = f
		} else {
			m[files[i].(string)] = &fstest.MapFile{Data: []byte(files[i+1].(string))}
		}
	}
	return m
}

func TestInvalidDirectories(t *testing.T) {
	many := skillFilesWith()
	for i := range skills.MaxFiles {
		many[fmt.Sprintf("good/%d", i)] = &fstest.MapFile{}
	}
	large := skillFilesWith("good/1", strings.Repeat("x", 9<<20), "good/2", strings.Repeat("x", 9<<20))
	deep := skillFilesWith(strings.Repeat("a/", 20)+"x", "")
	for want, files := range map[string]fstest.MapFS{
		"is not \"---\"":           skillFilesWith("a/SKILL.md", "# No frontmatter"),
		"has no end":               skillFilesWith("a/SKILL.md", "---\nname: a\n"),
		"not YAML":                 skillFilesWith("a/SKILL.md", "---\nname: [\n---\n"),
		"not a mapping":            skillFilesWith("a/SKILL.md", "---\n- a\n---\n"),
		"name is empty":            skillFilesWith("a/SKILL.md", "---\ndescription: x\n---\n"),
		"that of the directory is": skillFilesWith("a/SKILL.md", skillFile("b")),
		"lower-case letters":       skillFilesWith("Ab/SKILL.md", skillFile("Ab")),
		"hyphen":                   skillFilesWith("a--b/SKILL.md", skillFile("a--b")),
		"at most 64":               skillFilesWith(strings.Repeat("a", 65)+"/SKILL.md", skillFile(strings.Repeat("a", 65))),
		"no description":           skillFilesWith("a/SKILL.md", "---\nname: a\ndescription: ''\n---\n"),
		"1025 characters": skillFilesWith("a/SKILL.md",
			"---\nname: a\ndescription: "+strings.Repeat("ä", 1025)+"\n---\n"),
		"compatibility has": skillFilesWith("a/SKILL.md",
			"---\nname: a\ndescription: x\ncompatibility: "+strings.Repeat("a", 501)+"\n---\n"),
		"is reserved": skillFilesWith("a/SKILL.md",
			"---\nname: a\ndescription: x\nmetadata: {io.modelcontextprotocol/x: 1}\n---\n"),
		"symbolic link": skillFilesWith("good/id_rsa",
			&fstest.MapFile{Mode: fs.ModeSymlink, Data: []byte("/etc/passwd")}),
		"not a regular file":       skillFilesWith("good/pipe", &fstest.MapFile{Mode: fs.ModeNamedPipe}),
		"want SKILL.md":            skillFilesWith("a/skill.md", skillFile("a")),
		"differ in case only":      skillFilesWith("good/a.md", "1", "good/A.md", "2"),
		"too large: 513 files":     many,
		"more than 16777216 bytes": large,
		"more than 11534336 bytes": skillFilesWith("good/x", strings.Repeat("x", 11<<20+1)),
		"more than 16 directories": deep,
		"Options.MaxBytes":         skillFilesWith("good/x", strings.Repeat("x", 1<<10), "a/SKILL.md", skillFile("a")),
		"a%01b\" has a character":  skillFilesWith("good/a\x01b", "x"),
		"fdp.exe\" has a character that file names must not have": skillFilesWith("good/a\u202efdp.exe", "x"),
		"files and no SKILL.md":                                   {"README.md": {}, "pdf/notes.md": {}},
		"description of the second":                               nil,
	} {
		t.Run(want, func(t *testing.T) {
			if files == nil {
				files = skillFilesWith("a/SKILL.md", "x", "b/SKILL.md", "y")
				want = `skill "b"` // the error names all faults
			}
			opts := &skills.Options{}
			if want == "Options.MaxBytes" {
				opts.MaxBytes = 1 << 10
			}
			s := newServer(t, nil)
			_, err := skills.Serve(s, files, opts)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Fatalf("got %v, want %q", err, want)
			}
			if _, err := skills.Serve(s, skillFilesWith(), nil); err != nil {
				t.Errorf("Serve after a failed Serve: %v", err)
			}
		})
	}
}

func TestSymbolicLinksAreRefused(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(t.TempDir(), "secret")
	for name, text := range map[string]string{filepath.Join(dir, "a", "SKILL.md"): string(skillFile("a").Data),
		secret: "s3cret"} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if _, err := skills.Serve(newServer(t, nil), root.FS(), nil); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, filepath.Join(dir, "a", "example")); err != nil {
		t.Skip(err)
	}
	for name, fsys := range map[string]fs.FS{"root": root.FS(), "dir": os.DirFS(dir)} {
		if _, err := skills.Serve(newServer(t, nil), fsys, nil); err == nil ||
			!strings.Contains(err.Error(), "symbolic link") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// swappingFS is a file system in which something is replaced when a file is opened.
type swappingFS struct {
	fs.FS
	when string
	swap func()
}

func (s *swappingFS) Open(name string) (fs.File, error) {
	if name == s.when {
		s.swap()
	}
	return s.FS.Open(name)
}

func TestLinksCreatedAfterWalkAreNotFollowed(t *testing.T) {
	elsewhere := t.TempDir()
	if err := os.WriteFile(filepath.Join(elsewhere, "notes.txt"), []byte("s3cret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for what, swap := range map[string]func(dir string) error{
		"a file": func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, "a/b/notes.txt")),
				os.Symlink(filepath.Join(elsewhere, "notes.txt"), filepath.Join(dir, "a/b/notes.txt")))
		},
		"a folder": func(dir string) error {
			return errors.Join(os.RemoveAll(filepath.Join(dir, "a/b")),
				os.Symlink(elsewhere, filepath.Join(dir, "a/b")))
		},
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.MkdirAll(filepath.Join(dir, "a/b"), 0o755); err != nil {
				t.Fatal(err)
			}
			for name, data := range map[string][]byte{"a/SKILL.md": skillFile("a").Data,
				"a/b/notes.txt": []byte("mine")} {
				if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			fsys := &swappingFS{FS: os.DirFS(dir), when: "a/b/notes.txt", swap: func() {
				if err := swap(dir); err != nil {
					t.Skip(err)
				}
			}}
			if catalog, err := skills.Serve(newServer(t, nil), fsys, nil); err == nil ||
				!strings.Contains(err.Error(), "was replaced") {
				t.Errorf("got %v, %v", catalog, err)
			}
		})
	}
}

// A directory may be served without skills.
func TestDirectoriesWithoutSkills(t *testing.T) {
	for what, files := range map[string]fstest.MapFS{
		"empty":             {},
		"only directories":  {"pdf": {Mode: fs.ModeDir}},
		"only hidden files": {".git/config": {Data: []byte("secret")}},
	} {
		t.Run(what, func(t *testing.T) {
			s, catalog := serve(t, files, nil)
			c := dial(t, s)
			for _, step := range []struct {
				change func()
				want   int
			}{
				{func() { files["pdf/SKILL.md"], files["README.md"] = skillFile("pdf"), &fstest.MapFile{} }, 1},
				{func() { delete(files, "pdf/SKILL.md") }, 0},
			} {
				step.change()
				if err := catalog.Reload(); err != nil {
					t.Fatal(err)
				}
				if all, err := list(t.Context(), c); len(all) != step.want || err != nil {
					t.Errorf("got %d, %v, want %d", len(all), err, step.want)
				}
			}
		})
	}
}
