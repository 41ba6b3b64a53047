package mcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/mcp"
)

type color string

func (color) Enum() []color { return []color{"red", "green", "blue"} }

// requestedForm returns the schema of the form with the key "a".
func requestedForm(t *testing.T, r reply) string {
	t.Helper()
	var p mcp.ElicitRequestParams
	if err := json.Unmarshal(r.InputRequests["a"].Params, &p); err != nil || p.Mode != "form" {
		t.Fatalf("got %+v: %v", r, err)
	}
	return string(p.RequestedSchema)
}

// askForm returns a handler that asks for a T and returns it as JSON.
func askForm[T any](opts *mcp.AskOptions) func(ctx context.Context, _ json.RawMessage) (string, error) {
	return func(ctx context.Context, _ json.RawMessage) (string, error) {
		v, err := mcp.Ask[T](ctx, "a", "What?", opts)
		if err != nil {
			return "", err
		}
		b, err := json.Marshal(v)
		return string(b), err
	}
}

// A formTest is a question, its form, and an answer with its result.
type formTest struct {
	name         string
	ask          func(ctx context.Context, _ json.RawMessage) (string, error)
	form, answer string
	want         string
}

// run tests that the form is requested, and that the result of the response is the wanted text.
func (test *formTest) run(t *testing.T, response string) {
	t.Helper()
	p := newHandlerPeer(t, nil, test.ask)
	r := p.call("t", "", "", "")
	if diff := cmp.Diff(test.form, requestedForm(t, r)); diff != "" {
		t.Errorf("form (-want +got):\n%s", diff)
	}
	if r = p.call("t", "", `{"a":`+response+`}`, r.RequestState); r.text() != test.want {
		t.Errorf("response %s: got %+v, want %s", response, r, test.want)
	}
}

