package mcp_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// A feature is a registered tool, prompt, resource or template.
type feature struct {
	list, use       string // methods
	params          object // of use
	changed         string // notification
	describe        func(description string)
	disable, enable func()
	remove          func()
}

func featureOf[V any](r *mcp.Registration[V], set func(v *V, description string), f feature) feature {
	f.describe = func(description string) { r.Update(func(v *V) { set(v, description) }) }
	f.disable, f.enable, f.remove = r.Disable, r.Enable, r.Remove
	return f
}

// features adds one feature of each kind, named x.
func features(s *mcp.Server) map[string]feature {
	nothing := func(context.Context, struct{}) (string, error) { return "x", nil }
	return map[string]feature{
		"tool": featureOf(mcp.AddTool(s, &mcp.Tool{Name: "x"}, nothing),
			func(v *mcp.Tool, d string) { v.Description = d },
			feature{list: "tools/list", use: "tools/call", params: object{"name": "x"}, changed: toolsChanged}),
		"prompt": featureOf(mcp.AddPrompt(s, &mcp.Prompt{Name: "x"}, nothing),
			func(v *mcp.Prompt, d string) { v.Description = d },
			feature{list: "prompts/list", use: "prompts/get", params: object{"name": "x"}, changed: promptsChanged}),
		"resource": featureOf(addText(s, "x://x", "x"),
			func(v *mcp.Resource, d string) { v.Description = d },
			feature{list: "resources/list", use: "resources/read", params: object{"uri": "x://x"}, changed: resourcesChanged}),
		"template": featureOf(mcp.AddResourceTemplate(s, &mcp.ResourceTemplate{URITemplate: "y://{a}", Name: "x"},
			func(context.Context, map[string]string) (string, error) { return "x", nil }),
			func(v *mcp.ResourceTemplate, d string) { v.Description = d },
			feature{list: "resources/templates/list", use: "resources/read", params: object{"uri": "y://1"}, changed: resourcesChanged}),
	}
}

func TestRegistrationsChangeWhileClientsAreConnected(t *testing.T) {
	s := changingServer(t, nil) // sessions are notified only of features that existed when they began
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		c.Listen(mcp.SubscriptionFilter{ToolsListChanged: true, PromptsListChanged: true, ResourcesListChanged: true})
		all := features(s)
		time.Sleep(time.Second)
		synctest.Wait()
		for kind, f := range all {
			before := len(c.Notifications(f.changed))
			for i, step := range []struct {
				do func()
				is string // its description in the list, or empty if it is not listed
			}{
				{func() { f.describe("better words") }, "better words"},
				{f.disable, ""},
				{func() { f.describe("best words") }, ""},
				{f.enable, "best words"},
				{f.remove, ""},
			} {
				step.do()
				c.Await(before+i+1, f.changed)
				list := string(c.Call(f.list, nil))
				if strings.Contains(list, "words") != (step.is != "") || !strings.Contains(list, step.is) {
					t.Errorf("%s, step %d: got list %s, want description %q", kind, i+1, list, step.is)
				}
				if _, err := c.Try(f.use, f.params); (err == nil) != (step.is != "") {
					t.Errorf("%s, step %d: %s: got error %v", kind, i+1, f.use, err)
				}
			}
		}
	})
}

// A Registration changes only its own feature, not a later one with the same name.
func TestRegistrationsDoNotChangeLaterFeatures(t *testing.T) {
	s := newServer(t, nil)
	first := addValueTool(s, "x", "first")
	first.Remove()
	second := addValueTool(s, "x", "second")
	for _, old := range []func(){
		first.Remove, first.Disable, first.Enable,
		func() { first.Update(func(t *mcp.Tool) { t.Description = "mine" }) },
	} {
		old()
		got, err := serveModern(t, s, "tools/list", nil)
		want(t, got, err, `"name":"x"`)
		if strings.Contains(got, "mine") {
			t.Errorf("got %s, want it unchanged by the removed registration", got)
		}
	}
	second.Disable()
	mustPanic(t, "a disabled name", "registered already", func() { addValueTool(s, "x", "third") })
	second.Remove()
	addValueTool(s, "x", "third")
	got, err := serveModern(t, s, "tools/call", object{"name": "x"})
	want(t, got, err, "third")
}

