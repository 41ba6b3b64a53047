package skills_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/ext/skills"
)

func TestInvalidDescriptions(t *testing.T) {
	frontmatter := `"frontmatter":{"name":"pdf","description":"x"}`
	one := fileEntry(pdf, mainText)
	entry := func(uri, frontmatter, resources string) string {
		return `{"uri":"` + uri + `",` + frontmatter + `,"resources":` + resources + `}`
	}
	for name, text := range map[string]string{
		"no object":        `5`,
		"null":             `null`,
		"no URI":           `{` + frontmatter + `,"resources":[` + one + `]}`,
		"no resources":     `{"uri":"` + pdf + `",` + frontmatter + `}`,
		"resources null":   entry(pdf, frontmatter, `null`),
		"resources text":   entry(pdf, frontmatter, `"static"`),
		"resources object": entry(pdf, frontmatter, `{}`),
		"empty":            entry(pdf, frontmatter, `[]`),
		"without SKILL.md": entry(pdf, frontmatter, `[`+fileEntry(formURI, "")+`]`),
		"twice":            entry(pdf, frontmatter, `[`+one+`,`+one+`]`),
		"twice by escapes": entry(pdf, frontmatter, `[`+one+`,`+fileEntry("skill://pdf/a",
			"")+`,`+fileEntry("skill://pdf/%61", "")+`]`),
		"no frontmatter":       `{"uri":"` + pdf + `","resources":[` + one + `]}`,
		"frontmatter is list":  entry(pdf, `"frontmatter":[]`, `[`+one+`]`),
		"no name":              entry(pdf, `"frontmatter":{"description":"x"}`, `[`+one+`]`),
		"name is number":       entry(pdf, `"frontmatter":{"name":5,"description":"x"}`, `[`+one+`]`),
		"another name":         entry(pdf, `"frontmatter":{"name":"other","description":"x"}`, `[`+one+`]`),
		"no description":       entry(pdf, `"frontmatter":{"name":"pdf"}`, `[`+one+`]`),
		"no SKILL.md":          entry("skill://pdf", frontmatter, `[`+one+`]`),
		"other file":           entry("skill://pdf/skill.md", frontmatter, `[`+one+`]`),
		"query":                entry("skill://pdf/SKILL.md?x=/pdf/SKILL.md", frontmatter, `[`+one+`]`),
		"no scheme":            entry("pdf/SKILL.md", frontmatter, `[`+one+`]`),
		"long URI":             entry("skill://"+strings.Repeat("a/", 5000)+"pdf/SKILL.md", frontmatter, `"dynamic"`),
		"size missing":         entry(pdf, frontmatter, `[{"uri":"`+pdf+`","digest":"`+sum("")+`"}]`),
		"size negative":        entry(pdf, frontmatter, `[{"uri":"`+pdf+`","digest":"`+sum("")+`","size":-1}]`),
		"size text":            entry(pdf, frontmatter, `[{"uri":"`+pdf+`","digest":"`+sum("")+`","size":"1"}]`),
		"size with a fraction": entry(pdf, frontmatter, `[{"uri":"`+pdf+`","digest":"`+sum("")+`","size":1.5}]`),
		"digest missing":       entry(pdf, frontmatter, `[{"uri":"`+pdf+`","size":1}]`),
		"digest short":         entry(pdf, frontmatter, `[{"uri":"`+pdf+`","digest":"sha256:abc","size":1}]`),
		"digest in capitals": entry(pdf, frontmatter,
			`[{"uri":"`+pdf+`","digest":"`+strings.ToUpper(sum(""))+`","size":1}]`),
		"digest of md5": entry(pdf, frontmatter, `[{"uri":"`+pdf+`","digest":"md5:`+strings.Repeat("0",
			64)+`","size":1}]`),
	} {
		t.Run(name, func(t *testing.T) { wantRefused(t, text) })
	}
	for _, uri := range []string{"skill://other/x", "skill://pdf/../other/x", "skill://pdf/%2e%2e/x",
		"skill://pdf/a//b", "skill://pdf/a/", "skill://pdf/",
		"skill://pdf/a%2fb", "skill://pdf/a%5Cb", "skill://pdf/a%E2%80%AEb", "skill://pdf/a\u2066b", "skill://pdf/a%E2%80%8Fb", "skill://pdf/a%E2%80%A8b", "skill://pdf/a%00", "skill://pdf/a%0a", "skill://pdf/a?b", "skill://pdf/a#b", "skill://pdf/.", "skill://pdf/%zz",
		"skill://pdf/%ff", "file:///etc/passwd", "file:/etc/passwd", "skill://pdfx/a", "SKILL://pdf/a", "a"} {
		t.Run(uri, func(t *testing.T) { wantRefused(t, entry(pdf, frontmatter, `[`+one+`,`+fileEntry(uri, "")+`]`)) })
	}
}

// wantRefused checks that Get, List and UnmarshalJSON refuse a description, and that the list
// continues.
func wantRefused(t *testing.T, entry string) {
	t.Helper()
	var skill skills.Skill
	if err := jsonv2.Unmarshal([]byte(entry), &skill); err == nil || !errors.Is(err, skills.ErrInvalidEntry) &&
		entry != "null" {
		t.Errorf("UnmarshalJSON: %v", err)
	}
	s := newHostileServer()
	s.pages = func(int) string { return `{"skills":[` + entry + `,` + validEntry() + `]}` }
	s.entry = entry
	c := dial(t, s.serve(t))
	if all, err := list(t.Context(), c); !errors.Is(err, skills.ErrInvalidEntry) || len(all) != 1 {
		t.Errorf("List: %v, %v", all, err)
	}
	if got, err := skills.Get(t.Context(), c, pdf); !errors.Is(err, skills.ErrInvalidEntry) {
		t.Errorf("got %v, %v", got, err)
	}
}

// A skill can be stored as JSON, and its fingerprint changes with any file.
func TestSkillJSON(t *testing.T) {
	var skill, again skills.Skill
	if err := jsonv2.Unmarshal([]byte(validEntry()), &skill); err != nil {
		t.Fatal(err)
	}
	encoded, err := jsonv2.Marshal(&skill)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(encoded, &again); err != nil || again.Fingerprint() != skill.Fingerprint() ||
		string(again.Frontmatter) != string(skill.Frontmatter) {
		t.Errorf("got %s, %v", encoded, err)
	}
	seen := map[string]bool{skill.Fingerprint(): true}
	for _, change := range [][2]string{
		{sum(formText), sum("x")}, {"," + fileEntry(formURI, formText), ""}, {"]}",
			"," + fileEntry("skill://pdf/a", "") + "]}"}, {"FORMS", "forms"},
		{"skill://pdf/", "skill://x/pdf/"}, {fmt.Sprintf(`"size":%d`, len(formText)), `"size":6`},
	} {
		var other skills.Skill
		if err := jsonv2.Unmarshal([]byte(strings.ReplaceAll(validEntry(), change[0], change[1])), &other); err != nil {
			t.Fatal(change, err)
		}
		if seen[other.Fingerprint()] {
			t.Errorf("%q does not change the fingerprint", change)
		}
		seen[other.Fingerprint()] = true
	}
	var swapped skills.Skill // the order does not matter
	if err := jsonv2.Unmarshal([]byte(strings.Replace(validEntry(),
		fileEntry(pdf, mainText)+","+fileEntry(formURI, formText),
		fileEntry(formURI, formText)+","+fileEntry(pdf,
			mainText), 1)), &swapped); err != nil || swapped.Fingerprint() != skill.Fingerprint() {
		t.Errorf("the order of the files changes the fingerprint: %v", err)
	}
}
