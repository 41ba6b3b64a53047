package demo_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/demo"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
)

func TestMain(m *testing.M) { os.Exit(testhome.Main(m, mcptest.Main)) }

type object = map[string]any

// A toolResult is the part of a CallToolResult that the tests check.
type toolResult struct {
	Content           []struct{ Text string }
	StructuredContent json.RawMessage
	IsError           bool
}

func (r toolResult) text() string {
	if len(r.Content) == 0 {
		return ""
	}
	return r.Content[0].Text
}

func decode[T any](t *testing.T, raw json.RawMessage) (v T) {
	t.Helper()
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	return v
}

func call(t *testing.T, c *mcptest.Client, name string, arguments object) toolResult {
	t.Helper()
	if arguments == nil {
		arguments = object{}
	}
	return decode[toolResult](t, c.Call("tools/call", object{"name": name, "arguments": arguments}))
}

func TestDemoHasEveryFeature(t *testing.T) {
	mcptest.Run(t, demo.New("1", nil).Server, func(t *testing.T, c *mcptest.Client) {
		names := func(method, list, key string) (names []string) {
			page := decode[map[string]json.RawMessage](t, c.Call(method, object{}))
			for _, item := range decode[[]map[string]any](t, page[list]) {
				names = append(names, item[key].(string))
			}
			return names
		}
		for _, test := range []struct {
			method, list, key string
			want              []string
		}{
			{"tools/list", "tools", "name",
				[]string{"add", "count", "crunch", "deploy", "greet", "increment", "publish", "roll_dice",
					"summarize", "who_am_i"}},
			{"prompts/list", "prompts", "name", []string{"review"}},
			{"resources/templates/list", "resourceTemplates", "uriTemplate",
				[]string{"demo://cities/{country}/{city}"}},
		} {
			if got := names(test.method, test.list, test.key); !slices.Equal(got, test.want) {
				t.Errorf("%s: %q, want %q", test.method, got, test.want)
			}
		}
		uris := names("resources/list", "resources", "uri")
		if len(uris) < 2 || !slices.Contains(uris, "demo://counter") {
			t.Errorf("resources: %q, want two with demo://counter", uris)
		}
		for _, uri := range uris {
			read := decode[struct{ Contents []struct{ URI, Text string } }](t,
				c.Call("resources/read", object{"uri": uri}))
			if len(read.Contents) != 1 || read.Contents[0].URI != uri || read.Contents[0].Text == "" {
				t.Errorf("%s: got %+v, want one text with this URI", uri, read)
			}
		}
	})
}

func TestDemoToolsReturnTheirResults(t *testing.T) {
	mcptest.Run(t, demo.New("1", nil).Server, func(t *testing.T, c *mcptest.Client) {
		if got := call(t, c, "add", object{"a": 40, "b": 2}); got.text() != "42" {
			t.Errorf("add: got %+v, want 42", got)
		}
		got, rpcError := c.Try("tools/call", object{"name": "add", "arguments": object{"a": "x"}})
		if rpcError == nil && !decode[toolResult](t, got).IsError {
			t.Errorf("add with a string: got %s, want an error", got)
		}
		rolled := call(t, c, "roll_dice", object{"count": 3})
		var dice struct {
			Rolls []int
			Total int
		}
		json.Unmarshal([]byte(rolled.text()), &dice)
		total := 0
		for _, n := range dice.Rolls {
			total += n
			if n < 1 || n > 6 {
				t.Errorf("roll_dice: got a roll of %d, want 1 to 6", n)
			}
		}
		if len(dice.Rolls) != 3 || total != dice.Total {
			t.Errorf("roll_dice: got %s, want 3 rolls and their total", rolled.text())
		}
		if got := call(t, c, "who_am_i", nil).text(); !strings.Contains(got, `"`+c.Revision+`"`) ||
			!strings.Contains(got, "mcptest") {
			t.Errorf("who_am_i: got %s, want revision %s and mcptest", got, c.Revision)
		}
		if got := call(t, c, "greet", object{"name": "Ada"}); got.text() != "Hello, Ada!" {
			t.Errorf("greet: got %+v, want Hello, Ada!", got)
		}
	})
}

func TestCountReportsProgress(t *testing.T) {
	mcptest.RunOn(t, demo.New("1", nil).Server, mcptest.Combinations(), &mcptest.Options{LogLevel: "info"},
		func(t *testing.T, c *mcptest.Client) {
			got := decode[toolResult](t, c.Call("tools/call",
				object{"name": "count", "arguments": object{"steps": 3}, "_meta": object{"progressToken": "p"}}))
			if got.text() != "counted to 3" {
				t.Errorf("count: got %+v, want counted to 3", got)
			}
			for n, note := range c.Await(3, "notifications/progress") {
				if p := decode[struct{ Progress, Total float64 }](t, note.Params); p.Progress != float64(n+1) ||
					p.Total != 3 {
					t.Errorf("progress notification %d: got %s, want %d of 3", n, note.Params, n+1)
				}
			}
			c.Await(3, "notifications/message")
		})
}

