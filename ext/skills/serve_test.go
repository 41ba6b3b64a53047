package skills_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/skills"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

type listing struct {
	Skills []struct {
		URI         string
		Frontmatter object
		Resources   []struct {
			URI, Digest string
			Size        int
		}
	}
	NextCursor *string
	TTLMs      *int
	CacheScope string
}

const pdf = "skill://pdf/SKILL.md"

// A server declares the extension and resources in every revision.
func TestSkillsAreServedInEveryRevision(t *testing.T) {
	s, _ := serve(t, skillFiles(), nil)
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		got := decode[listing](t, c.Call("skills/list", object{}))
		var lines []string
		for _, skill := range got.Skills {
			line := skill.URI + ":"
			for _, r := range skill.Resources {
				line += fmt.Sprintf(" %s %d", strings.TrimPrefix(r.URI, strings.TrimSuffix(skill.URI, "SKILL.md")),
					r.Size)
				read := decode[struct {
					Contents []struct {
						Text *string
						Blob []byte
					}
				}](t, c.Call("resources/read", object{"uri": r.URI}))
				data := read.Contents[0].Blob
				if text := read.Contents[0].Text; text != nil {
					data = []byte(*text)
				}
				sum := sha256.Sum256(data)
				if len(data) != r.Size || "sha256:"+hex.EncodeToString(sum[:]) != r.Digest {
					t.Errorf("%s: digest and size do not match the contents", r.URI)
				}
			}
			lines = append(lines, line)
		}
		want := []string{
			"skill://acme/billing/refunds/SKILL.md: SKILL.md 71 sub/SKILL.md 57 sub/empty.txt 0",
			"skill://acme/billing/refunds/sub/SKILL.md: SKILL.md 57 empty.txt 0",
			"skill://pdf/SKILL.md: SKILL.md 129 logo.png 5 references/FORMS.md 13 templates/regional/eu%201.md 2",
		}
		if !slices.Equal(lines, want) {
			t.Errorf("got\n%s", strings.Join(lines, "\n"))
		}
		frontmatter := got.Skills[2].Frontmatter
		if fmt.Sprint(frontmatter) != "map[description:Fill in forms license:MIT metadata:map[since:2026-01-02 version:1] name:pdf]" {
			t.Errorf("frontmatter: %v", frontmatter)
		}
		if got.NextCursor != nil || got.TTLMs == nil || *got.TTLMs != 0 || got.CacheScope != "private" {
			t.Errorf("cursor %v, ttlMs %v, cacheScope %q", got.NextCursor, got.TTLMs, got.CacheScope)
		}
		one := c.Call("skills/get", object{"uri": pdf})
		if !strings.Contains(string(one), `"skill":{"uri":"skill://pdf/SKILL.md"`) ||
			!strings.Contains(string(one), `"cacheScope":"private"`) {
			t.Errorf("skills/get: %s", one)
		}
		for _, uri := range []string{"skill://pdf", "skill://pdf/references/FORMS.md", "skill://no/SKILL.md", "",
			"skill://pdf/SKILL.md?"} {
			if _, err := c.Try("skills/get", object{"uri": uri}); err == nil || err.Code != mcp.CodeInvalidParams {
				t.Errorf("skills/get %q: %v", uri, err)
			}
		}
		for _, params := range []object{{}, {"uri": 1}, {"uri": nil}} {
			if _, err := c.Try("skills/get", params); err == nil || err.Code != mcp.CodeInvalidParams {
				t.Errorf("skills/get %v: %v", params, err)
			}
		}
		for _, uri := range []string{"skill://pdf/.env", "skill://README.md", "skill://.git/config",
			"skill://pdf/../README.md"} {
			if _, err := c.Try("resources/read", object{"uri": uri}); err == nil {
				t.Errorf("%s can be read", uri)
			}
		}
	})
}

func TestCapabilityIsDeclaredInEveryRevision(t *testing.T) {
	for _, off := range []bool{false, true} {
		s, _ := serve(t, fstest.MapFS{}, &skills.Options{NoDirectoryRead: off})
		for _, on := range mcptest.Combinations() {
			t.Run(fmt.Sprint(on, " ", off), func(t *testing.T) {
				c := mcptest.Dial(t, s, on, nil)
				has, dirs := skills.Offered(c)
				if !has || dirs == off || c.Capabilities().Resources == nil {
					t.Errorf("got %v %v %v", has, dirs, c.Capabilities())
				}
				if all, err := list(t.Context(), c); len(all) != 0 || err != nil {
					t.Errorf("skills of an empty directory: %v, %v", all, err)
				}
			})
		}
	}
}

type children struct {
	Resources []struct {
		URI, Name, MIMEType, Description string
		Size                             *int
	}
	NextCursor *string
}

