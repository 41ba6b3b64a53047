package skills_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/ext/skills"
)

func TestFrontmatterAsJSON(t *testing.T) {
	for frontmatter, want := range map[string]string{
		"a: text":                         `{"a":"text"}`,
		"a: 'yes'\nb: yes\nc: on\nd: NO":  `{"a":"yes","b":"yes","c":"on","d":"NO"}`,
		"a: true\nb: False\nc: \"true\"":  `{"a":true,"b":false,"c":"true"}`,
		"a: ~\nb:\nc: null\nd: 'null'":    `{"a":null,"b":null,"c":null,"d":"null"}`,
		"a: 1\nb: -0\nc: +12\nd: 0o17":    `{"a":1,"b":0,"c":12,"d":15}`,
		"a: 0x1F\nb: 0777\nc: 1_000":      `{"a":31,"b":777,"c":"1_000"}`,
		"a: 1.0\nb: .5\nc: 5.\nd: -1.5e3": `{"a":1,"b":0.5,"c":5,"d":-1500}`,
		"a: 12345678901234567890123":      `{"a":12345678901234567890123}`,
		"a: 2026-01-02\nb: 12:30:45":      `{"a":"2026-01-02","b":"12:30:45"}`,
		"a: 2026-01-02T03:04:05Z":         `{"a":"2026-01-02T03:04:05Z"}`,
		"a: 1.2.3\nb: e5\nc: 1e2":         `{"a":"1.2.3","b":"e5","c":100}`,
		"z: 1\na: [x, {y: 2}, []]":        `{"z":1,"a":["x",{"y":2},[]]}`,
		"a: |\n  b\n  c\nd: >-\n  e\n  f": `{"a":"b\nc\n","d":"e f"}`,
		"a: &x [1]\nb: *x":                `{"a":[1],"b":[1]}`,
		"a: !!str 5":                      `{"a":"5"}`,
		"5: a\ntrue: b":                   `{"5":"a","true":"b"}`,
		"a: \"\\u263a \\\"\"\n# note":     `{"a":"☺ \""}`,
		"'<<': 1":                         `{"<<":1}`,
		"a: <<":                           `{"a":"<<"}`,
		"a: b # c\n\n":                    `{"a":"b"}`,
	} {
		for _, end := range []string{"\n", "\r\n"} {
			file := strings.ReplaceAll("---\n"+frontmatter+"\n---\nbody", "\n", end)
			got, err := skills.ParseFrontmatter([]byte(file))
			if string(got) != want || err != nil {
				t.Errorf("%q: got %s, %v; want %s", file, got, err, want)
			}
		}
	}
}

