package host_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/patchbay-mcp/patchbay/ext/apps"
	"github.com/patchbay-mcp/patchbay/ext/skills"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// newPages returns a server with a page for its tool "roll", and two tools for pages.
func newPages(name, own string) *mcp.Server {
	s := mcp.NewServer(name, "1.0.0", nil)
	views := apps.New(s)
	views.Add(&apps.View{URI: "ui://dice/die", Name: "die"}, "<!DOCTYPE html><title>"+name+"</title>")
	tool := func(tool string, ui *apps.ToolUI) {
		mcp.AddTool(s, views.WithUI(&mcp.Tool{Name: tool}, ui), func(context.Context, struct{}) (string, error) {
			return tool + " of " + name, nil
		})
	}
	tool("roll", &apps.ToolUI{View: "ui://dice/die"})
	tool("both", &apps.ToolUI{Visibility: []apps.Visibility{apps.VisibilityApp}})
	tool(own, &apps.ToolUI{Visibility: []apps.Visibility{apps.VisibilityApp}})
	return s
}

// The tools of each server have its own page, which calls its tools by the names that it knows.
func TestPagesOfAllServers(t *testing.T) {
	forEachPair(t, func(t *testing.T, up, down mcptest.Combination) {
		if !up.Since("2025-11-25") || !down.Since("2025-11-25") {
			return // has no extensions
		}
		h := openHost(t, map[string]mcp.Handler{"a": newPages("a", "one"), "b": newPages("b", "two")}, up, "{}", "", nil)
		c := mcptest.Dial(t, h.For(&policy.Caller{}), down, apps.Declare(nil))
		pages := apps.NewHost(c, nil)
		for _, name := range []string{"a", "b"} {
			p, err := pages.Page(t.Context(), name+"__roll")
			if err != nil || !strings.Contains(string(p.HTML), "<title>"+name+"<") {
				t.Errorf("page of %s: %+v, %v", name, p, err)
			}
		}
		if got, err := mcp.CallTool[string](t.Context(), c, "two", nil); err != nil || got != "two of b" {
			t.Errorf("tool of a page: got %q, %v", got, err)
		}
		var refused *mcp.Error
		_, err := c.CallTool(t.Context(), "both", nil)
		if !errors.As(err, &refused) || refused.Code != mcp.CodeInvalidParams {
			t.Errorf("tool of two pages: got %v", err)
		}
		plain := mcptest.Dial(t, h.For(&policy.Caller{}), down, nil)
		tools, err := mcp.Collect(plain.Tools(t.Context()))
		if err != nil || len(tools) != 2 {
			t.Errorf("a client without pages has %d tools, %v, want 2", len(tools), err)
		}
	})
}

func extensionsOf(c *mcp.Client) (ids []string) {
	for id := range c.Capabilities().Extensions {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func newSkills(t *testing.T, name string, skillNames ...string) *mcp.Server {
	t.Helper()
	s := mcp.NewServer(name, "1.0.0", nil)
	files := fstest.MapFS{}
	for _, skill := range skillNames {
		files[skill+"/SKILL.md"] = &fstest.MapFile{Data: []byte("---\nname: " + skill + "\ndescription: Does " + skill +
			".\n---\nHow " + name + " does " + skill + ".\n")}
		files[skill+"/data.txt"] = &fstest.MapFile{Data: []byte("data of " + name)}
	}
	if _, err := skills.Serve(s, files, nil); err != nil {
		t.Fatal(err)
	}
	return s
}

// The skills of all servers are listed, described and read, also two with the same URI.
func TestSkillsOfAllServers(t *testing.T) {
	forEachPair(t, func(t *testing.T, up, down mcptest.Combination) {
		if !up.Since("2025-11-25") || !down.Since("2025-11-25") {
			return // has no extensions
		}
		servers := map[string]mcp.Handler{"a": newSkills(t, "a", "pdf", "mail"), "b": newSkills(t, "b", "pdf", "chart")}
		h := openHost(t, servers, up, "{}", "", nil)
		c := mcptest.Dial(t, h.For(&policy.Caller{}), down, nil)
		all, err := mcp.Collect(skills.List(t.Context(), c))
		if err != nil || len(all) != 4 {
			t.Fatalf("got %d skills, %v, want 4", len(all), err)
		}
		seen := map[string]bool{}
		for _, s := range all {
			if seen[s.URI] {
				t.Errorf("the URI %s is listed twice", s.URI)
			}
			seen[s.URI] = true
			wantSkill(t, c, s)
		}
	})
}

// A server whose skills cannot be listed does not hide those of the servers after it.
func TestSkillsAfterAServerThatFails(t *testing.T) {
	forEachPair(t, func(t *testing.T, up, down mcptest.Combination) {
		if !up.Since("2025-11-25") || !down.Since("2025-11-25") {
			return // has no extensions
		}
		for _, failing := range []string{"a", "b", "c"} {
			servers := map[string]mcp.Handler{}
			for _, name := range []string{"a", "b", "c"} {
				servers[name] = newSkills(t, name, "skill-of-"+name)
			}
			working := servers[failing]
			servers[failing] = mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
				if req.Method == "skills/list" {
					return nil, mcp.Errorf(mcp.CodeInternalError, "the list fails")
				}
				return working.ServeMCP(ctx, req)
			})
			h := openHost(t, servers, up, "{}", "", nil)
			c := mcptest.Dial(t, h.For(&policy.Caller{}), down, nil)
			if all, err := mcp.Collect(skills.List(t.Context(), c)); err != nil || len(all) != 2 {
				t.Errorf("%s fails: got %d skills, %v, want 2", failing, len(all), err)
			}
		}
	})
}