func TestDirectoriesAreRead(t *testing.T) {
	files := skillFiles()
	files["pdf/empty"] = &fstest.MapFile{Mode: fs.ModeDir}
	s, _ := serve(t, files, nil)
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		for uri, want := range map[string]string{
			"skill://pdf":                      "SKILL.md:pdf:text/markdown empty:empty:inode/directory logo.png:logo.png:image/png references:references:inode/directory templates:templates:inode/directory",
			"skill://pdf/templates":            "regional:regional:inode/directory",
			"skill://pdf/templates/regional":   "eu%201.md:eu 1.md:text/markdown",
			"skill://pdf/empty":                "",
			"skill://acme":                     "billing:billing:inode/directory",
			"skill://acme/billing/refunds/sub": "SKILL.md:sub:text/markdown empty.txt:empty.txt:text/plain",
			"skill://acme/billing/refunds":     "SKILL.md:refunds:text/markdown sub:sub:inode/directory",
			"skill://acme/billing":             "refunds:refunds:inode/directory",
		} {
			got := decode[children](t, c.Call("resources/directory/read", object{"uri": uri}))
			var names []string
			for _, r := range got.Resources {
				if isDir := r.MIMEType == "inode/directory"; isDir != (r.Size == nil) {
					t.Errorf("%s: size is %v", r.URI, r.Size)
				}
				names = append(names, strings.TrimPrefix(r.URI, uri+"/")+":"+r.Name+":"+r.MIMEType)
			}
			if strings.Join(names, " ") != want || got.Resources == nil {
				t.Errorf("%s: got %q", uri, names)
			}
		}
		for _, uri := range []string{pdf, "skill://pdf/", "skill://no", "skill://", "skill:", "",
			"skill://pdf/../pdf"} {
			if _, err := c.Try("resources/directory/read", object{"uri": uri}); err == nil ||
				err.Code != mcp.CodeInvalidParams {
				t.Errorf("%q: %v", uri, err)
			}
		}
	})
}

func TestListsArePaged(t *testing.T) {
	files := fstest.MapFS{}
	for i := range 7 {
		files[fmt.Sprintf("s%d/SKILL.md", i)] = skillFile(fmt.Sprintf("s%d", i))
		files[fmt.Sprintf("s0/f%d", i)] = &fstest.MapFile{}
	}
	s, _ := serve(t, files, &skills.Options{PageSize: 3, Cache: mcp.Cache{TTL: 7 * time.Millisecond,
		Public: true}})
	c := mcptest.Connect(t, s, mcptest.Combination{Transport: mcptest.InMemory, Revision: mcptest.Modern}, nil)
	for method, want := range map[string][]int{"skills/list": {3, 3, 1}, "resources/directory/read": {3, 3, 2}} {
		params := object{}
		if method != "skills/list" {
			params["uri"] = "skill://s0"
		}
		for i, n := range want {
			page := decode[struct {
				listing
				Resources []object
			}](t, c.Call(method, params))
			if len(page.Skills)+len(page.Resources) != n || (page.NextCursor == nil) != (i == len(want)-1) {
				t.Errorf("%s: page %d has %d and %d, next %v", method, i, len(page.Skills), len(page.Resources),
					page.NextCursor)
			}
			if method == "skills/list" && (*page.TTLMs != 7 || page.CacheScope != "public") {
				t.Errorf("ttlMs %v, cacheScope %v", *page.TTLMs, page.CacheScope)
			}
			if page.NextCursor != nil {
				params["cursor"] = *page.NextCursor
			}
		}
		for _, cursor := range []any{"", "x", "!", 5, "c2tpbGxzL2xpc3Q", strings.Repeat("A", 40000)} {
			params["cursor"] = cursor
			if _, err := c.Try(method, params); err == nil || err.Code != mcp.CodeInvalidParams {
				t.Errorf("%s: cursor %.20v: %v", method, cursor, err)
			}
		}
	}
	if got := string(c.Call("resources/read", object{"uri": "skill://s0/f0"})); !strings.Contains(got, `"ttlMs":7`) ||
		!strings.Contains(got, `"public"`) {
		t.Errorf("resources/read: %s, want ttlMs 7 and public", got)
	}
	// A cursor is valid for one list only.
	next := decode[listing](t, c.Call("skills/list", object{})).NextCursor
	if _, err := c.Try("resources/directory/read", object{"uri": "skill://s0", "cursor": *next}); err == nil {
		t.Error("a cursor of skills/list was accepted for a directory")
	}
	client := dial(t, s)
	if all, err := list(t.Context(), client); len(all) != 7 || err != nil {
		t.Errorf("List returned %d skills, %v; want 7", len(all), err)
	}
	n := 0
	for _, err := range skills.ReadDir(t.Context(), client, "skill://s0/") {
		if n++; err != nil {
			t.Fatal(err)
		}
	}
	if n != 8 {
		t.Errorf("ReadDir returned %d entries, want 8", n)
	}
}

func TestSkillFilesAreResources(t *testing.T) {
	s, _ := serve(t, skillFiles(), nil)
	c := dial(t, s)
	found := map[string]*mcp.Resource{}
	for r, err := range c.Resources(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		found[r.URI] = r
	}
	r := found["skill://acme/billing/refunds/SKILL.md"]
	if len(found) != 7 || r == nil || r.Name != "refunds" || r.Description != "Pay back" ||
		r.MIMEType != "text/markdown" || *r.Size != 71 {
		t.Errorf("got %v, %+v", len(found), r)
	}
}

