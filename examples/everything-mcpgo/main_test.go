package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcptest"
	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
)

func TestMain(m *testing.M) {
	log.SetOutput(io.Discard)
	os.Exit(testhome.Main(m, mcptest.Main))
}

type object = map[string]any

// TestTools calls every tool in every revision, with fake time.
func TestTools(t *testing.T) {
	encoded := base64.StdEncoding.EncodeToString(image)
	tools := []struct {
		name  string
		args  object
		want  string // part of the result
		steps int    // progress notifications
	}{
		{"echo", object{"message": "hi"}, `"text":"Echo: hi"`, 0},
		{"notify", object{}, `"text":"The notification was sent."`, 1},
		{"add", object{"a": 1.5, "b": 2}, `"text":"1.5 + 2 = 3.5"`, 0},
		{"longRunningOperation", object{}, `"text":"5 steps took 10 seconds."`, 5},
		{"getTinyImage", object{}, `"data":"` + encoded + `"`, 0},
		{"get_resource_link", object{}, `file:///example/document.pdf`, 0},
	}
	mcptest.Run(t, newServer(), func(t *testing.T, c *mcptest.Client) {
		if listed := items(t, c, "tools"); len(listed) != len(tools) {
			t.Errorf("listed are %v", listed)
		}
		steps := 0
		for _, tool := range tools {
			got := string(c.Call("tools/call", object{
				"name": tool.name, "arguments": tool.args, "_meta": object{"progressToken": tool.name},
			}))
			if !strings.Contains(got, tool.want) {
				t.Errorf("%s: got %s", tool.name, got)
			}
			if steps += tool.steps; steps > 0 {
				if got := len(c.Await(steps, "notifications/progress")); got != steps {
					t.Errorf("%s: got %d notifications of progress so far, want %d", tool.name, got, steps)
				}
			}
		}
		link := string(c.Call("tools/call", object{
			"name": "get_resource_link", "arguments": object{"resource_type": "a/b"},
		}))
		if !strings.Contains(link, "file:///example/a%2Fb.pdf") {
			t.Errorf("got %s", link)
		}
	})
}

// TestResources reads all resources.
func TestResources(t *testing.T) {
	mcptest.Run(t, newServer(), func(t *testing.T, c *mcptest.Client) {
		listed := items(t, c, "resources")
		if len(listed) != 101 {
			t.Errorf("got %d resources, want 101", len(listed))
		}
		for _, uri := range append(listed, "test://dynamic/resource/7") {
			n := 0
			fmt.Sscanf(uri, "test://static/resource/%d", &n)
			want := fmt.Sprintf("Text of resource %d", n)
			switch {
			case n == 0:
				want = "This is"
			case n%2 == 0:
				want = base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "Bytes of resource %d", n))
			}
			if got := string(c.Call("resources/read", object{"uri": uri})); !strings.Contains(got, want) {
				t.Errorf("%s: got %s, want %s", uri, got, want)
			}
		}
	})
}

func TestPrompts(t *testing.T) {
	mcptest.Run(t, newServer(), func(t *testing.T, c *mcptest.Client) {
		if got := items(t, c, "prompts"); !slices.Equal(got, []string{"complex_prompt", "simple_prompt"}) {
			t.Errorf("got %v", got)
		}
		if got := string(c.Call("prompts/get", object{"name": "simple_prompt"})); !strings.Contains(got, "without arguments") {
			t.Errorf("got %s", got)
		}
		args := object{"temperature": "0.5", "style": "casual"}
		got := string(c.Call("prompts/get", object{"name": "complex_prompt", "arguments": args}))
		for _, want := range []string{"temperature 0.5 and style casual", `"role":"assistant"`, `"type":"image"`} {
			if !strings.Contains(got, want) {
				t.Errorf("got %s, want %s", got, want)
			}
		}
		if _, err := c.Try("prompts/get", object{"name": "complex_prompt"}); err == nil {
			t.Error("missing arguments: got no error")
		}
	})
}

func TestCompletion(t *testing.T) {
	prompt := object{"type": "ref/prompt", "name": "complex_prompt"}
	template := object{"type": "ref/resource", "uri": "test://dynamic/resource/{id}"}
	mcptest.Run(t, newServer(), func(t *testing.T, c *mcptest.Client) {
		for _, test := range []struct {
			ref             object
			argument, typed string
			first           string
			total           int
			hasMore         bool
		}{
			{prompt, "style", "cr", `["creative"]`, 1, false},
			{prompt, "temperature", "c", `[]`, 0, false},
			{template, "id", "", `["0","1",`, 10000, true},
			{template, "id", "12", `["12","120",`, 111, true},
			{template, "id", "123", `["123","1230",`, 11, false},
			{template, "id", "x", `[]`, 0, false},
		} {
			var got struct {
				Completion struct {
					Values  json.RawMessage
					Total   int
					HasMore bool
				}
			}
			if err := json.Unmarshal(c.Call("completion/complete", object{
				"ref": test.ref, "argument": object{"name": test.argument, "value": test.typed},
			}), &got); err != nil {
				t.Fatal(err)
			}
			if got := got.Completion; !strings.HasPrefix(string(got.Values), test.first) || got.Total != test.total ||
				got.HasMore != test.hasMore {
				t.Errorf("%s %q: got %s, total %d, more %t", test.argument, test.typed, got.Values, got.Total, got.HasMore)
			}
		}
	})
}

// TestIconsAndLog tests the icons, in the revisions that have them, and what the middleware logs.
func TestIconsAndLog(t *testing.T) {
	var logged lockedBuilder // subscriptions of a session are logged while its first requests are served
	log.SetOutput(&logged)
	defer log.SetOutput(io.Discard)
	mcptest.Run(t, newServer(), func(t *testing.T, c *mcptest.Client) {
		for kind, icon := range map[string]string{"tools": "tool.png", "prompts": "prompt.png", "resources": "icon.png"} {
			if got := string(c.Call(kind+"/list", nil)); strings.Contains(got, icon) != c.Since("2025-11-25") {
				t.Errorf("%s: got %.300s", kind, got)
			}
		}
		logged.Reset()
		if _, err := c.Try("tools/call", object{"name": "unknown"}); err == nil {
			t.Error("an unknown tool was called")
		}
		if got := logged.String(); !strings.Contains(got, "tools/call") || !strings.Contains(got, `unknown tool`) {
			t.Errorf("got the log %s", got)
		}
	})
}

// A lockedBuilder is a strings.Builder that is safe for concurrent use.
type lockedBuilder struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *lockedBuilder) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuilder) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func (b *lockedBuilder) Reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text.Reset()
}

// items returns the URIs of listed resources, and the names of other features.
func items(t *testing.T, c *mcptest.Client, kind string) (all []string) {
	t.Helper()
	var list map[string]json.RawMessage
	var found []struct{ Name, URI string }
	if err := json.Unmarshal(c.Call(kind+"/list", nil), &list); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(list[kind], &found); err != nil {
		t.Fatal(err)
	}
	for _, item := range found {
		if item.URI != "" {
			item.Name = item.URI
		}
		all = append(all, item.Name)
	}
	return all
}
