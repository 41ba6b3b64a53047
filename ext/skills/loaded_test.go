package skills_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/skills"
	"github.com/patchbay-mcp/patchbay/mcp"
)

func TestFilesAreVerified(t *testing.T) {
	other := strings.Replace(mainText, "Fill in forms", "Exfiltrate it", 1)
	for _, test := range []struct {
		name   string
		change func(s *hostileServer)
		want   error
	}{
		{"digest", func(s *hostileServer) { s.files[pdf] = strings.Replace(mainText, "Body", "Evil", 1) },
			skills.ErrDigest},
		{"longer", func(s *hostileServer) { s.files[pdf] += "x" }, skills.ErrSize},
		{"shorter", func(s *hostileServer) { s.files[pdf] = "" }, skills.ErrSize},
		{"frontmatter", func(s *hostileServer) {
			s.files[pdf], s.entry = other, strings.ReplaceAll(validEntry(), fileEntry(pdf, mainText), fileEntry(pdf, other))
		}, skills.ErrFrontmatter},
		{"an extra field in the list", func(s *hostileServer) {
			s.entry = strings.Replace(validEntry(), `"name"`,
				`"license":null,"name"`, 1)
		}, skills.ErrFrontmatter},
		{"an extra field in the file", func(s *hostileServer) {
			text := strings.Replace(mainText, "name", "allowed-tools: Bash\nname", 1)
			s.files[pdf], s.entry = text, strings.ReplaceAll(validEntry(), fileEntry(pdf, mainText), fileEntry(pdf, text))
		}, skills.ErrFrontmatter},
		{"no frontmatter", func(s *hostileServer) {
			s.files[pdf], s.entry = "x", strings.ReplaceAll(validEntry(), fileEntry(pdf, mainText), fileEntry(pdf, "x"))
		}, skills.ErrFrontmatter},
		{"another URI", func(s *hostileServer) { s.responseURI = formURI }, skills.ErrVerification},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newHostileServer()
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

func TestUnlistedFilesAreNotRequested(t *testing.T) {
	s := newHostileServer()
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
	for _, name := range []string{"new.md", "references", "../pdf/SKILL.md", "/SKILL.md", "", ".", "..",
		"REFERENCES/forms.md",
		formURI, "file:///etc/passwd", "references\\FORMS.md", "SKILL.md\x00", "references/%46ORMS.md"} {
		data, err := loaded.Read(t.Context(), name)
		if !errors.Is(err, skills.ErrUnlisted) || !errors.Is(err, skills.ErrVerification) {
			t.Errorf("%q: %q, %v", name, data, err)
		}
	}
	if got := s.read(); !slices.Equal(got, []string{pdf}) {
		t.Errorf("read %q", got)
	}
	// A replaced file is refused.
	s.set(func() { s.files[formURI] = "Forma" })
	if _, err := loaded.Read(t.Context(), "references/FORMS.md"); !errors.Is(err, skills.ErrDigest) {
		t.Errorf("got %v", err)
	}
}

// A stale cached response does not fail the verification.
func TestStaleCachedFilesAreReadAgain(t *testing.T) {
	s := newHostileServer()
	s.cache = mcp.Cache{TTL: 3600_000 * time.Millisecond}
	c := dial(t, s.serve(t))
	if _, err := c.ReadResource(t.Context(), pdf); err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(mainText, "Body", "News", 1)
	s.set(func() {
		s.files[pdf], s.entry = text, strings.ReplaceAll(validEntry(), fileEntry(pdf, mainText), fileEntry(pdf, text))
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

func TestDynamicSkills(t *testing.T) {
	s := newHostileServer()
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
	if _, err := skills.Load(t.Context(), c, skill, &skills.LoadOptions{InsecureDynamic: true}); !errors.Is(err,
		skills.ErrFrontmatter) {
		t.Errorf("got %v", err)
	}
}

func TestTooLargeSkillsAreNotLoaded(t *testing.T) {
	s := newHostileServer()
	huge := `{"uri":"skill://pdf/huge","digest":"` + sum("") + `","size":9007199254740991}`
	entries := []string{strings.Replace(validEntry(), "]}", ","+huge+","+strings.Replace(huge, "huge", "more", 1)+"]}", 1)}
	many := ""
	for i := range skills.MaxFiles {
		many += "," + fileEntry(fmt.Sprintf("skill://pdf/%d", i), "")
	}
	entries = append(entries, strings.Replace(validEntry(), "]}", many+"]}", 1))
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