// A caller who may not see one file of a skill does not see the skill.
func TestVisibleHidesSkills(t *testing.T) {
	s := newServer(t, &mcp.ServerOptions{Visible: func(ctx context.Context, f mcp.Feature) bool {
		hidden := f.Resource != nil && (f.Resource.URI == "skill://acme/billing/refunds/sub/SKILL.md" ||
			f.Resource.URI == "skill://acme/billing/refunds/sub/empty.txt")
		return !hidden || mcp.PrincipalFrom(ctx) != nil
	}})
	if _, err := skills.Serve(s, skillFiles(), &skills.Options{Cache: mcp.Cache{Public: true}}); err != nil {
		t.Fatal(err)
	}
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		got := decode[listing](t, c.Call("skills/list", object{}))
		if len(got.Skills) != 1 || got.Skills[0].URI != pdf || got.CacheScope != "private" {
			t.Errorf("listed: %+v", got)
		}
		for method, uris := range map[string][]string{
			"skills/get": {"skill://acme/billing/refunds/SKILL.md",
				"skill://acme/billing/refunds/sub/SKILL.md"},
			"resources/directory/read": {"skill://acme/billing/refunds/sub"},
			"resources/read":           {"skill://acme/billing/refunds/sub/SKILL.md"},
		} {
			for _, uri := range uris {
				if got, err := c.Try(method, object{"uri": uri}); err == nil || err.Code != mcp.CodeInvalidParams &&
					c.Modern() {
					t.Errorf("%s %s: %s %v", method, uri, got, err)
				}
			}
		}
		if dir := c.Call("resources/directory/read",
			object{"uri": "skill://acme/billing/refunds"}); strings.Contains(string(dir), "sub") {
			t.Errorf("the directory lists a hidden skill: %s", dir)
		}
	})
}

func TestInvalidOptionsPanic(t *testing.T) {
	for _, o := range []skills.Options{
		{Prefix: "skill://acme"}, {Prefix: "acme/"}, {Prefix: "skill:///?/"}, {Prefix: "://"}, {PageSize: -1}, {MaxBytes: -1}, {Cache: mcp.Cache{TTL: -1 * time.Millisecond}},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%+v: no panic", o)
				}
			}()
			_, _ = skills.Serve(newServer(t, nil), skillFiles(), &o)
		}()
	}
}

// Files always match the descriptions, also while they are replaced.
func TestReload(t *testing.T) {
	files := skillFiles()
	s, catalog := serve(t, files, nil)
	on := mcptest.Combination{Transport: mcptest.HTTP, Revision: mcptest.Modern}
	mcptest.RunOn(t, s, []mcptest.Combination{on}, nil, func(t *testing.T, c *mcptest.Client) {
		stop := c.Listen(mcp.SubscriptionFilter{ResourcesListChanged: true,
			ResourceSubscriptions: []string{"skill://pdf/references/FORMS.md"}})
		before := decode[listing](t, c.Call("skills/list", object{})).Skills[2]
		files["pdf/references/FORMS.md"] = &fstest.MapFile{Data: []byte("other"), ModTime: time.Now()}
		files["pdf/new.md"] = &fstest.MapFile{Data: []byte("new")}
		delete(files, "pdf/logo.png")
		if got := string(c.Call("resources/read",
			object{"uri": "skill://pdf/references/FORMS.md"})); strings.Contains(got, "other") {
			t.Errorf("contents do not match the description: %s", got)
		}
		if err := catalog.Reload(); err != nil {
			t.Fatal(err)
		}
		c.Await(1, "notifications/resources/updated")
		c.Await(1, "notifications/resources/list_changed")
		stop()
		after := decode[listing](t, c.Call("skills/list", object{})).Skills[2]
		if len(after.Resources) != 4 || after.Resources[1].URI != "skill://pdf/new.md" ||
			after.Resources[2].Digest == before.Resources[2].Digest {
			t.Errorf("got %+v", after)
		}
		if _, err := c.Try("resources/read", object{"uri": "skill://pdf/logo.png"}); err == nil {
			t.Error("a deleted file can be read")
		}
		if got := string(c.Call("resources/list", object{})); strings.Contains(got, "logo.png") ||
			!strings.Contains(got, "skill://pdf/new.md") {
			t.Errorf("listed: %s", got)
		}
		if got := string(c.Call("resources/read",
			object{"uri": "skill://pdf/references/FORMS.md"})); !strings.Contains(got, "other") {
			t.Errorf("got %s", got)
		}
		// An invalid directory changes nothing.
		files["pdf/SKILL.md"] = &fstest.MapFile{Data: []byte("broken")}
		if err := catalog.Reload(); err == nil {
			t.Error("Reload of an invalid directory returned no error")
		}
		if got := decode[listing](t, c.Call("skills/list", object{})).Skills; len(got) != 3 {
			t.Errorf("got %+v", got)
		}
	})
}
