package skills_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/ext/skills"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

func TestClientReadsSkillsInEveryRevision(t *testing.T) {
	s, catalog := serve(t, folder(), nil)
	for _, on := range mcptest.Combinations() {
		t.Run(on.String(), func(t *testing.T) {
			ctx, c := t.Context(), mcptest.Dial(t, s, on, nil)
			all, err := list(ctx, c)
			if err != nil || len(all) != 3 {
				t.Fatalf("got %v, %v", all, err)
			}
			for i, listed := range all {
				got, err := skills.Get(ctx, c, listed.URI)
				if err != nil || got.Fingerprint() != listed.Fingerprint() || got.Fingerprint() != catalog.Skills()[i].Fingerprint() {
					t.Fatalf("%s: %v", listed.URI, err)
				}
				loaded, err := skills.Load(ctx, c, got, nil)
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range got.Files {
					data, err := loaded.Read(ctx, f.Path)
					if err != nil || int64(len(data)) != f.Size {
						t.Errorf("%s: %q, %v", f.URI, data, err)
					}
				}
			}
			loaded, err := skills.Load(ctx, c, all[2], nil)
			if err != nil || loaded.Body() != "Read references/FORMS.md.\n" || !strings.HasPrefix(loaded.Markdown(), "---\nname") || loaded.Skill() != all[2] {
				t.Fatalf("got %q, %v", loaded.Body(), err)
			}
			forms, err := loaded.Read(ctx, "./references/../references/FORMS.md")
			if string(forms) != "# Forms\r\n\u2028\n" || err != nil {
				t.Errorf("got %q, %v", forms, err)
			}
			if got := loaded.Files("."); !slices.Equal(got, []string{"SKILL.md", "logo.png", "references/", "templates/"}) {
				t.Errorf("got %q", got)
			}
			if got := loaded.Files("templates/"); !slices.Equal(got, []string{"templates/regional/"}) {
				t.Errorf("got %q", got)
			}
			var refused *mcp.Error
			if _, err := skills.Get(ctx, c, "skill://no/SKILL.md"); !errors.As(err, &refused) || refused.Code != mcp.CodeInvalidParams {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A stranger is a server that says of its skills what it likes.
type stranger struct {
	mu      sync.Mutex
	entry   string            // of its one skill
	files   map[string]string // by URI
	reads   []string
	asked   int
	pages   func(n int) string // the result of skills/list, instead of the one skill
	folder  string             // the result of resources/directory/read
	uriSaid string             // of every file; its own if empty
	cache   mcp.Cache
}

const (
	mainText = "---\nname: pdf\ndescription: Fill in forms\n---\nBody\n"
	formText = "Forms"
	formURI  = "skill://pdf/references/FORMS.md"
)

func sum(text string) string {
	d := sha256.Sum256([]byte(text))
	return "sha256:" + hex.EncodeToString(d[:])
}

func fileEntry(uri, text string) string {
	return fmt.Sprintf(`{"uri":%q,"digest":%q,"size":%d}`, uri, sum(text), len(text))
}

// honest is the description of a skill with two files.
func honest() string {
	return `{"uri":"skill://pdf/SKILL.md","frontmatter":{"description":"Fill in forms","name":"pdf"},"resources":[` +
		fileEntry(pdf, mainText) + `,` + fileEntry(formURI, formText) + `]}`
}

func newStranger() *stranger {
	return &stranger{entry: honest(), files: map[string]string{pdf: mainText, formURI: formText}}
}

// serve gives the stranger as a server.
func (s *stranger) serve(t *testing.T) *mcp.Server {
	server := newServer(t, nil)
	server.AddExtension(skills.ID, map[string]bool{"directoryRead": true})
	answer := func(result func() string) mcp.Handler {
		return mcp.HandlerFunc(func(context.Context, *mcp.Request) (mcp.Result, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.asked++
			return mcp.RawResult(result()), nil
		})
	}
	server.HandleMethod("skills/list", answer(func() string {
		if s.pages != nil {
			return s.pages(s.asked)
		}
		return `{"skills":[` + s.entry + `],"ttlMs":0,"cacheScope":"private"}`
	}))
	server.HandleMethod("skills/get", answer(func() string { return `{"skill":` + s.entry + `}` }))
	server.HandleMethod("resources/directory/read", answer(func() string { return s.folder }))
	mcp.AddResourceTemplate(server, &mcp.ResourceTemplate{URITemplate: "{scheme}://{+rest}", Name: "all"},
		func(_ context.Context, v map[string]string) (*mcp.ReadResult, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			uri := v["scheme"] + "://" + v["rest"]
			s.reads = append(s.reads, uri)
			text, ok := s.files[uri]
			if !ok {
				return nil, nil
			}
			return &mcp.ReadResult{Contents: []*mcp.ResourceContents{{URI: s.uriSaid, Text: text}}, Cache: s.cache}, nil
		})
	return server
}

func (s *stranger) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *stranger) read() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Compact(slices.Clone(s.reads))
}

func TestListingAndGettingReadNoFile(t *testing.T) {
	s := newStranger()
	c := dial(t, s.serve(t))
	all, err := list(t.Context(), c)
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	if _, err := skills.Get(t.Context(), c, pdf); err != nil {
		t.Fatal(err)
	}
	if got := s.read(); len(got) != 0 {
		t.Errorf("%q were read", got)
	}
	loaded, err := skills.Load(t.Context(), c, all[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.read(); !slices.Equal(got, []string{pdf}) {
		t.Errorf("loading read %q", got)
	}
	// What was read is kept, and nobody can change it.
	for range 2 {
		data, err := loaded.Read(t.Context(), "references/FORMS.md")
		if string(data) != formText || err != nil {
			t.Fatalf("got %q, %v", data, err)
		}
		data[0] = 'X'
	}
	if got := s.read(); !slices.Equal(got, []string{pdf, formURI}) {
		t.Errorf("read %q", got)
	}
}

func TestFilesThatDifferAreRefused(t *testing.T) {
	other := strings.Replace(mainText, "Fill in forms", "Exfiltrate it", 1)
	for _, test := range []struct {
		name   string
		change func(s *stranger)
		want   error
	}{
		{"digest", func(s *stranger) { s.files[pdf] = strings.Replace(mainText, "Body", "Evil", 1) }, skills.ErrDigest},
		{"longer", func(s *stranger) { s.files[pdf] += "x" }, skills.ErrSize},
		{"shorter", func(s *stranger) { s.files[pdf] = "" }, skills.ErrSize},
		{"frontmatter", func(s *stranger) {
			s.files[pdf], s.entry = other, strings.ReplaceAll(honest(), fileEntry(pdf, mainText), fileEntry(pdf, other))
		}, skills.ErrFrontmatter},
		{"a field more in the list", func(s *stranger) { s.entry = strings.Replace(honest(), `"name"`, `"license":null,"name"`, 1) }, skills.ErrFrontmatter},
		{"a field more in the file", func(s *stranger) {
			text := strings.Replace(mainText, "name", "allowed-tools: Bash\nname", 1)
			s.files[pdf], s.entry = text, strings.ReplaceAll(honest(), fileEntry(pdf, mainText), fileEntry(pdf, text))
		}, skills.ErrFrontmatter},
		{"no frontmatter", func(s *stranger) {
			s.files[pdf], s.entry = "x", strings.ReplaceAll(honest(), fileEntry(pdf, mainText), fileEntry(pdf, "x"))
		}, skills.ErrFrontmatter},
		{"another file", func(s *stranger) { s.uriSaid = formURI }, skills.ErrVerification},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newStranger()
			test.change(s)
			c := dial(t, s.serve(t))
			skill, err := skills.Get(t.Context(), c, pdf)
			if err != nil {
				t.Fatal(err)
			}
			loaded, err := skills.Load(t.Context(), c, skill, nil)
			if !errors.Is(err, test.want) || !errors.Is(err, skills.ErrVerification) || loaded != nil {
				t.Errorf("got %v, %v", loaded, err)
			}
			if got := s.read(); !slices.Equal(got, []string{pdf}) {
				t.Errorf("read %q", got)
			}
		})
	}
}

func TestFilesThatAreNotListedAreNotAskedFor(t *testing.T) {
	s := newStranger()
	s.files["skill://pdf/new.md"] = "new"
	c := dial(t, s.serve(t))
	skill, err := skills.Get(t.Context(), c, pdf)
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := skills.Load(t.Context(), c, skill, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"new.md", "references", "../pdf/SKILL.md", "/SKILL.md", "", ".", "..", "references/FORMS.md/", "REFERENCES/forms.md",
		formURI, "file:///etc/passwd", "references\\FORMS.md", "SKILL.md\x00", "references/%46ORMS.md"} {
		if name == "references/FORMS.md/" { // a slash at the end is cleaned away
			continue
		}
		if data, err := loaded.Read(t.Context(), name); !errors.Is(err, skills.ErrUnlisted) {
			t.Errorf("%q: %q, %v", name, data, err)
		}
	}
	if got := s.read(); !slices.Equal(got, []string{pdf}) {
		t.Errorf("read %q", got)
	}
	// A supporting file that was swapped is refused as well.
	s.set(func() { s.files[formURI] = "Forma" })
	if _, err := loaded.Read(t.Context(), "references/FORMS.md"); !errors.Is(err, skills.ErrDigest) {
		t.Errorf("got %v", err)
	}
}

// An answer that the client has kept is not held against a newer description.
func TestKeptAnswersAreReadAgain(t *testing.T) {
	s := newStranger()
	s.cache = mcp.Cache{TTLMs: 3600_000, Scope: mcp.CachePrivate}
	c := dial(t, s.serve(t))
	if _, err := c.ReadResource(t.Context(), pdf); err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(mainText, "Body", "News", 1)
	s.set(func() {
		s.files[pdf], s.entry = text, strings.ReplaceAll(honest(), fileEntry(pdf, mainText), fileEntry(pdf, text))
	})
	skill, err := skills.Get(t.Context(), c, pdf)
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := skills.Load(t.Context(), c, skill, nil)
	if err != nil || loaded.Body() != "News\n" {
		t.Errorf("got %v", err)
	}
}

func TestDescriptionsThatBreakTheRules(t *testing.T) {
	front := `"frontmatter":{"name":"pdf","description":"x"}`
	one := fileEntry(pdf, mainText)
	entry := func(uri, front, resources string) string {
		return `{"uri":"` + uri + `",` + front + `,"resources":` + resources + `}`
	}
	for name, text := range map[string]string{
		"no object":           `5`,
		"null":                `null`,
		"no URI":              `{` + front + `,"resources":[` + one + `]}`,
		"no resources":        `{"uri":"` + pdf + `",` + front + `}`,
		"resources null":      entry(pdf, front, `null`),
		"resources text":      entry(pdf, front, `"static"`),
		"resources object":    entry(pdf, front, `{}`),
		"empty":               entry(pdf, front, `[]`),
		"without SKILL.md":    entry(pdf, front, `[`+fileEntry(formURI, "")+`]`),
		"twice":               entry(pdf, front, `[`+one+`,`+one+`]`),
		"twice by escapes":    entry(pdf, front, `[`+one+`,`+fileEntry("skill://pdf/a", "")+`,`+fileEntry("skill://pdf/%61", "")+`]`),
		"no frontmatter":      `{"uri":"` + pdf + `","resources":[` + one + `]}`,
		"frontmatter is list": entry(pdf, `"frontmatter":[]`, `[`+one+`]`),
		"no name":             entry(pdf, `"frontmatter":{"description":"x"}`, `[`+one+`]`),
		"name is number":      entry(pdf, `"frontmatter":{"name":5,"description":"x"}`, `[`+one+`]`),
		"another name":        entry(pdf, `"frontmatter":{"name":"other","description":"x"}`, `[`+one+`]`),
		"no description":      entry(pdf, `"frontmatter":{"name":"pdf"}`, `[`+one+`]`),
		"no SKILL.md":         entry("skill://pdf", front, `[`+one+`]`),
		"other file":          entry("skill://pdf/skill.md", front, `[`+one+`]`),
		"query":               entry("skill://pdf/SKILL.md?x=/pdf/SKILL.md", front, `[`+one+`]`),
		"no scheme":           entry("pdf/SKILL.md", front, `[`+one+`]`),
		"long URI":            entry("skill://"+strings.Repeat("a/", 5000)+"pdf/SKILL.md", front, `"dynamic"`),
		"size missing":        entry(pdf, front, `[{"uri":"`+pdf+`","digest":"`+sum("")+`"}]`),
		"size negative":       entry(pdf, front, `[{"uri":"`+pdf+`","digest":"`+sum("")+`","size":-1}]`),
		"size text":           entry(pdf, front, `[{"uri":"`+pdf+`","digest":"`+sum("")+`","size":"1"}]`),
		"size broken":         entry(pdf, front, `[{"uri":"`+pdf+`","digest":"`+sum("")+`","size":1.5}]`),
		"digest missing":      entry(pdf, front, `[{"uri":"`+pdf+`","size":1}]`),
		"digest short":        entry(pdf, front, `[{"uri":"`+pdf+`","digest":"sha256:abc","size":1}]`),
		"digest in capitals":  entry(pdf, front, `[{"uri":"`+pdf+`","digest":"`+strings.ToUpper(sum(""))+`","size":1}]`),
		"digest of md5":       entry(pdf, front, `[{"uri":"`+pdf+`","digest":"md5:`+strings.Repeat("0", 64)+`","size":1}]`),
	} {
		t.Run(name, func(t *testing.T) { refuses(t, text) })
	}
	for _, uri := range []string{"skill://other/x", "skill://pdf/../other/x", "skill://pdf/%2e%2e/x", "skill://pdf/a//b", "skill://pdf/a/", "skill://pdf/",
		"skill://pdf/a%2fb", "skill://pdf/a%5Cb", "skill://pdf/a%00", "skill://pdf/a%0a", "skill://pdf/a?b", "skill://pdf/a#b", "skill://pdf/.", "skill://pdf/%zz",
		"skill://pdf/%ff", "file:///etc/passwd", "file:/etc/passwd", "skill://pdfx/a", "SKILL://pdf/a", "a"} {
		t.Run(uri, func(t *testing.T) { refuses(t, entry(pdf, front, `[`+one+`,`+fileEntry(uri, "")+`]`)) })
	}
}

// refuses checks that a description is refused wherever it comes from, and that a list goes on behind it.
func refuses(t *testing.T, entry string) {
	t.Helper()
	var skill skills.Skill
	if err := json.Unmarshal([]byte(entry), &skill); err == nil || !errors.Is(err, skills.ErrInvalidEntry) && entry != "null" {
		t.Errorf("kept: %v", err)
	}
	s := newStranger()
	s.pages = func(int) string { return `{"skills":[` + entry + `,` + honest() + `]}` }
	s.entry = entry
	c := dial(t, s.serve(t))
	if all, err := list(t.Context(), c); !errors.Is(err, skills.ErrInvalidEntry) || len(all) != 1 {
		t.Errorf("listed: %v, %v", all, err)
	}
	if got, err := skills.Get(t.Context(), c, pdf); !errors.Is(err, skills.ErrInvalidEntry) {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestGetWantsTheSkillItAskedFor(t *testing.T) {
	c := dial(t, newStranger().serve(t))
	if got, err := skills.Get(t.Context(), c, "skill://acme/pdf/SKILL.md"); !errors.Is(err, skills.ErrInvalidEntry) {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestDynamicSkills(t *testing.T) {
	s := newStranger()
	s.entry = `{"uri":"skill://pdf/SKILL.md","frontmatter":{"name":"pdf","description":"Fill in forms"},"resources":"dynamic"}`
	c := dial(t, s.serve(t))
	skill, err := skills.Get(t.Context(), c, pdf)
	if err != nil || !skill.Dynamic || skill.Fingerprint() != "" {
		t.Fatal(skill, err)
	}
	if _, err := skills.Load(t.Context(), c, skill, nil); !errors.Is(err, skills.ErrDynamic) || len(s.read()) > 0 {
		t.Errorf("got %v, read %q", err, s.read())
	}
	loaded, err := skills.Load(t.Context(), c, skill, &skills.LoadOptions{InsecureDynamic: true})
	if err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]string{"one": "one", "two": "two"} {
		s.set(func() { s.files[formURI] = change })
		if data, err := loaded.Read(t.Context(), "references/FORMS.md"); string(data) != want || err != nil {
			t.Errorf("got %q, %v", data, err)
		}
	}
	if _, err := loaded.Read(t.Context(), "../other/x"); !errors.Is(err, skills.ErrUnlisted) {
		t.Errorf("got %v", err)
	}
	s.set(func() { s.files["skill://pdf/big"] = strings.Repeat("x", skills.MaxBytes/2) })
	for i := range 3 {
		_, err := loaded.Read(t.Context(), "big")
		if tooMuch := errors.Is(err, skills.ErrTooLarge); tooMuch != (i > 0) {
			t.Errorf("read %d: %v", i, err)
		}
	}
	s.set(func() { s.files[pdf] = strings.Replace(mainText, "Fill", "Tear", 1) })
	if _, err := skills.Load(t.Context(), c, skill, &skills.LoadOptions{InsecureDynamic: true}); !errors.Is(err, skills.ErrFrontmatter) {
		t.Errorf("got %v", err)
	}
}

func TestSkillsThatAreTooLargeAreNotLoaded(t *testing.T) {
	s := newStranger()
	huge := `{"uri":"skill://pdf/huge","digest":"` + sum("") + `","size":9007199254740991}`
	entries := []string{strings.Replace(honest(), "]}", ","+huge+","+strings.Replace(huge, "huge", "more", 1)+"]}", 1)}
	many := ""
	for i := range skills.MaxFiles {
		many += "," + fileEntry(fmt.Sprintf("skill://pdf/%d", i), "")
	}
	entries = append(entries, strings.Replace(honest(), "]}", many+"]}", 1))
	c := dial(t, s.serve(t))
	for _, entry := range entries {
		s.set(func() { s.entry = entry })
		skill, err := skills.Get(t.Context(), c, pdf)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := skills.Load(t.Context(), c, skill, nil); !errors.Is(err, skills.ErrTooLarge) || len(s.read()) > 0 {
			t.Errorf("got %v, read %q", err, s.read())
		}
	}
}

func TestListsThatDoNotEnd(t *testing.T) {
	for name, pages := range map[string]func(n int) string{
		"the same cursor": func(int) string { return `{"skills":[],"nextCursor":"a"}` },
		"new cursors":     func(n int) string { return fmt.Sprintf(`{"skills":[],"nextCursor":"%d"}`, n) },
		"many items": func(n int) string {
			return fmt.Sprintf(`{"skills":[%s0],"nextCursor":"%d"}`, strings.Repeat("0,", 5000), n)
		},
		"a long cursor": func(int) string { return `{"skills":[],"nextCursor":"` + strings.Repeat("a", 100_000) + `"}` },
		"no list":       func(int) string { return `{"skills":{}}` },
		"nothing":       func(int) string { return `{}` },
		"a cursor of 5": func(int) string { return `{"skills":[],"nextCursor":5}` },
	} {
		t.Run(name, func(t *testing.T) {
			s := newStranger()
			s.pages = pages
			if _, err := list(t.Context(), dial(t, s.serve(t))); !errors.Is(err, mcp.ErrInvalidResult) {
				t.Errorf("got %.200v", err)
			}
			if name == "the same cursor" && s.asked != 2 {
				t.Errorf("asked %d times", s.asked)
			}
		})
	}
}

func TestFoldersHoldOnlyWhatIsInThem(t *testing.T) {
	s := newStranger()
	c := dial(t, s.serve(t))
	for _, uri := range []string{"skill://pdf/a/b/c", "skill://pdf/x", "skill://pdf/a", "skill://pdf/a/..", "file:///etc/passwd", "skill://other/a/b", "skill://pdf/a/%2e%2e", ""} {
		s.set(func() {
			s.folder = fmt.Sprintf(`{"resources":[{"uri":"skill://pdf/a/ok","name":"ok"},{"uri":%q,"name":"b"}]}`, uri)
		})
		n := 0
		var last error
		for _, last = range skills.ReadDir(t.Context(), c, "skill://pdf/a") {
			n++
		}
		if n != 2 || !errors.Is(last, mcp.ErrInvalidResult) {
			t.Errorf("%q: %d, %v", uri, n, last)
		}
	}
}

// A server is asked for skills only if it declares them.
func TestServersWithoutSkillsAreNotAsked(t *testing.T) {
	for _, settings := range []any{nil, []int{}, "off", object{}, object{"directoryRead": "true"}} {
		s := newServer(t, nil)
		asked := 0
		count := mcp.HandlerFunc(func(context.Context, *mcp.Request) (mcp.Result, error) { asked++; return mcp.EmptyResult{}, nil })
		s.HandleMethod("skills/list", count)
		s.HandleMethod("skills/get", count)
		s.HandleMethod("resources/directory/read", count)
		declared := false
		if m, ok := settings.(object); ok {
			s.AddExtension(skills.ID, m)
			declared = true
		}
		c := dial(t, s)
		if has, dirs := skills.Offered(c); has != declared || dirs {
			t.Errorf("%v: got %v, %v", settings, has, dirs)
		}
		for _, err := range skills.ReadDir(t.Context(), c, "skill://pdf") {
			if !errors.Is(err, skills.ErrNotOffered) {
				t.Errorf("got %v", err)
			}
		}
		if declared {
			continue
		}
		if _, err := list(t.Context(), c); !errors.Is(err, skills.ErrNotOffered) {
			t.Errorf("got %v", err)
		}
		if _, err := skills.Get(t.Context(), c, pdf); !errors.Is(err, skills.ErrNotOffered) || asked > 0 {
			t.Errorf("got %v, asked %d", err, asked)
		}
	}
}

// A skill can be kept, and consent to it is another as soon as anything is.
func TestSkillsCanBeKept(t *testing.T) {
	var skill, again skills.Skill
	if err := json.Unmarshal([]byte(honest()), &skill); err != nil {
		t.Fatal(err)
	}
	kept, err := json.Marshal(&skill)
	if err != nil {
		t.Fatal(err)
	}
	if err := stdjson.Unmarshal(kept, &again); err != nil || again.Fingerprint() != skill.Fingerprint() || string(again.Frontmatter) != string(skill.Frontmatter) {
		t.Errorf("got %s, %v", kept, err)
	}
	seen := map[string]bool{skill.Fingerprint(): true}
	for _, change := range [][2]string{
		{sum(formText), sum("x")}, {"," + fileEntry(formURI, formText), ""}, {"]}", "," + fileEntry("skill://pdf/a", "") + "]}"}, {"FORMS", "forms"},
		{"skill://pdf/", "skill://x/pdf/"}, {fmt.Sprintf(`"size":%d`, len(formText)), `"size":6`},
	} {
		var other skills.Skill
		if err := json.Unmarshal([]byte(strings.ReplaceAll(honest(), change[0], change[1])), &other); err != nil {
			t.Fatal(change, err)
		}
		if seen[other.Fingerprint()] {
			t.Errorf("%q does not change the fingerprint", change)
		}
		seen[other.Fingerprint()] = true
	}
	var swapped skills.Skill // the order says nothing
	if err := json.Unmarshal([]byte(strings.Replace(honest(), fileEntry(pdf, mainText)+","+fileEntry(formURI, formText),
		fileEntry(formURI, formText)+","+fileEntry(pdf, mainText), 1)), &swapped); err != nil || swapped.Fingerprint() != skill.Fingerprint() {
		t.Errorf("the order of the files changes the fingerprint: %v", err)
	}
}
