package patchbay_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
)

func TestMain(m *testing.M) { os.Exit(testhome.Main(m, (*testing.M).Run)) }

// TestTestsHaveTheirOwnHome finds packages whose tests could read or change files of the developer.
func TestTestsHaveTheirOwnHome(t *testing.T) {
	isolated := map[string]bool{} // by folder
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			if slices.Contains([]string{"testdata", "node_modules"}, d.Name()) || len(name) > 1 && d.Name()[0] == '.' {
				return fs.SkipDir
			}
			return nil
		case !strings.HasSuffix(name, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(name)
		dir := filepath.Dir(name)
		isolated[dir] = isolated[dir] || bytes.Contains(text, []byte("os.Exit(testhome.Main(m, ")) ||
			bytes.Contains(text, []byte(":= testhome.Main(m, "))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	documented := []string{"mcptest", filepath.Join("examples", "guides")} // they show the TestMain of a user
	for dir, ok := range isolated {
		if !ok && !slices.Contains(documented, dir) {
			t.Errorf("%s: TestMain must call testhome.Main", dir)
		}
	}
	if len(isolated) < 50 {
		t.Errorf("found %d folders with tests, want all of the repository", len(isolated))
	}
}
