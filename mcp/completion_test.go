package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// completeParams returns the params of completion/complete.
func completeParams(kind, target, name, value string) map[string]any {
	key := "name"
	if kind == "ref/resource" {
		key = "uri"
	}
	return map[string]any{
		"ref":      map[string]any{"type": kind, key: target},
		"argument": map[string]any{"name": name, "value": value},
	}
}

// completionServer returns a server with prompts and a template whose arguments are completed.
func completionServer() *mcp.Server {
	s := quietServer(mcp.ServerOptions{})
	cities := map[string][]string{"japan": {"kyoto", "tokyo"}, "kenya": {"nairobi"}}
	complete := map[string]mcp.CompleteFunc{
		"city": func(_ context.Context, value string, args map[string]string) ([]string, error) {
			if args == nil {
				return []string{"anywhere"}, nil
			}
			return slices.DeleteFunc(slices.Clone(cities[args["country"]]),
				func(c string) bool { return !strings.HasPrefix(c, value) }), nil
		},
		"many": func(_ context.Context, value string, _ map[string]string) ([]string, error) {
			var all []string
			for i := range 250 {
				all = append(all, fmt.Sprint(value, i))
			}
			return all, nil
		},
		"broken": func(context.Context, string, map[string]string) ([]string, error) {
			return nil, errors.New("secret")
		},
		"panics": func(context.Context, string, map[string]string) ([]string, error) { panic("secret") },
		"protocol": func(context.Context, string, map[string]string) ([]string, error) {
			return nil, mcp.Errorf(4711, "slow down")
		},
	}
	var arguments []mcp.PromptArgument
	for _, name := range []string{"country", "city", "many", "broken", "panics", "protocol"} {
		arguments = append(arguments, mcp.PromptArgument{Name: name})
	}
	mcp.AddPrompt(s, &mcp.Prompt{Name: "travel", Arguments: arguments, Complete: complete},
		func(context.Context, map[string]string) (string, error) { return "", nil })
	mcp.AddPrompt(s, &mcp.Prompt{Name: "review"}, func(context.Context, reviewArgs) (string, error) { return "", nil })
	mcp.AddResourceTemplate(s, &mcp.ResourceTemplate{URITemplate: "city://world/{country}/{city}", Name: "city",
		Complete: map[string]mcp.CompleteFunc{"city": complete["city"]}},
		func(context.Context, map[string]string) (string, error) { return "", nil })
	addText(s, "x://plain", "")
	return s
}

// Requirement: CMP-02
func TestPromptsAndTemplatesAreCompleted(t *testing.T) {
	s := completionServer()
	for _, test := range []struct {
		kind, target, name, value string
		context                   map[string]string
		completion                string
	}{
		{"ref/prompt", "travel", "city", "", nil, `{"values":["anywhere"],"total":1,"hasMore":false}`},
		{"ref/prompt", "travel", "city", "k", map[string]string{"country": "japan"},
			`{"values":["kyoto"],"total":1,"hasMore":false}`},
		// an argument without completion
		{"ref/prompt", "travel", "country", "k", nil, `{"values":[],"total":0,"hasMore":false}`},
		{"ref/prompt", "review", "language", "", nil, `{"values":["go","python","rust"],"total":3,"hasMore":false}`},
		{"ref/prompt", "review", "language", "P", nil, `{"values":["python"],"total":1,"hasMore":false}`},
		{"ref/prompt", "review", "language", "o", nil, `{"values":["go","python"],"total":2,"hasMore":false}`},
		{"ref/prompt", "review", "language", "c++", nil, `{"values":[],"total":0,"hasMore":false}`},
		{"ref/prompt", "review", "strict", "t", nil, `{"values":["true"],"total":1,"hasMore":false}`},
		{"ref/resource", "city://world/{country}/{city}", "city", "", map[string]string{"country": "kenya"},
			`{"values":["nairobi"],"total":1,"hasMore":false}`},
		{"ref/resource", "city://world/kenya/x", "city", "n", map[string]string{"country": "kenya"},
			`{"values":["nairobi"],"total":1,"hasMore":false}`},
	} {
		params := completeParams(test.kind, test.target, test.name, test.value)
		if test.context != nil {
			params["context"] = map[string]any{"arguments": test.context}
		}
		got, err := serveModern(t, s, "completion/complete", params)
		want(t, got, err, `"resultType":"complete"`, `"completion":`+test.completion)
	}
}