func TestInvalidFrontmatter(t *testing.T) {
	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c < 'k'; c++ {
		bomb += fmt.Sprintf("%c: &%c [%s]\n", c, c,
			strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c,", c-1), 9), ","))
	}
	deep := "a: " + strings.Repeat("[", 40) + strings.Repeat("]", 40)
	for name, frontmatter := range map[string]string{
		"a bomb":          bomb,
		"deep":            deep,
		"very deep":       "a: " + strings.Repeat("[", 30_000),
		"many":            "a: [" + strings.Repeat("1,", 5000) + "1]",
		"long":            "a: " + strings.Repeat("x", 70_000),
		"twice":           "a: 1\na: 2",
		"twice by quotes": "a: 1\n'a': 2",
		"twice inside":    "a: {b: 1, b: 2}",
		"merge":           "a: &x {b: 1}\nc:\n  <<: *x",
		"infinite":        "a: .inf",
		"not a number":    "a: .NaN",
		"too large":       "a: 1e999",
		"many digits":     "a: " + strings.Repeat("9", 100),
		"binary":          "a: !!binary aGk=",
		"own tag":         "a: !run rm",
		"own tag of map":  "a: !run {b: 1}",
		"int by tag":      "a: !!int '5'",
		"set":             "a: !!set {b}",
		"null key":        "~: 1",
		"list as key":     "[a]: 1",
		"itself":          "a: &a [*a]",
		"list":            "- a",
		"text":            "just text",
		"nothing":         "",
		"note":            "# note",
		"two documents":   "a: 1\n...\nb: 2",
		"tabs":            "a:\n\t- b",
		"no UTF-8":        "a: \xff",
		"NUL":             "a: \x00",
		"next line":       "a: b\u0085c: d",
		"separator":       "a: b\u2028c: d",
	} {
		if got, err := skills.ParseFrontmatter([]byte("---\n" + frontmatter + "\n---\n")); err == nil {
			t.Errorf("%s: got %.100s", name, got)
		}
	}
	for _, file := range []string{"", "---", "---\n", "--- \na: 1\n---\n", " ---\na: 1\n---", "---\na: 1\n ---\n",
		"---\na: 1\n----\n", "\n---\na: 1\n---\n", "# T\n---\na: 1\n---\n", "---\na: 1"} {
		if got, err := skills.ParseFrontmatter([]byte(file)); err == nil {
			t.Errorf("%q: got %s", file, got)
		}
	}
	for _, file := range []string{"---\na: 1\n---", "---\na: 1\n--- \t\nbody", "\uFEFF---\na: 1\n---\n",
		"---\r\na: 1\r\n---\r\n"} {
		if got, err := skills.ParseFrontmatter([]byte(file)); string(got) != `{"a":1}` {
			t.Errorf("%q: got %s, %v", file, got, err)
		}
	}
}

// Frontmatter converts to a JSON object, which converts to the same again, because JSON is YAML.
func FuzzFrontmatter(f *testing.F) {
	for _, frontmatter := range []string{"a: 1", "a: &x [1, 2.5, ~, yes]\nb: *x", "a: {b: 'c'}", "a: |\n x",
		"a: \"\\u0085\\ud83d\"", "? a\n: b", "a: 2026-01-02", "<<: 1", "a: 0x1F"} {
		f.Add([]byte("---\n" + frontmatter + "\n---\n"))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		got, err := skills.ParseFrontmatter(file)
		if err != nil {
			return
		}
		var v map[string]any
		if err := jsonv2.Unmarshal(got, &v); err != nil {
			t.Fatalf("%q converts to %s: %v", file, got, err)
		}
		if strings.ContainsAny(string(got), "\u0085\u2028\u2029") {
			return // YAML allows them only as escapes
		}
		again, err := skills.ParseFrontmatter([]byte("---\n" + string(got) + "\n---\n"))
		if err != nil {
			if len(got) > 30_000 { // the limits apply to the first form
				return
			}
			t.Fatalf("%q converts to %s, which is refused: %v", file, got, err)
		}
		var w map[string]any
		if err := jsonv2.Unmarshal(again, &w); err != nil || fmt.Sprint(v) != fmt.Sprint(w) {
			t.Fatalf("%q converts to %s and then to %s", file, got, again)
		}
	})
}

// A valid description keeps its properties when it is encoded and decoded.
func FuzzSkill(f *testing.F) {
	f.Add([]byte(validEntry()))
	f.Add([]byte(`{"uri":"skill://a/SKILL.md","frontmatter":{"name":"a","description":"x"},"resources":"dynamic"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var s, again skills.Skill
		if jsonv2.Unmarshal(raw, &s) != nil || s.URI == "" {
			return
		}
		root := strings.TrimSuffix(s.URI, "SKILL.md")
		if root == s.URI || !strings.HasSuffix(root, "/"+s.Name+"/") || s.Description == "" ||
			s.Dynamic != (len(s.Files) == 0) {
			t.Fatalf("%s decodes to %+v", raw, s)
		}
		seen := map[string]bool{}
		for _, file := range s.Files {
			if !strings.HasPrefix(file.URI, root) || seen[file.Path] || file.Size < 0 ||
				strings.Contains("/"+file.Path+"/", "/../") ||
				strings.HasPrefix(file.Path, "/") || strings.ContainsAny(file.Path, "\\\x00") ||
				strings.Contains(file.Path, "//") {
				t.Fatalf("%s decodes to %+v", raw, file)
			}
			seen[file.Path] = true
		}
		encoded, err := json.Marshal(&s)
		if err != nil {
			t.Fatal(err)
		}
		if err := jsonv2.Unmarshal(encoded, &again); err != nil || again.Fingerprint() != s.Fingerprint() {
			t.Fatalf("%s is encoded as %s: %v", raw, encoded, err)
		}
	})
}
