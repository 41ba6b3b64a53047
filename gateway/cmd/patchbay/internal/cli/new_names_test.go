package cli

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func TestNewRefusesNamesThatGoCannotBuild(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, test := range []struct{ name, want string }{
		{"fmt", "standard library"}, {"net/http", "standard library"}, {"FMT", "standard library"},
		{"unsafe", "standard library"}, {"builtin", "standard library"}, {"main", `whose path is "main"`},
		{"all", "go command"}, {"std", "go command"}, {"cmd", "go command"}, {"tool", "go command"},
		{"work", "go command"}, {"C", "go command"}, {"con", `"con" is the name of a device on Windows`},
		{"NUL", `"nul" is`}, {"example.com/me/Com1", `"com1" is`}, {"aux/server", `"aux" is`},
		{"prn.example/server", `"prn" is`}, {"lpt9", `"lpt9" is`},
		{"example.com./server", `"example.com." ends with a dot`}, {"example.com/me./x", `"me." ends with a dot`},
	} {
		for _, kind := range []string{"server", "client"} {
			o := patchbay(t, "", "new", kind, test.name)
			if o.status != exitUsage || !strings.Contains(o.stderr, test.want) || !strings.Contains(o.stderr, "such as") {
				t.Errorf("%s %s: got %d, %s, want %d and %s", kind, test.name, o.status, o.stderr, exitUsage, test.want)
			}
		}
	}
	if entries, err := os.ReadDir("."); err != nil || len(entries) > 0 {
		t.Errorf("got %v, %v, want an empty directory", entries, err)
	}
	for _, name := range []string{"example.com/me/fmt", "example.com/main", "com10", "console", "text", "me/work"} {
		if o := patchbay(t, "", "new", "server", name, "--dir", strings.ReplaceAll(name, "/", "-")); o.status != exitOK {
			t.Errorf("%s: got %d, %s, want %d", name, o.status, o.stderr, exitOK)
		}
	}
}

// The list has all packages of the Go version that runs this test.
func TestStandardPackagesAreComplete(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "std").Output()
	if err != nil {
		t.Fatal(err)
	}
	listed := strings.Fields(standardPackages)
	for name := range strings.FieldsSeq(string(out)) {
		elements := strings.Split(name, "/")
		if elements[0] != "vendor" && !slices.Contains(elements, "internal") && !slices.Contains(listed, name) {
			t.Errorf("%s is not in the list", name)
		}
	}
}
