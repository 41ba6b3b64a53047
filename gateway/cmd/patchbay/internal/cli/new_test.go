package cli

import (
	"bytes"
	"encoding/json"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The program of each template is formatted, compiles against this working copy, and passes its test.
func TestNewModulesPassTheirTests(t *testing.T) {
	root, err := filepath.Abs("../../../../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"server", "client"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "made")
			o := patchbay(t, "", "new", kind, "example.com/me/my-"+kind, "--dir", dir, "--json")
			var m newModule
			if err := json.Unmarshal([]byte(o.stdout), &m); err != nil || o.status != exitOK || m.Name != "my-"+kind {
				t.Fatalf("exit code %d, %s%s", o.status, o.stdout, o.stderr)
			}
			for _, name := range m.Files {
				text, err := os.ReadFile(filepath.Join(dir, name))
				if err != nil {
					t.Fatal(err)
				}
				if strings.HasSuffix(name, ".go") {
					formatted, err := format.Source(text)
					if err != nil || !bytes.Equal(formatted, text) {
						t.Errorf("%s is not formatted: %v", name, err)
					}
				}
				if strings.Contains(string(text), "{{") {
					t.Errorf("%s has unexpanded text", name)
				}
			}
			for _, args := range [][]string{
				{"mod", "edit", "-require=github.com/patchbay-mcp/patchbay@v0.0.0",
					"-replace=github.com/patchbay-mcp/patchbay=" + root},
				{"mod", "tidy"}, {"vet", "./..."}, {"test", "./..."},
			} {
				cmd := exec.CommandContext(t.Context(), "go", args...)
				cmd.Dir = dir
				cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod", "GOSUMDB=off")
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
				}
			}
		})
	}
}

func TestNewRefusesWhatExists(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, args := range [][]string{{"new"}, {"new", "server"}, {"new", "gateway", "x"}, {"new", "server", "../x"},
		{"new", "server", "/abs"}, {"new", "server", "a//b"}, {"new", "server", "x y"}, {"new", "server", "-x"},
		{"new", "server", "a/.."}, {"new", "server", `x"y`}, {"new", "server", "x", "y"}} {
		if o := patchbay(t, "", args...); o.status != exitUsage {
			t.Errorf("%q: exit code %d, %s, want %d", args, o.status, o.stderr, exitUsage)
		}
	}
	if err := os.Mkdir("weather", 0o700); err != nil {
		t.Fatal(err)
	}
	if o := patchbay(t, "", "new", "server", "weather"); o.status != exitOK || !strings.Contains(o.stdout, "cd weather") {
		t.Errorf("an empty directory: exit code %d, %s%s", o.status, o.stdout, o.stderr)
	}
	before, err := os.ReadFile("weather/main.go")
	if err != nil {
		t.Fatal(err)
	}
	o := patchbay(t, "", "new", "client", "weather")
	after, _ := os.ReadFile("weather/main.go")
	if o.status != exitFailure || !strings.Contains(o.stderr, "not empty") || !bytes.Equal(before, after) {
		t.Errorf("a directory with files: exit code %d, %s", o.status, o.stderr)
	}
	writeFile(t, "file", "")
	if o := patchbay(t, "", "new", "server", "x", "--dir", "file"); o.status != exitFailure {
		t.Errorf("a file in place of the directory: exit code %d, %s", o.status, o.stderr)
	}
}