func TestInvalidUpdatesChangeNothing(t *testing.T) {
	s := newServer(t, nil)
	tool := mcp.AddTool(s, &mcp.Tool{Name: "x", Description: "good"}, search)
	for what, change := range map[string]func(*mcp.Tool){
		"another name":      func(t *mcp.Tool) { t.Name = "y" },
		"no input schema":   func(t *mcp.Tool) { t.InputSchema = nil },
		"bad input schema":  func(t *mcp.Tool) { t.InputSchema = json.RawMessage(`{"type":"array"}`) },
		"bad output schema": func(t *mcp.Tool) { t.OutputSchema = json.RawMessage(`{"type":7}`) },
		"bad meta":          func(t *mcp.Tool) { t.Meta = mcp.Meta{"c": make(chan int)} },
		"a panic":           func(*mcp.Tool) { panic("of its own") },
	} {
		mustPanic(t, what, "", func() {
			tool.Update(func(t *mcp.Tool) {
				t.Description = "bad"
				change(t)
			})
		})
	}
	got, err := serveModern(t, s, "tools/list", nil)
	want(t, got, err, `"name":"x"`, `"description":"good"`)
	got, err = serveModern(t, s, "tools/call", object{"name": "x", "arguments": object{"query": "q"}})
	want(t, got, err, `"limit":10`)
}

func TestUpdatedSchemasAreUsed(t *testing.T) {
	s := newServer(t, nil)
	tool := mcp.AddTool(s, &mcp.Tool{Name: "x"}, search)
	tool.Update(func(t *mcp.Tool) {
		t.InputSchema = json.RawMessage(`{"type":"object","properties":{"query":{"type":"string","maxLength":1}},"required":["query"]}`)
		t.OutputSchema = nil
	})
	got, err := serveModern(t, s, "tools/list", nil)
	want(t, got, err, `"maxLength":1`)
	if strings.Contains(got, "outputSchema") {
		t.Errorf("got %s, want no outputSchema", got)
	}
	got, err = serveModern(t, s, "tools/call", object{"name": "x", "arguments": object{"query": "too long"}})
	want(t, got, err, `"isError":true`, "query")
}

// The server is not affected when the caller changes its copy of a feature.
func TestFeaturesAreCopied(t *testing.T) {
	s := newServer(t, nil)
	tool := &mcp.Tool{Name: "x", Description: "as registered"}
	mcp.AddTool(s, tool, search)
	tool.Name, tool.Description = "y", "changed later"
	got, err := serveModern(t, s, "tools/list", nil)
	want(t, got, err, `"name":"x"`, "as registered")
	if tool.InputSchema != nil {
		t.Error("AddTool changed the caller's Tool")
	}
}

func TestRegistrationsAreSafeForConcurrentUse(t *testing.T) {
	s := newServer(t, nil)
	shared := addValueTool(s, "shared", "x")
	var work sync.WaitGroup
	for i := range 8 {
		work.Go(func() {
			for j := range 50 {
				r := addValueTool(s, fmt.Sprintf("tool-%d-%d", i, j), "x")
				r.Disable()
				r.Update(func(t *mcp.Tool) { t.Description = "d" })
				shared.Update(func(t *mcp.Tool) { t.Description += "." })
				r.Enable()
				r.Remove()
			}
		})
		work.Go(func() {
			for range 50 {
				got, err := serveModern(t, s, "tools/list", nil)
				want(t, got, err, `"shared"`)
				got, err = serveModern(t, s, "tools/call", object{"name": "shared"})
				want(t, got, err, `"x"`)
			}
		})
	}
	work.Wait()
	got, err := serveModern(t, s, "tools/list", nil)
	want(t, got, err, `"description":"`+strings.Repeat(".", 8*50)+`"`) // no change is lost
	if strings.Contains(got, "tool-") {
		t.Errorf("got %s", got)
	}
}

