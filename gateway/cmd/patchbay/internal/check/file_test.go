package check_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/check"
	"github.com/patchbay-mcp/patchbay/jsonschema"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// update reports whether to rewrite golden files. Package mcptest defines the flag.
func update() bool { return flag.Lookup("update").Value.String() == "true" }

func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if update() {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s (%v): got\n%s\nwant\n%s", path, err, got, want)
	}
}

func TestPublishedSchemaIsUpToDate(t *testing.T) {
	var text bytes.Buffer
	if err := json.Indent(&text, check.Schema(), "", "  "); err != nil {
		t.Fatal(err)
	}
	text.WriteByte('\n')
	golden(t, filepath.Join("..", "..", "..", "..", "..", "docs", "patchbay-checks.schema.json"), text.Bytes())
	if _, err := jsonschema.Compile(check.Schema()); err != nil {
		t.Error(err)
	}
	for _, revision := range driver.Revisions() {
		if !bytes.Contains(text.Bytes(), []byte(`"`+revision+`"`)) {
			t.Errorf("the schema lacks the revision %s", revision)
		}
	}
}

func calls(text string) string { return `{"checks": 1, "calls": [` + text + `]}` }

func expect(assertions string) string {
	return calls("\n" + `{"name": "a", "method": "tools/call", "expect": [` + assertions + `]}`)
}

func TestInvalidFilesAreRefusedWithTheLine(t *testing.T) {
	for text, want := range map[string]string{
		`{`:                                  "f.json: line 1, column 2",
		`[]`:                                 "want an object",
		`{"checks": 2, "calls": []}`:         `line 1, column 2: /checks: got the number 2, want 1`,
		`{"checks": 1, "cals": []}`:          `/cals: unknown member "cals" (did you mean "calls"?)`,
		calls(`{"name": "a"}`):               `missing required member "method"`,
		calls("\n" + `{"mame": "a"}`):        `line 2, column 2: /calls/0/mame: unknown member "mame" (did you mean "name"?)`,
		calls(`{"name": "", "method": "x"}`): "/calls/0/name",
		calls(`{"name": "a", "method": "x"}, {"name": "a", "method": "x"}`):                       `duplicate name "a"`,
		calls(`{"name": "a", "method": "x", "params": []}`):                                       "/calls/0/params: got an array, want an object",
		calls(`{"name": "a", "method": "x", "revisions": ["2026-07-29"]}`):                        `did you mean "2026-07-28"?`,
		calls(`{"name": "a", "method": "x", "answers": "../a.json"}`):                             "must be below the file",
		calls(`{"name": "a", "method": "x", "answers": "/etc/passwd"}`):                           "must be below the file",
		calls(`{"name": "a", "method": "x", "set": {"a b": "/x"}}`):                               "invalid variable",
		calls(`{"name": "a", "method": "x", "set": {"a": "x"}}`):                                  "invalid variable",
		calls(`{"name": "a", "method": "resources/read", "expect": [{"outputSchema": "valid"}]}`): "outputSchema is for calls of tools/call",
		`{"checks": 1, "target": {"comand": "x"}, "calls": []}`:                                   `"comand"`,
		`{"checks": 1, "target": 1, "calls": []}`:                                                 "/target",
		expect(`{}`):                                  "line 2, column 50: /calls/0/expect/0: got no assertion",
		expect(`{"equals": 1, "length": 1}`):          "got equals and length, want exactly one",
		expect(`{"at": "x", "equals": 1}`):            `invalid JSON pointer "x"`,
		expect(`{"at": "/x", "error": 1}`):            "error is about the whole call: remove at",
		expect(`{"at": "/x", "matches": "("}`):        "matches: error parsing regexp",
		expect(`{"at": "/x", "type": "int"}`):         `"int"`,
		expect(`{"at": "/x", "schema": {"type": 1}}`): "schema:",
		expect(`{"at": "/x", "length": -1}`):          "/calls/0/expect/0/length",
		expect(`{"at": "/x", "equal": 1}`):            `unknown member "equal" (did you mean "equals"?)`,
	} {
		if _, err := check.Parse("f.json", []byte(text)); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "f.json: ") {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
	if _, err := check.Parse("f.json", bytes.Repeat([]byte(" "), 5<<20)); err == nil {
		t.Error("a file of 5 MiB: got no error, want one")
	}
	if _, err := check.Load(t.TempDir()); err == nil || !strings.Contains(err.Error(), "regular file") {
		t.Errorf("a directory: got %v, want an error", err)
	}
}

func mask(text string) string { return strings.ReplaceAll(text, "s3cret", "***") }

func TestAppendKeepsCommentsAndRefusesSecrets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "patchbay-checks.json")
	if _, err := check.Load(path); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("got %v, want that the file is new", err)
	}
	f, err := check.New(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	sum := &check.Call{Name: "sum", Method: "tools/call", Params: []byte(`{"name": "<&\u0061>", "a": 1.50}`)}
	if err := f.Append(sum, mask); err != nil {
		t.Fatal(err)
	}
	if err := f.Save(nil); err != nil {
		t.Fatal(err)
	}
	text := bytes.Replace(f.Text(), []byte(`"calls"`), []byte("// mine\n  \"calls\""), 1)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if f, err = check.Load(path); err != nil {
		t.Fatal(err)
	}
	empty := ""
	next := &check.Call{Name: "next", Method: "ping", Expect: []*check.Assertion{{At: &empty, Equals: []byte("null")}}}
	if err := f.Append(next, mask); err != nil {
		t.Fatal(err)
	}
	got := string(f.Text())
	for _, want := range []string{"// mine", "1.50", `"<&\u0061>"`, `"equals": null`, `"at": ""`} {
		if !strings.Contains(got, want) {
			t.Errorf("got %s, want %s in it", got, want)
		}
	}
	for _, c := range []*check.Call{next, {Name: "x", Method: "m", Params: []byte(`{"key": "s3cret"}`)}, {Name: "y"}} {
		if err := f.Append(c, mask); err == nil || string(f.Text()) != got {
			t.Errorf("%+v: got %v and %s, want an error and the same text", c, err, f.Text())
		}
	}
	if err := f.Save([]byte("another text")); err == nil {
		t.Error("a file that another program changed: got no error, want one")
	}
}

// The parser accepts only what the published schema accepts, and appending keeps files valid.
func FuzzParse(f *testing.F) {
	f.Add(`{"checks": 1, "target": {"url": "x"}, "calls": [{"name": "a", "method": "m", "set": {"x": "/y"}}]}`)
	f.Add(`{"checks": 1, "calls": [{"name": "a", "method": "tools/call", "params": {"a": "${B}${$}"}, "expect": [{"at": "/x", "equals": 1}]}]} // x`)
	f.Add(expect(`{"matches": "a"}, {"schema": true}, {"outputSchema": "valid"}, {"type": "null"}`))
	schema, err := jsonschema.Compile(check.Schema())
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		file, err := check.Parse("f.json", []byte(text))
		if err != nil {
			if len(err.Error()) > 16<<10 || !strings.HasPrefix(err.Error(), "f.json") {
				t.Errorf("error %.500q, want the file and a place", err)
			}
			return
		}
		if json.Valid([]byte(text)) && schema.Validate([]byte(text)) != nil {
			t.Errorf("the schema refuses %s", text)
		}
		names := []string{}
		for _, c := range file.Calls {
			names = append(names, c.Name)
		}
		err = file.Append(&check.Call{Name: "appended", Method: "ping"}, mask)
		if slices.Contains(names, "appended") != (err != nil) && len(names) < 1000 {
			t.Errorf("append to %s: %v", text, err)
		}
	})
}
