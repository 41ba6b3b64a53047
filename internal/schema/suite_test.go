package schema_test

import (
	stdjson "encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/internal/schema"
)

const draft7 = "http://json-schema.org/draft-07/schema#"

// suiteRoot finds the official JSON-Schema-Test-Suite in the module cache, where it is test data of a library.
func suiteRoot(t *testing.T) string {
	t.Helper()
	cache, err := exec.Command("go", "env", "GOMODCACHE").Output()
	if err != nil {
		t.Skip("no go command to ask for the module cache")
	}
	found, _ := filepath.Glob(filepath.Join(strings.TrimSpace(string(cache)), "github.com/google/jsonschema-go@*", "jsonschema"))
	if len(found) == 0 {
		t.Skip("github.com/google/jsonschema-go is not in the module cache: its test data is the official suite")
	}
	return found[len(found)-1]
}

type suiteGroup struct {
	Description string
	Schema      stdjson.RawMessage
	Tests       []struct {
		Description string
		Data        stdjson.RawMessage
		Valid       bool
	}
}

// The mandatory tests of both dialects. A schema that refers to another document must be
// refused; with the documents bundled into it, as 2020-12 has it, its tests must pass.
//
// Requirement: SCH-01, SCH-02, SCH-03, SCH-04
func TestOfficialSuite(t *testing.T) {
	root := suiteRoot(t)
	for _, dialect := range []struct{ name, uri string }{{"draft2020-12", ""}, {"draft7", draft7}} {
		t.Run(dialect.name, func(t *testing.T) {
			files, err := filepath.Glob(filepath.Join(root, "testdata", dialect.name, "*.json"))
			if err != nil || len(files) < 30 {
				t.Fatalf("%d files, %v", len(files), err)
			}
			bundle := readBundle(t, root, dialect.name)
			ran := 0
			for _, file := range files {
				for _, g := range readJSON[[]suiteGroup](t, file) {
					name := strings.TrimSuffix(filepath.Base(file), ".json") + ": " + g.Description
					ran += runGroup(t, name, g, dialect.uri, bundle)
				}
			}
			t.Logf("%d tests", ran)
		})
	}
}

func runGroup(t *testing.T, name string, g suiteGroup, dialect string, bundle map[string]stdjson.RawMessage) int {
	s, err := schema.Compile(withMembers(t, g.Schema, dialect, nil))
	if err != nil && strings.Contains(err.Error(), "which is not fetched") {
		s, err = schema.Compile(withMembers(t, g.Schema, dialect, bundle))
	} else if strings.HasPrefix(name, "refRemote") {
		t.Errorf("%s: compiled without the referenced document (SCH-12)", name)
	}
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return 0
	}
	for _, c := range g.Tests {
		if err := s.Validate(c.Data); (err == nil) != c.Valid {
			t.Errorf("%s: %s: valid %t, got %v", name, c.Description, c.Valid, err)
		}
	}
	return len(g.Tests)
}

// withMembers returns a schema with a dialect and more definitions.
func withMembers(t *testing.T, raw stdjson.RawMessage, dialect string, bundle map[string]stdjson.RawMessage) stdjson.RawMessage {
	var members map[string]stdjson.RawMessage
	if stdjson.Unmarshal(raw, &members) != nil {
		return raw // a boolean
	}
	keyword := "$defs"
	if dialect != "" {
		keyword = "definitions"
		members["$schema"] = marshal(t, dialect)
	}
	if bundle != nil {
		var defs map[string]stdjson.RawMessage
		if err := stdjson.Unmarshal(members[keyword], &defs); err != nil {
			defs = map[string]stdjson.RawMessage{}
		}
		maps.Copy(defs, bundle)
		members[keyword] = marshal(t, defs)
	}
	return marshal(t, members)
}

// readBundle reads the documents that the suite expects to be served, each under its address.
func readBundle(t *testing.T, root, dialect string) map[string]stdjson.RawMessage {
	bundle := map[string]stdjson.RawMessage{}
	add := func(dir, base string) {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".json" || strings.Contains(filepath.Base(path), "metaschema-") || strings.Contains(filepath.Base(path), "format-assertion") {
				return err
			}
			doc := readJSON[map[string]stdjson.RawMessage](t, path)
			uri := base + filepath.ToSlash(strings.TrimPrefix(path, dir))
			own := string(doc["$id"])
			switch {
			case own == "":
				doc["$id"] = marshal(t, uri)
			case own != string(marshal(t, uri)) && base != "":
				bundle["at "+uri] = stdjson.RawMessage(fmt.Sprintf(`{"$id":%q,"allOf":[{"$ref":%s}]}`, uri, own))
			}
			bundle[uri] = marshal(t, doc)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	remotes := filepath.Join(root, "testdata", "remotes")
	add(filepath.Join(remotes, dialect), "http://localhost:1234/"+dialect)
	for _, name := range []string{"nested", "baseUriChange", "baseUriChangeFolder", "baseUriChangeFolderInSubschema", "integer.json"} {
		add(filepath.Join(remotes, name), "http://localhost:1234/"+name)
	}
	for _, name := range []string{"urn-ref-string.json", "different-id-ref-string.json", "nested-absolute-ref-to-string.json"} {
		if dialect != "draft7" { // draft-07 has no such keywords
			add(filepath.Join(remotes, name), "http://localhost:1234/"+name)
		}
	}
	add(filepath.Join(root, "meta-schemas", dialect), "")
	return bundle
}

func readJSON[T any](t *testing.T, file string) (v T) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err == nil {
		err = stdjson.Unmarshal(raw, &v)
	}
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func marshal(t *testing.T, v any) stdjson.RawMessage {
	t.Helper()
	raw, err := stdjson.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}
