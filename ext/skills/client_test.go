package skills_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/ext/skills"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

func TestClientReadsSkillsInEveryRevision(t *testing.T) {
	s, catalog := serve(t, skillFiles(), nil)
	for _, on := range mcptest.Combinations() {
		t.Run(on.String(), func(t *testing.T) {
			ctx, c := t.Context(), mcptest.Dial(t, s, on, nil)
			all, err := list(ctx, c)
			if err != nil || len(all) != 3 {
				t.Fatalf("got %v, %v", all, err)
			}
			for i, listed := range all {
				got, err := skills.Get(ctx, c, listed.URI)
				if err != nil || got.Fingerprint() != listed.Fingerprint() ||
					got.Fingerprint() != catalog.Skills()[i].Fingerprint() {
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
			if err != nil || loaded.Body() != "Read references/FORMS.md.\n" ||
				!strings.HasPrefix(loaded.Markdown(), "---\nname") || loaded.Skill() != all[2] {
				t.Fatalf("got %q, %v", loaded.Body(), err)
			}
			forms, err := loaded.Read(ctx, "./references/../references/FORMS.md")
			if string(forms) != "# Forms\r\n\u2028\n" || err != nil {
				t.Errorf("got %q, %v", forms, err)
			}
			if got := loaded.Files("."); !slices.Equal(got,
				[]string{"SKILL.md", "logo.png", "references/", "templates/"}) {
				t.Errorf("got %q", got)
			}
			if got := loaded.Files("templates/"); !slices.Equal(got, []string{"templates/regional/"}) {
				t.Errorf("got %q", got)
			}
			var refused *mcp.Error
			if _, err := skills.Get(ctx, c, "skill://no/SKILL.md"); !errors.As(err, &refused) ||
				refused.Code != mcp.CodeInvalidParams {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestListingAndGettingReadNoFile(t *testing.T) {
	s := newHostileServer()
	c := dial(t, s.serve(t))
	all, err := list(t.Context(), c)
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	if _, err := skills.Get(t.Context(), c, pdf); err != nil {
		t.Fatal(err)
	}
	if got := s.read(); len(got) != 0 {
		t.Errorf("List and Get read %q", got)
	}
	loaded, err := skills.Load(t.Context(), c, all[0], nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.read(); !slices.Equal(got, []string{pdf}) {
		t.Errorf("Load read %q", got)
	}
	// Files are cached, and callers cannot change the cache.
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

func TestGetChecksURI(t *testing.T) {
	c := dial(t, newHostileServer().serve(t))
	if got, err := skills.Get(t.Context(), c, "skill://acme/pdf/SKILL.md"); !errors.Is(err, skills.ErrInvalidEntry) {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestEndlessLists(t *testing.T) {
	for name, pages := range map[string]func(n int) string{
		"the same cursor": func(int) string { return `{"skills":[],"nextCursor":"a"}` },
		"new cursors":     func(n int) string { return fmt.Sprintf(`{"skills":[],"nextCursor":"%d"}`, n) },
		"many items": func(n int) string {
			return fmt.Sprintf(`{"skills":[%s0],"nextCursor":"%d"}`, strings.Repeat("0,", 5000), n)
		},
		"a long cursor": func(int) string {
			return `{"skills":[],"nextCursor":"` + strings.Repeat("a", 100_000) +
				`"}`
		},
		"no list":       func(int) string { return `{"skills":{}}` },
		"no members":    func(int) string { return `{}` },
		"a cursor of 5": func(int) string { return `{"skills":[],"nextCursor":5}` },
	} {
		t.Run(name, func(t *testing.T) {
			s := newHostileServer()
			s.pages = pages
			if _, err := list(t.Context(), dial(t, s.serve(t))); !errors.Is(err, mcp.ErrInvalidResult) {
				t.Errorf("got %.200v", err)
			}
			if name == "the same cursor" && s.requests != 2 {
				t.Errorf("%d requests, want 2", s.requests)
			}
		})
	}
}

func TestReadDirChecksURIs(t *testing.T) {
	s := newHostileServer()
	c := dial(t, s.serve(t))
	for _, uri := range []string{"skill://pdf/a/b/c", "skill://pdf/x", "skill://pdf/a", "skill://pdf/a/..",
		"file:///etc/passwd", "skill://other/a/b", "skill://pdf/a/%2e%2e", ""} {
		s.set(func() {
			s.directory = fmt.Sprintf(`{"resources":[{"uri":"skill://pdf/a/ok","name":"ok"},{"uri":%q,"name":"b"}]}`, uri)
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

// No request is sent to a server that does not declare skills.
func TestErrNotOffered(t *testing.T) {
	for _, settings := range []any{nil, []int{}, "off", object{}, object{"directoryRead": "true"}} {
		s := newServer(t, nil)
		requests := 0
		count := mcp.HandlerFunc(func(context.Context, *mcp.Request) (mcp.Result,
			error) {
			requests++
			return mcp.EmptyResult{}, nil
		})
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
			if !errors.Is(err, skills.ErrNotOffered) ||
				strings.Contains(err.Error(), "does not offer skills") == declared {
				t.Errorf("%v: got %v", settings, err)
			}
		}
		if declared {
			continue
		}
		if _, err := list(t.Context(), c); !errors.Is(err, skills.ErrNotOffered) {
			t.Errorf("got %v", err)
		}
		if _, err := skills.Get(t.Context(), c, pdf); !errors.Is(err, skills.ErrNotOffered) || requests > 0 {
			t.Errorf("got %v, %d requests", err, requests)
		}
	}
}