// Requirement: PAG-07
func TestCursorsAreStableAndAuthenticated(t *testing.T) {
	s := newServer(t, &mcp.ServerOptions{PageSize: 3})
	for i := range 8 {
		addValueTool(s, fmt.Sprintf("tool%d", i), "x")
	}
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		first := decode[toolPage](t, c.Call("tools/list", nil))
		last := addValueTool(s, "tool0a", "x") // added and removed between two pages
		names := first.names()
		for page := first; page.NextCursor != nil; names += page.names() {
			page = decode[toolPage](t, c.Call("tools/list", object{"cursor": *page.NextCursor}))
		}
		last.Remove()
		if names != "tool0 tool1 tool2 tool3 tool4 tool5 tool6 tool7 " {
			t.Errorf("got %s", names)
		}
		cursor := *first.NextCursor
		other := c.Another(&mcptest.Options{Principal: &mcp.Principal{Subject: "other"}})
		_, err := other.Try("tools/list", object{"cursor": cursor})
		wantCode(t, "another caller's cursor", err, mcp.CodeInvalidParams)
		_, err = c.Try("prompts/list", object{"cursor": cursor})
		wantCode(t, "another list's cursor", err, mcp.CodeMethodNotFound)
		for _, forged := range []any{
			"", "tool3", cursor + "x", cursor[1:], altered(cursor), strings.Repeat("x", 5000), 3, []any{cursor},
		} {
			_, err := c.Try("tools/list", object{"cursor": forged})
			wantCode(t, fmt.Sprintf("cursor %.20v", forged), err, mcp.CodeInvalidParams)
		}
	})
}

type toolPage struct {
	Tools      []struct{ Name string }
	NextCursor *string
}

func (p toolPage) names() (all string) {
	for _, tool := range p.Tools {
		all += tool.Name + " "
	}
	return all
}

// altered returns a text with another first letter.
func altered(s string) string {
	if s[0] == 'A' {
		return "B" + s[1:]
	}
	return "A" + s[1:]
}

// Servers that share keys accept each other's cursors.
//
// Requirement: PAG-07
func TestCursorsWorkOnEveryReplica(t *testing.T) {
	opts := &mcp.ServerOptions{PageSize: 1, StateKeys: [][]byte{[]byte(strings.Repeat("k", 32))}}
	var replicas [2]*mcp.Server
	for i := range replicas {
		replicas[i] = newServer(t, opts)
		addValueTool(replicas[i], "a", "x")
		addValueTool(replicas[i], "b", "x")
	}
	got, err := serveModern(t, replicas[0], "tools/list", nil)
	want(t, got, err, `"name":"a"`)
	cursor := *decode[toolPage](t, json.RawMessage(got)).NextCursor
	got, err = serveModern(t, replicas[1], "tools/list", object{"cursor": cursor})
	want(t, got, err, `"name":"b"`)
}

// A cursor with any bit changed, of another caller or of another list is refused with the same error.
func FuzzCursor(f *testing.F) {
	key := make([]byte, 32) // new in each process: cursors in the corpus are foreign
	rand.Read(key)
	server := func(t testing.TB) *mcp.Server {
		s := mcp.NewServer("test", "1", &mcp.ServerOptions{PageSize: 1, StateKeys: [][]byte{key}})
		for _, name := range []string{"a", "b"} {
			addValueTool(s, name, "x")
			mcp.AddPrompt(s, &mcp.Prompt{Name: name}, func(context.Context, struct{}) (string, error) { return "", nil })
		}
		return s
	}
	s := server(f)
	f.Add("", uint(0), byte(0))
	f.Add("AAAA", uint(3), byte(64))
	f.Add(strings.Repeat("A", 100), uint(7), byte(1))
	f.Fuzz(func(t *testing.T, token string, at uint, flip byte) {
		got, err := serveModern(t, s, "tools/list", nil)
		want(t, got, err, `"name":"a"`)
		cursor := *decode[toolPage](t, json.RawMessage(got)).NextCursor
		got, err = serveModern(t, server(t), "tools/list", object{"cursor": cursor})
		want(t, got, err, `"name":"b"`)

		touched := []byte(cursor)
		touched[at%uint(len(touched))] ^= cmp.Or(flip&0x7f, 1) // ASCII, and another character
		forged := []string{token, string(touched), cursor + token + "A", cursor[:at%uint(len(cursor))]}
		for _, forged := range forged {
			_, err = serveModern(t, s, "tools/list", object{"cursor": strings.ToValidUTF8(forged, "?")})
			wantRefusedCursor(t, forged, err)
		}
		_, err = serveModern(t, s, "prompts/list", object{"cursor": cursor})
		wantRefusedCursor(t, "of another list", err)
		_, err = serveAs(t, s, &mcp.Principal{Subject: token + "x"}, "tools/list", object{"cursor": cursor})
		wantRefusedCursor(t, "of another caller", err)
	})
}