// Requirement: ELI-07
func TestTypesBecomeForms(t *testing.T) {
	type everyField struct {
		Text   string   `json:"text" jsonschema:"some text,title=Text,minLength=2,maxLength=9"`
		Mail   string   `json:"mail,omitempty" jsonschema:"where to write,format=email,default=a@example.com"`
		Count  int      `json:"count" jsonschema:"how many,minimum=1,maximum=9,default=3"`
		Score  float64  `json:"score" jsonschema:"how good,default=95.5"`
		Sure   bool     `json:"sure" jsonschema:"is it so,default=true"`
		Color  color    `json:"color" jsonschema:"which,default=red"`
		Size   string   `json:"size" jsonschema:"how large,enum=s|l,titles=Small|Large,default=s"`
		Colors []color  `json:"colors" jsonschema:"which ones,minItems=1,maxItems=2,default=red|blue"`
		Sizes  []string `json:"sizes,omitempty" jsonschema:"which sizes,enum=s|l,titles=Small|Large"`
	}
	for _, test := range []formTest{
		{"string", askForm[string](nil),
			`{"type":"object","properties":{"value":{"type":"string"}},"required":["value"]}`,
			`{"value":"x"}`, `"x"`},
		{"bool", askForm[bool](nil), `{"type":"object","properties":{"value":{"type":"boolean"}},"required":["value"]}`,
			`{"value":true}`, `true`},
		{"int", askForm[int](nil), `{"type":"object","properties":{"value":{"type":"integer"}},"required":["value"]}`,
			`{"value":5.0}`, `5`},
		{"float", askForm[float64](nil),
			`{"type":"object","properties":{"value":{"type":"number"}},"required":["value"]}`,
			`{"value":2.5}`, `2.5`},
		{"optional", askForm[*string](nil), `{"type":"object","properties":{"value":{"type":"string"}}}`,
			`{}`, `null`},
		{"time", askForm[time.Time](nil),
			`{"type":"object","properties":{"value":{"type":"string","format":"date-time"}},` +
				`"required":["value"]}`,
			`{"value":"2026-07-28T00:00:00Z"}`, `"2026-07-28T00:00:00Z"`},
		{"enum", askForm[color](nil),
			`{"type":"object","properties":{"value":{"type":"string","enum":["red","green","blue"]}},` +
				`"required":["value"]}`,
			`{"value":"green"}`, `"green"`},
		{"enums", askForm[[]color](nil),
			`{"type":"object","properties":{"value":{"type":"array","items":{"type":"string","enum":["red",` +
				`"green","blue"]}}},"required":["value"]}`,
			`{"value":["green","red"]}`, `["green","red"]`},
		{"struct", askForm[everyField](nil), `{"type":"object","properties":{` +
			`"text":{"type":"string","description":"some text","title":"Text","minLength":2,"maxLength":9},` +
			`"mail":{"type":"string","description":"where to write","format":"email","default":"a@example.com"},` +
			`"count":{"type":"integer","description":"how many","minimum":1,"maximum":9,"default":3},` +
			`"score":{"type":"number","description":"how good","default":95.5},` +
			`"sure":{"type":"boolean","description":"is it so","default":true},` +
			`"color":{"type":"string","description":"which","enum":["red","green","blue"],"default":"red"},` +
			`"size":{"type":"string","description":"how large","oneOf":[{"const":"s","title":"Small"},` +
			`{"const":"l","title":"Large"}],"default":"s"},` +
			`"colors":{"type":"array","description":"which ones","items":{"type":"string","enum":["red",` +
			`"green","blue"]},"minItems":1,"maxItems":2,"default":["red","blue"]},` +
			`"sizes":{"type":"array","description":"which sizes","items":{"anyOf":[{"const":"s",` +
			`"title":"Small"},{"const":"l","title":"Large"}]}}` +
			`},"required":["text"]}`,
			`{"text":"ok","mail":null}`,
			`{"text":"ok","mail":"a@example.com","count":3,"score":95.5,"sure":true,"color":"red",` +
				`"size":"s","colors":["red","blue"]}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.run(t, acceptJSON(test.answer))
		})
	}
}

// Requirement: ELI-08
func TestOptionsMayHaveAnySchemaOfAForm(t *testing.T) {
	const whole = `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","properties":{` +
		`"untitled":{"type":"string","enum":["a","b"],"default":"a"},` +
		`"titled":{"type":"string","oneOf":[{"const":"a","title":"A"}]},` +
		`"named":{"type":"string","enum":["a","b"],"enumNames":["A","B"]},` +
		`"several":{"type":"array","items":{"type":"string","enum":["a","b"]}},` +
		`"severalTitled":{"type":"array","items":{"anyOf":[{"const":"a","title":"A"}]}}},"required":["titled"]}`
	const one = `{"type":"string","title":"Stage","oneOf":[{"const":"p","title":"Production"}]}`
	for _, test := range []formTest{
		{"for a map", askForm[map[string]any](&mcp.AskOptions{Schema: json.RawMessage(whole)}), whole,
			`{"titled":"a"}`, `{"titled":"a","untitled":"a"}`},
		{"for raw JSON", askForm[json.RawMessage](&mcp.AskOptions{Schema: json.RawMessage(whole)}), whole,
			`{"titled":"a","several":["b"]}`, `{"titled":"a","several":["b"],"untitled":"a"}`},
		{"for any", askForm[any](&mcp.AskOptions{Schema: json.RawMessage(whole)}), whole,
			`{"titled":"a"}`, `{"titled":"a","untitled":"a"}`},
		{"for a struct", askForm[struct {
			Titled string `json:"titled"`
		}](&mcp.AskOptions{Schema: json.RawMessage(whole)}), whole, `{"titled":"a"}`, `{"titled":"a"}`},
		{"for one value", askForm[string](&mcp.AskOptions{Schema: json.RawMessage(one)}),
			`{"type":"object","properties":{"value":` + one + `},"required":["value"]}`, `{"value":"p"}`, `"p"`},
		{"for one value with a default", askForm[int](&mcp.AskOptions{Schema: json.RawMessage(
			`{"type":"integer","default":4}`)}),
			`{"type":"object","properties":{"value":{"type":"integer","default":4}}}`, `{}`, `4`},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.run(t, acceptJSON(test.answer))
		})
	}
}