// A server that never sends the last page of its skills does not hide those of the servers after it.
func TestSkillsAfterAServerWithoutAnEnd(t *testing.T) {
	on := mcptest.Combination{Transport: "in-memory", Revision: mcptest.Modern}
	endless := newSkills(t, "a", "skill-of-a")
	pages := 0
	h := openHost(t, map[string]mcp.Handler{
		"a": mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
			if req.Method == "skills/list" {
				pages++
				return mcp.RawResult(fmt.Sprintf(
					`{"resultType":"complete","skills":[],"nextCursor":"%d","ttlMs":0,"cacheScope":"private"}`, pages)), nil
			}
			return endless.ServeMCP(ctx, req)
		}),
		"b": newSkills(t, "b", "skill-of-b"),
	}, on, "{}", "", nil)
	c := mcptest.Dial(t, h.For(&policy.Caller{}), on, nil)
	if all, err := mcp.Collect(skills.List(t.Context(), c)); err != nil || len(all) != 1 || pages != 200 {
		t.Errorf("got %d skills after %d pages, %v, want that of b after 200", len(all), pages, err)
	}
}

func wantSkill(t *testing.T, c *mcp.Client, s *skills.Skill) {
	t.Helper()
	again, err := skills.Get(t.Context(), c, s.URI)
	if err != nil || again.URI != s.URI || len(again.Files) != 2 {
		t.Errorf("get %s: %+v, %v", s.URI, again, err)
		return
	}
	r, err := c.ReadResource(t.Context(), s.URI)
	if err != nil || !strings.Contains(r.Contents[0].Text, "does "+s.Name) {
		t.Errorf("read %s: %+v, %v", s.URI, r, err)
	}
	dir, err := mcp.Collect(skills.ReadDir(t.Context(), c, strings.TrimSuffix(s.URI, "/SKILL.md")))
	if err != nil || len(dir) != 2 {
		t.Errorf("directory of %s: %+v, %v", s.URI, dir, err)
		return
	}
	for _, f := range dir {
		if !slices.ContainsFunc(s.Files, func(known skills.File) bool { return known.URI == f.URI }) {
			t.Errorf("the directory has %s, which is no file of the skill", f.URI)
		}
	}
}

// newExtended returns a server with a method and a topic of an extension of its own.
func newExtended(name string) *mcp.Server {
	s := newServer(name)
	s.AddExtension("com.example/"+name, map[string]int{"level": 1})
	s.HandleMethod(name+"/hello", mcp.HandlerFunc(func(_ context.Context, req *mcp.Request) (mcp.Result, error) {
		raw, _ := req.Param("who")
		return mcp.RawResult(fmt.Sprintf(`{"resultType":"complete","hello":%s,"from":%q}`, raw, name)), nil
	}))
	return s
}

func hello(t *testing.T, c *mcp.Client, method string) (string, error) {
	t.Helper()
	raw, err := c.Do(t.Context(), method, map[string]string{"who": "Ada"})
	return string(raw), err
}

// A method of another extension reaches the only server that may have it, or the one that the
// configuration names.
func TestMethodsOfOtherExtensions(t *testing.T) {
	forEachPair(t, func(t *testing.T, up, down mcptest.Combination) {
		if !up.Since("2025-11-25") || !down.Since("2025-11-25") {
			return // has no extensions
		}
		servers := map[string]mcp.Handler{"calc": newServer("calc"), "acme": newExtended("acme"), "corp": newExtended("corp")}
		two := map[string]mcp.Handler{"calc": servers["calc"], "acme": servers["acme"]}
		dial := func(servers map[string]mcp.Handler, settings string, caller *policy.Caller) *mcp.Client {
			return mcptest.Dial(t, openHost(t, servers, up, settings, "", nil).For(caller), down, nil)
		}
		c := dial(two, "{}", &policy.Caller{})
		if got, err := hello(t, c, "acme/hello"); err != nil || !strings.Contains(got, `"from":"acme"`) {
			t.Errorf("one server with an extension: got %s, %v", got, err)
		}
		if got := extensionsOf(c); !slices.Contains(got, "com.example/acme") {
			t.Errorf("the extensions are %q", got)
		}
		var refused *mcp.Error
		if _, err := hello(t, dial(servers, "{}", &policy.Caller{}), "corp/hello"); !errors.As(err, &refused) ||
			refused.Code != mcp.CodeMethodNotFound {
			t.Errorf("two servers with extensions: got %v", err)
		}
		c = dial(servers, `{"servers":{"corp":{"methods":["corp/*"]}}}`, &policy.Caller{})
		if got, err := hello(t, c, "corp/hello"); err != nil || !strings.Contains(got, `"from":"corp"`) {
			t.Errorf("configured: got %s, %v", got, err)
		}
		c = dial(servers, "{}", &policy.Caller{Server: "acme"})
		if got, err := hello(t, c, "acme/hello"); err != nil || !strings.Contains(got, `"from":"acme"`) {
			t.Errorf("single mode: got %s, %v", got, err)
		}
		if _, err := hello(t, c, "Tools/call"); !errors.As(err, &refused) || refused.Code != mcp.CodeMethodNotFound {
			t.Errorf("capitals: got %v, want an unknown method", err)
		}
	})
}