func TestGreetAndDeployAskTheUser(t *testing.T) {
	var answer func(method string) (any, error)
	opts := &mcptest.Options{Answer: func(method string, _ json.RawMessage) (any, error) { return answer(method) }}
	accept := func(content object) func(string) (any, error) {
		return func(string) (any, error) { return object{"action": "accept", "content": content}, nil }
	}
	server := demo.New("1", nil).Server
	mcptest.RunOn(t, server, mcptest.Since("2025-06-18"), opts, func(t *testing.T, c *mcptest.Client) {
		answer = accept(object{"name": "Grace"})
		if got := call(t, c, "greet", nil); got.text() != "Hello, Grace!" {
			t.Errorf("greet: got %+v, want Hello, Grace!", got)
		}
		answer = func(string) (any, error) { return object{"action": "decline"}, nil }
		if got := call(t, c, "greet", nil); got.text() != "Hello!" {
			t.Errorf("greet after a decline: got %+v, want Hello!", got)
		}
		answer = accept(object{"value": true})
		if got := call(t, c, "deploy", object{"environment": "staging"}); !strings.Contains(got.text(),
			`"staging"`) || got.IsError {
			t.Errorf("deploy: got %+v, want staging", got)
		}
		answer = accept(object{"value": false})
		if got := call(t, c, "deploy", object{"environment": "production"}); !got.IsError ||
			!strings.Contains(got.text(), "did not confirm") {
			t.Errorf("deploy without confirmation: got %+v, want a tool error", got)
		}
	})
	mcptest.RunOn(t, server, mcptest.Before("2025-06-18"), opts, func(t *testing.T, c *mcptest.Client) {
		answer = func(method string) (any, error) { return nil, fmt.Errorf("%s was asked", method) }
		if _, err := c.Try("tools/call", object{"name": "greet"}); err == nil ||
			strings.Contains(err.Message, "was asked") {
			t.Errorf("a client without elicitation: got %v, want an error before the question", err)
		}
	})
}

func TestSummarizeAsksTheModel(t *testing.T) {
	refuse := false
	opts := &mcptest.Options{Answer: func(method string, params json.RawMessage) (any, error) {
		if refuse {
			return nil, &jsonrpc.Error{Code: -1, Message: "user rejected sampling request"}
		}
		if method != "sampling/createMessage" || !strings.Contains(string(params), "a long story") {
			return nil, errors.New("not a sampling request")
		}
		return object{"role": "assistant", "model": "m", "content": object{"type": "text", "text": "a story"}}, nil
	}}
	mcptest.RunOn(t, demo.New("1", nil).Server, mcptest.Combinations(), opts, func(t *testing.T, c *mcptest.Client) {
		refuse = false
		if got := call(t, c, "summarize", object{"text": "a long story"}); got.text() != "a story" {
			t.Errorf("summarize: got %+v, want a story", got)
		}
		refuse = true
		if _, err := c.Try("tools/call", object{"name": "summarize",
			"arguments": object{"text": "a long story"}}); err == nil {
			t.Error("summarize returned a result to a client that refused sampling, want an error")
		}
	})
}

func TestCounterCanBeSubscribedTo(t *testing.T) {
	mcptest.Run(t, demo.New("1", nil).Server, func(t *testing.T, c *mcptest.Client) {
		stop := c.Listen(mcp.SubscriptionFilter{ResourceSubscriptions: []string{"demo://counter"}})
		defer stop()
		want := call(t, c, "increment", nil).text()
		c.Await(1, "notifications/resources/updated")
		read := decode[struct{ Contents []struct{ Text string } }](t,
			c.Call("resources/read", object{"uri": "demo://counter"}))
		if len(read.Contents) != 1 || read.Contents[0].Text != want {
			t.Errorf("counter: got %+v, want %s", read, want)
		}
	})
}

func TestCitiesAndReviewHaveCompletions(t *testing.T) {
	mcptest.Run(t, demo.New("1", nil).Server, func(t *testing.T, c *mcptest.Client) {
		if got := c.Call("resources/read",
			object{"uri": "demo://cities/kenya/kisumu"}); !strings.Contains(string(got), "kisumu is a city in kenya") {
			t.Errorf("read: got %s, want the city", got)
		}
		if got, err := c.Try("resources/read", object{"uri": "demo://cities/kenya/atlantis"}); err == nil {
			t.Errorf("a missing city: got %s, want an error", got)
		}
		complete := func(ref object, name, value string, chosen object) (values []string) {
			params := object{"ref": ref, "argument": object{"name": name, "value": value}}
			if chosen != nil && c.Since("2025-06-18") {
				params["context"] = object{"arguments": chosen}
			}
			return decode[struct{ Completion struct{ Values []string } }](t,
				c.Call("completion/complete", params)).Completion.Values
		}
		city := object{"type": "ref/resource", "uri": "demo://cities/{country}/{city}"}
		if got := complete(city, "country", "k", nil); !slices.Equal(got, []string{"kenya"}) {
			t.Errorf("countries: got %q, want kenya", got)
		}
		if got := complete(city, "city", "ky", object{"country": "japan"}); c.Since("2025-06-18") &&
			!slices.Equal(got, []string{"kyoto"}) {
			t.Errorf("cities: got %q, want kyoto", got)
		}
		review := object{"type": "ref/prompt", "name": "review"}
		if got := complete(review, "language", "py", nil); !slices.Equal(got, []string{"python"}) {
			t.Errorf("languages: got %q, want python", got)
		}
		if got := c.Call("prompts/get", object{"name": "review",
			"arguments": object{"language": "go", "code": "x := 1"}}); !strings.Contains(string(got), "x := 1") {
			t.Errorf("prompt: got %s, want the code in it", got)
		}
	})
}