// Requirement: CMP-03
func TestAtMostAHundredValues(t *testing.T) {
	got, err := serveModern(t, completionServer(), "completion/complete",
		completeParams("ref/prompt", "travel", "many", "x"))
	want(t, got, err, `"total":250,"hasMore":true`)
	c := decode[mcp.CompleteResult](t, json.RawMessage(got)).Completion
	if len(c.Values) != 100 || c.Values[0] != "x0" || c.Values[99] != "x99" {
		t.Errorf("got %d values: %q", len(c.Values), c.Values)
	}
}

// Requirement: CMP-04
func TestErrorsOfCompletion(t *testing.T) {
	s := completionServer()
	prompt := func(name string) map[string]any { return completeParams("ref/prompt", "travel", name, "") }
	change := func(params map[string]any, key string, v any) map[string]any {
		params[key] = v
		return params
	}
	for _, test := range []struct {
		params map[string]any
		code   int
		says   string
	}{
		{completeParams("ref/prompt", "travels", "city", ""), mcp.CodeInvalidParams, `unknown prompt "travels"`},
		{prompt("citi"), mcp.CodeInvalidParams, `no argument "citi", want one of ["country" "city"`},
		{completeParams("ref/resource", "city://{a}", "a", ""), mcp.CodeInvalidParams,
			`unknown resource or template "city://{a}"`},
		{completeParams("ref/resource", "city://world/{country}/{city}", "a", ""), mcp.CodeInvalidParams,
			`no argument "a"`},
		{completeParams("ref/resource", "x://plain", "a", ""), mcp.CodeInvalidParams, `no argument "a"`},
		{completeParams("ref/tool", "travel", "city", ""), mcp.CodeInvalidParams, "params.ref.type"},
		{completeParams("ref/prompt", "travel", "city", strings.Repeat("x", 8<<10+1)), mcp.CodeInvalidParams,
			"params.argument.value"},
		{nil, mcp.CodeInvalidParams, "params.ref.type is missing"},
		{change(prompt("city"), "ref", "travel"), mcp.CodeInvalidParams, "params.ref"},
		{change(prompt("city"), "ref", map[string]any{"type": "ref/prompt"}), mcp.CodeInvalidParams,
			"params.ref.name is missing"},
		{change(prompt("city"), "ref", map[string]any{"type": 5}), mcp.CodeInvalidParams,
			"params.ref.type: want a string"},
		{change(prompt("city"), "argument", map[string]any{"name": "city"}), mcp.CodeInvalidParams,
			"params.argument.value is missing"},
		{change(prompt("city"), "argument", map[string]any{"value": "x"}), mcp.CodeInvalidParams,
			"params.argument.name is missing"},
		{change(prompt("city"), "context", map[string]any{"arguments": []string{}}), mcp.CodeInvalidParams,
			"params.context.arguments"},
		{change(prompt("city"), "context", map[string]any{"arguments": map[string]any{"a": 1}}),
			mcp.CodeInvalidParams, "params.context.arguments"},
		{prompt("broken"), mcp.CodeInternalError, "internal error"},
		{prompt("panics"), mcp.CodeInternalError, "internal error"},
		{prompt("protocol"), 4711, "slow down"},
	} {
		got, err := serveModern(t, s, "completion/complete", test.params)
		wantError(t, got, err, test.code, test.says)
		if err != nil && strings.Contains(err.Message+string(err.Data), "secret") {
			t.Errorf("got %v, want no text of the handler's error", err)
		}
	}
}

// Requirement: CMP-01
func TestCapabilityIsDeclaredWithTheFirstCompletion(t *testing.T) {
	s := quietServer(mcp.ServerOptions{})
	registration := mcp.AddPrompt(s, &mcp.Prompt{Name: "p", Arguments: []mcp.PromptArgument{{Name: "a"}}},
		func(context.Context, map[string]string) (string, error) { return "", nil })
	got, err := serveModern(t, s, "completion/complete", completeParams("ref/prompt", "p", "a", ""))
	wantError(t, got, err, mcp.CodeMethodNotFound)
	got, err = serveModern(t, s, "server/discover", nil)
	if want(t, got, err); strings.Contains(got, `"completions"`) {
		t.Errorf("got %s, want no completions capability", got)
	}
	registration.Update(func(p *mcp.Prompt) {
		complete := func(context.Context, string, map[string]string) ([]string, error) { return []string{"b"}, nil }
		p.Complete = map[string]mcp.CompleteFunc{"a": complete}
	})
	got, err = serveModern(t, s, "server/discover", nil)
	want(t, got, err, `"completions":{}`)
	got, err = serveModern(t, s, "completion/complete", completeParams("ref/prompt", "p", "a", ""))
	want(t, got, err, `["b"]`)
}