// Requirement: ELI-09
func TestOptionsMayHaveDefaults(t *testing.T) {
	type issue struct {
		Title string `json:"title" jsonschema:"of the issue,default=untitled"`
		Votes int    `json:"votes,omitempty"`
	}
	for _, test := range []struct {
		name       string
		ask        func(ctx context.Context, _ json.RawMessage) (string, error)
		form, want string
	}{
		{"struct", askForm[issue](&mcp.AskOptions{Default: issue{Title: "Crash"}}),
			`{"type":"object","properties":{"title":{"type":"string","description":"of the issue",` +
				`"default":"Crash"},"votes":{"type":"integer"}}}`,
			`{"title":"Crash"}`},
		{"map", askForm[issue](&mcp.AskOptions{Default: map[string]int{"votes": 3}}),
			`{"type":"object","properties":{"title":{"type":"string","description":"of the issue",` +
				`"default":"untitled"},"votes":{"type":"integer","default":3}}}`,
			`{"title":"untitled","votes":3}`},
		{"one value", askForm[color](&mcp.AskOptions{Default: color("blue")}),
			`{"type":"object","properties":{"value":{"type":"string","enum":["red","green","blue"],` +
				`"default":"blue"}},"required":["value"]}`,
			`"blue"`},
		{"false", askForm[bool](&mcp.AskOptions{Default: false}),
			`{"type":"object","properties":{"value":{"type":"boolean","default":false}},` +
				`"required":["value"]}`, `false`},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := formTest{name: test.name, ask: test.ask, form: test.form, want: test.want}
			f.run(t, `{"action":"accept"}`)
		})
	}
}

// Requirement: ELI-25
func TestContentThatDoesNotMatchIsAskedAgain(t *testing.T) {
	for name, test := range map[string]struct {
		ask    func(ctx context.Context, _ json.RawMessage) (string, error)
		answer string
	}{
		"not in the enum":         {askForm[color](nil), `{"value":"pink"}`},
		"one not in the enum":     {askForm[[]color](nil), `{"value":["red","pink"]}`},
		"a fraction":              {askForm[int](nil), `{"value":1.5}`},
		"beyond the type's range": {askForm[int](nil), `{"value":99999999999999999999}`},
		"beyond a small type":     {askForm[int8](nil), `{"value":200}`},
		"null for a required one": {askForm[bool](nil), `{"value":null}`},
		"not in a given schema": {askForm[string](&mcp.AskOptions{Schema: json.RawMessage(
			`{"type":"string","oneOf":[{"const":"p","title":"P"}]}`)}), `{"value":"q"}`},
		"another case of a name": {askForm[bool](nil), `{"Value":true}`},
		"text for a boolean":     {askForm[bool](nil), `{"value":"true"}`},
	} {
		t.Run(name, func(t *testing.T) {
			p := newHandlerPeer(t, nil, test.ask)
			r := p.call("t", "", "", "")
			if r = p.call("t", "", `{"a":`+acceptJSON(test.answer)+`}`, r.RequestState); r.ResultType != "input_required" {
				t.Errorf("got %+v, want input_required", r)
			}
		})
	}
}

// Requirement: ELI-07
func TestOtherSchemasAreErrors(t *testing.T) {
	withSchema := func(s string) func(ctx context.Context, _ json.RawMessage) (string, error) {
		return askForm[map[string]any](&mcp.AskOptions{Schema: json.RawMessage(s)})
	}
	for name, test := range map[string]struct {
		ask  func(ctx context.Context, _ json.RawMessage) (string, error)
		says string
	}{
		"a nested struct":         {askForm[struct{ In struct{ A int } }](nil), "form"},
		"a map without a schema":  {askForm[map[string]int](nil), "form"},
		"a list of free text":     {askForm[[]string](nil), "form"},
		"a schema of a string":    {withSchema(`{"type":"string"}`), "its type must be object"},
		"a schema without fields": {withSchema(`{"type":"object"}`), "no properties"},
		"a field of an object":    {withSchema(`{"type":"object","properties":{"a":{"type":"object"}}}`), `field "a"`},
		"a field of two types": {withSchema(`{"type":"object","properties":{"a":{"type":["string","null"]}}}`),
			`field "a"`},
		"a field of any type": {withSchema(`{"type":"object","properties":{"a":{}}}`), `field "a"`},
		"a list of numbers": {withSchema(
			`{"type":"object","properties":{"a":{"type":"array","items":{"type":"number"}}}}`), `field "a"`},
		"invalid JSON": {withSchema(`{"type":"object"`), "schema"},
		"a schema with more JSON": {askForm[string](&mcp.AskOptions{Schema: json.RawMessage(
			`{"type":"string"},"x":{}`)}), "schema"},
		"a default without field": {askForm[named](&mcp.AskOptions{Default: map[string]int{"age": 3}}), `"age"`},
		"a default of text":       {askForm[named](&mcp.AskOptions{Default: "Ada"}), "must encode to an object"},
		"a default without JSON":  {askForm[named](&mcp.AskOptions{Default: func() {}}), "default"},
		"no message": {func(ctx context.Context, _ json.RawMessage) (string, error) {
			return mcp.Ask[string](ctx, "a", "", nil)
		}, "the message is empty"},
		"no key": {func(ctx context.Context, _ json.RawMessage) (string, error) {
			return mcp.Ask[string](ctx, "", "What?", nil)
		}, "no key"},
		"no question": {func(ctx context.Context, _ json.RawMessage) (string, error) {
			return "", mcp.AskAll(ctx, mcp.Question{})
		}, "no key"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newHandlerPeer(t, nil, test.ask).call("t", "", "", "")
			if !r.IsError || !strings.Contains(r.text(), test.says) {
				t.Errorf("got %+v, want a tool error with %s", r, test.says)
			}
		})
	}
}