func wantRefusedCursor(t *testing.T, cursor string, err *mcp.Error) {
	t.Helper()
	const text = "invalid params.cursor: not a cursor of this list; start again without one"
	if err == nil || err.Code != mcp.CodeInvalidParams || err.Message != text || err.Data != nil {
		t.Errorf("cursor %q: got %v, want %q", cursor, err, text)
	}
}

// Each list is requested twice, so that a stale cache entry would show.
func TestEncodedListsAreCachedAndNeverStale(t *testing.T) {
	drop := false
	middleware := func(h mcp.Handler) mcp.Handler {
		return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
			res, err := h.ServeMCP(ctx, req)
			if list, ok := res.(*mcp.ListToolsResult); ok && drop {
				changed := *list.Tools[1]
				changed.Title = "changed"
				list.Tools[0], list.Tools = &changed, list.Tools[:1]
			}
			return res, err
		})
	}
	s := mcp.NewServer("server", "1", &mcp.ServerOptions{Middleware: []mcp.Middleware{middleware}, PageSize: 2})
	p := &handlerPeer{TB: t, handler: s, revision: "2026-07-28"}
	want := func(what string, titles ...string) {
		t.Helper()
		for range 2 {
			var r struct {
				Tools      []struct{ Name, Title string }
				NextCursor string
			}
			if err := json.Unmarshal([]byte(p.raw("tools/list")), &r); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, tool := range r.Tools {
				got = append(got, cmp.Or(tool.Title, tool.Name))
			}
			if strings.Join(got, " ") != strings.Join(titles, " ") || (r.NextCursor != "") != (what == "more") {
				t.Errorf("%s: got %q and cursor %q, want %q", what, got, r.NextCursor, titles)
			}
		}
	}
	nothing := func(context.Context, struct{}) (string, error) { return "", nil }
	b := mcp.AddTool(s, &mcp.Tool{Name: "b"}, nothing)
	want("one", "b")
	a := mcp.AddTool(s, &mcp.Tool{Name: "a"}, nothing)
	want("two", "a", "b")
	b.Update(func(tool *mcp.Tool) { tool.Title = "B" })
	want("updated", "a", "B")
	drop = true
	want("changed by middleware", "changed")
	drop = false
	want("and not", "a", "B")
	c := mcp.AddTool(s, &mcp.Tool{Name: "c"}, nothing)
	want("more", "a", "B")
	a.Disable()
	want("disabled", "B", "c")
	c.Remove()
	want("removed", "B")
	b.Remove()
	want("none")
}

// Pages are kept from the first page on. A cursor remains valid while tools come and go, and then begins
// a page that is not kept.
func TestPagesAreCurrentAfterChanges(t *testing.T) {
	s := mcp.NewServer("server", "1", &mcp.ServerOptions{PageSize: 2})
	p := &handlerPeer{TB: t, handler: s, revision: "2026-07-28"}
	read := func(cursor string) (names, next string) {
		t.Helper()
		var params []string
		if cursor != "" {
			params = append(params, `"cursor":"`+cursor+`"`)
		}
		var r struct {
			Tools      []struct{ Name string }
			NextCursor string
		}
		if err := json.Unmarshal([]byte(p.raw("tools/list", params...)), &r); err != nil {
			t.Fatal(err)
		}
		for _, tool := range r.Tools {
			names += tool.Name
		}
		return names, r.NextCursor
	}
	want := func(cursor string, pages ...string) (last string) {
		t.Helper()
		for i, want := range pages {
			names, next := read(cursor)
			if names != want || (next == "") != (i == len(pages)-1) {
				t.Errorf("page %d: got %q and the cursor %q, want %q", i, names, next, want)
			}
			if next != "" {
				last = next
			}
			cursor = next
		}
		return last
	}
	nothing := func(context.Context, struct{}) (string, error) { return "", nil }
	for _, name := range []string{"b", "c", "d", "e", "f"} {
		mcp.AddTool(s, &mcp.Tool{Name: name}, nothing)
	}
	want("", "bc", "de", "f")
	last := want("", "bc", "de", "f")
	a := mcp.AddTool(s, &mcp.Tool{Name: "a"}, nothing)
	want(last, "f")
	want("", "ab", "cd", "ef")
	want(last, "f")
	a.Remove()
	want("", "bc", "de", "f")
}