// Requirement: CMP-06
func TestSuggestionsAreSortedAndRequestsValidated(t *testing.T) {
	s := quietServer(mcp.ServerOptions{})
	ranked := func(context.Context, string, map[string]string) ([]string, error) {
		return []string{"zeta", "alpha", "Mid", "beta"}, nil
	}
	mcp.AddPrompt(s, &mcp.Prompt{Name: "ranked", Arguments: []mcp.PromptArgument{{Name: "a"}},
		Complete: map[string]mcp.CompleteFunc{"a": ranked}},
		func(context.Context, map[string]string) (string, error) { return "", nil })
	mcp.AddPrompt(s, &mcp.Prompt{Name: "enum"}, func(context.Context, struct {
		A string `json:"a" jsonschema:"enum=gopher|cargo|Go"`
	}) (string, error) {
		return "", nil
	})
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		for prompt, want := range map[string][]string{
			"ranked": {"zeta", "alpha", "Mid", "beta"}, // the order of the function
			"enum":   {"gopher", "Go", "cargo"},        // values with the prefix first, without regard to case
		} {
			raw := c.Call("completion/complete", completeParams("ref/prompt", prompt, "a", "GO"))
			if got := decode[mcp.CompleteResult](t, raw).Completion.Values; !slices.Equal(got, want) {
				t.Errorf("%s: got %q, want %q", prompt, got, want)
			}
		}
		for _, bad := range []map[string]any{
			completeParams("ref/prompt", "unknown", "a", ""), completeParams("ref/prompt", "ranked", "unknown", ""),
			completeParams("ref/prompt", "ranked", "a", strings.Repeat("x", 8<<10+1)), {},
		} {
			_, err := c.Try("completion/complete", bad)
			wantCode(t, "invalid request", err, mcp.CodeInvalidParams)
		}
	})
}

// A program delays and caches its requests; the client shows it that a result is partial.
//
// Requirement: CMP-07
func TestClientReturnsPartialResults(t *testing.T) {
	h := mcp.HandlerFunc(func(_ context.Context, req *mcp.Request) (mcp.Result, error) {
		switch value := memberOf(t, req.Params, "argument"); {
		case req.Method == "server/discover":
			return mcp.RawResult(strings.Replace(discovered, `"tools"`, `"completions"`, 1)), nil
		case strings.Contains(value, "total"):
			return mcp.RawResult(`{"resultType":"complete","completion":{"values":["a"],"total":7,"hasMore":true}}`), nil
		case strings.Contains(value, "more"):
			return mcp.RawResult(`{"resultType":"complete","completion":{"values":["a"],"hasMore":true}}`), nil
		}
		return mcp.RawResult(`{"resultType":"complete","completion":{"values":[]}}`), nil
	})
	for _, on := range mcptest.Combinations() {
		synctest.Test(t, func(t *testing.T) {
			c := mcptest.Dial(t, h, on, nil)
			for value, want := range map[string]mcp.Completion{
				"total": {Values: []string{"a"}, Total: new(int64(7)), HasMore: true},
				"more":  {Values: []string{"a"}, HasMore: true},
				"":      {Values: []string{}},
			} {
				got, err := c.Complete(t.Context(), &mcp.CompleteParams{Prompt: "p",
					Argument: "a", Value: value})
				if err != nil || !cmp.Equal(*got, want) {
					t.Errorf("%s: %q: got %+v, %v, want %+v", on, value, got, err, want)
				}
			}
		})
	}
}

func ExampleCompleteFunc() {
	s := mcp.NewServer("maps", "1.0.0", nil)
	streets := map[string][]string{"Berne": {"Kramgasse", "Marktgasse"}, "Zurich": {"Bahnhofstrasse"}}
	byTown := func(_ context.Context, value string, args map[string]string) ([]string, error) {
		var found []string
		for _, street := range streets[args["town"]] {
			if strings.HasPrefix(street, value) {
				found = append(found, street)
			}
		}
		return found, nil
	}
	mcp.AddResourceTemplate(s, &mcp.ResourceTemplate{URITemplate: "map://{town}/{street}", Name: "street",
		Complete: map[string]mcp.CompleteFunc{"street": byTown}},
		func(_ context.Context, vars map[string]string) (string, error) { return vars["street"], nil })
	printResult(s, "completion/complete", `"ref":{"type":"ref/resource","uri":"map://{town}/{street}"},`+
		`"argument":{"name":"street","value":"K"},"context":{"arguments":{"town":"Berne"}}`)
	// Output: {"completion":{"values":["Kramgasse"],"total":1,"hasMore":false}}
}