// Requirement: ELI-06, ELI-33
func TestAskURLSendsTheURL(t *testing.T) {
	p := newHandlerPeer(t, nil, func(ctx context.Context, _ json.RawMessage) (string, error) {
		return "agreed", mcp.AskURL(ctx, "a", "https://example.com/connect?to=x", "Connect your account.")
	})
	r := p.call("t", "", "", "")
	const want = `{"mode":"url","message":"Connect your account.","url":"https://example.com/connect?to=x"}`
	if got := string(r.InputRequests["a"].Params); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, answer := range []string{`{"action":"accept"}`, `{"action":"accept","content":{}}`} {
		if r := p.call("t", "", `{"a":`+answer+`}`, r.RequestState); r.text() != "agreed" {
			t.Errorf("%s: got %+v, want agreed", answer, r)
		}
	}
	if r := p.call("t", "", `{"a":{"action":"cancel"}}`, r.RequestState); !r.IsError ||
		r.text() != `question "a": mcp: dismissed by the user` {
		t.Errorf("cancel: got %+v", r)
	}
}

// Requirement: ELI-06
func TestOnlySafeURLsAreSent(t *testing.T) {
	for url, valid := range map[string]bool{
		"https://example.com/":             true,
		"https://example.com:8443/a?b=c#d": true,
		"http://localhost:3000/":           true,
		"http://LOCALHOST/":                true,
		"http://127.0.0.1:3000/":           true,
		"http://127.9.9.9/":                true,
		"http://[::1]:3000/":               true,
		"http://example.com/":              false,
		"http://localhost.example.com/":    false,
		"http://10.0.0.1/":                 false,
		"javascript:alert(1)":              false,
		"file:///etc/passwd":               false,
		"https:///path":                    false,
		"https:example.com":                false,
		"/relative":                        false,
		"":                                 false,
		"https://user:secret@example.com/": false,
		"https://example.com/%zz":          false,
		"https://exa mple.com/":            false,
		"https://example.com/" + strings.Repeat("a", 8<<10): false,
	} {
		p := newHandlerPeer(t, nil, func(ctx context.Context, _ json.RawMessage) (string, error) {
			return "", mcp.AskURL(ctx, "a", url, "Visit?")
		})
		if r := p.call("t", "", "", ""); (r.ResultType == "input_required") != valid {
			t.Errorf("%.60q: got %+v, want valid %v", url, r, valid)
		}
	}
}

func ExampleAsk() {
	type booking struct {
		Date  string `json:"date" jsonschema:"when to arrive,format=date"`
		Seats int    `json:"seats" jsonschema:"how many seats,minimum=1,maximum=8,default=2"`
		Where string `json:"where" jsonschema:"inside or outside,enum=in|out,titles=Inside|Outside,default=in"`
	}
	s := mcp.NewServer("restaurant", "1.0.0", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "book", Description: "Book a table."},
		func(ctx context.Context, _ struct{}) (string, error) {
			b, err := mcp.Ask[booking](ctx, "booking", "What shall we book?", nil)
			if err != nil {
				return "", err
			}
			return fmt.Sprintf("a table for %d on %s", b.Seats, b.Date), nil
		})
}
