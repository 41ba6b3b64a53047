package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/mcp"
)

type reviewArgs struct {
	Code     string    `json:"code" jsonschema:"the code to review"`
	Language string    `json:"language,omitempty" jsonschema:"its language,title=Language,enum=go|python|rust,default=go"`
	Depth    int       `json:"depth,omitempty" jsonschema:"how deep,minimum=1,maximum=5"`
	Strict   *bool     `json:"strict,omitempty"`
	Before   time.Time `json:"before,omitzero"`
}

func reviewServer() *mcp.Server {
	s := quietServer(mcp.ServerOptions{})
	mcp.AddPrompt(s, &mcp.Prompt{Name: "review", Title: "Review", Description: "Review code."},
		func(_ context.Context, a reviewArgs) (string, error) {
			strict := "unset"
			if a.Strict != nil {
				strict = fmt.Sprint(*a.Strict)
			}
			return fmt.Sprintf("%s|%s|%d|%s|%d", a.Code, a.Language, a.Depth, strict, a.Before.Year()), nil
		})
	return s
}

func get(t *testing.T, s *mcp.Server, name string, args any) (string, *mcp.Error) {
	t.Helper()
	params := map[string]any{"name": name}
	if args != nil {
		params["arguments"] = args
	}
	return serveModern(t, s, "prompts/get", params)
}

// Requirement: PRM-02
func TestListShowsTheArgumentsOfTheInputType(t *testing.T) {
	got, err := serveModern(t, reviewServer(), "prompts/list", nil)
	want(t, got, err, `"prompts":[{"name":"review","title":"Review","description":"Review code.","arguments":[`+
		`{"name":"code","description":"the code to review","required":true},`+
		`{"name":"language","title":"Language","description":"its language"},`+
		`{"name":"depth","description":"how deep"},{"name":"strict"},{"name":"before"}]}],"ttlMs":0,"cacheScope":"private"`)
}

// Requirement: PRM-03
func TestArgumentsAreTyped(t *testing.T) {
	s := reviewServer()
	for _, test := range []struct {
		args map[string]string
		text string
	}{
		{map[string]string{"code": "x := 1"}, "x := 1|go|0|unset|1"},
		{map[string]string{"code": "", "language": "rust", "depth": "3", "strict": "false"}, "|rust|3|false|1"},
		{map[string]string{"code": "5", "depth": "", "strict": ""}, "5|go|0|unset|1"}, // empty fields of a form
		{map[string]string{"code": "true", "before": "2026-07-28T00:00:00Z"}, "true|go|0|unset|2026"},
	} {
		got, err := get(t, s, "review", test.args)
		want(t, got, err, `"description":"Review code.","messages":[{"role":"user","content":{"type":"text","text":"`+test.text+`"}}]`)
	}
}

// Requirement: PRM-04, PRM-05
func TestErrorsNameTheArgument(t *testing.T) {
	s := reviewServer()
	mcp.AddPrompt(s, &mcp.Prompt{Name: "free", Arguments: []mcp.PromptArgument{{Name: "topic", Required: true}, {Name: "tone"}}},
		func(_ context.Context, args map[string]string) (string, error) {
			return args["topic"] + args["tone"], nil
		})
	for _, test := range []struct {
		name string
		args any
		says []string
	}{
		{"reviews", nil, []string{`unknown prompt "reviews"`, `"review"`}},
		{"", nil, []string{`unknown prompt ""`}},
		{"nothing like it", nil, []string{`unknown prompt`}},
		{"review", nil, []string{"code"}},
		{"review", map[string]string{}, []string{"code"}},
		{"review", map[string]string{"code": "x", "langage": "go"}, []string{"langage", "language"}},
		{"review", map[string]string{"code": "x", "language": "pyton"}, []string{"language", "pyton", "python"}},
		{"review", map[string]string{"code": "x", "depth": "6"}, []string{"depth", "5"}},
		{"review", map[string]string{"code": "x", "depth": "deep"}, []string{"depth", "integer"}},
		{"review", map[string]string{"code": "x", "depth": " 5"}, []string{"depth"}},
		{"review", map[string]string{"code": "x", "depth": "99999999999999999999999"}, []string{"depth"}},
		{"review", map[string]string{"code": "x", "strict": "yes"}, []string{"strict"}},
		{"review", map[string]string{"code": "x", "before": "now"}, []string{"before"}},
		{"review", map[string]any{"code": 5}, []string{"code", "string"}},
		{"review", map[string]any{"code": nil}, []string{"code", "string"}},
		{"review", []string{"x"}, []string{"params.arguments"}},
		{"free", nil, []string{"topic"}},
		{"free", map[string]string{"topic": "x", "tonne": "y"}, []string{"tonne", "tone"}},
	} {
		got, err := get(t, s, test.name, test.args)
		wantError(t, got, err, mcp.CodeInvalidParams, test.says...)
	}
	got, err := get(t, s, "free", map[string]string{"topic": "a", "tone": "b"})
	want(t, got, err, `"text":"ab"`)
	got, err = serveModern(t, s, "prompts/get", nil)
	wantError(t, got, err, mcp.CodeInvalidParams, "params.name is missing")
}

// Requirement: PRM-04
func TestErrorsOfAPrompt(t *testing.T) {
	s := quietServer(mcp.ServerOptions{})
	add := func(name string, f func() (*mcp.GetPromptResult, error)) {
		mcp.AddPrompt(s, &mcp.Prompt{Name: name}, func(context.Context, struct{}) (*mcp.GetPromptResult, error) { return f() })
	}
	add("plain", func() (*mcp.GetPromptResult, error) { return nil, errors.New("secret") })
	add("panic", func() (*mcp.GetPromptResult, error) { panic("secret") })
	add("nil", func() (*mcp.GetPromptResult, error) { return nil, nil })
	add("protocol", func() (*mcp.GetPromptResult, error) { return nil, mcp.Errorf(4711, "not today") })
	for _, name := range []string{"plain", "panic", "nil"} {
		got, err := get(t, s, name, nil)
		wantError(t, got, err, mcp.CodeInternalError, "internal error")
		if err != nil && strings.Contains(err.Message+string(err.Data), "secret") {
			t.Errorf("%s: got %v, want no details", name, err)
		}
	}
	got, err := get(t, s, "protocol", nil)
	wantError(t, got, err, 4711, "not today")
}

// Requirement: PRM-03, PRM-08
func TestContentOfPromptMessages(t *testing.T) {
	s := quietServer(mcp.ServerOptions{})
	messages := []mcp.PromptMessage{
		{Content: mcp.Text("a")},
		{Role: mcp.RoleAssistant, Content: &mcp.ImageContent{Data: []byte{1}, MIMEType: "image/png"}},
		{Role: mcp.RoleUser, Content: &mcp.AudioContent{Data: []byte{2}, MIMEType: "audio/wav"}},
		{Content: &mcp.ResourceLink{URI: "x://a", Name: "a"}},
		{Content: &mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "x://b", MIMEType: "text/plain"}}},
	}
	mcp.AddPrompt(s, &mcp.Prompt{Name: "messages", Description: "D"}, func(context.Context, struct{}) ([]mcp.PromptMessage, error) { return messages, nil })
	mcp.AddPrompt(s, &mcp.Prompt{Name: "result", Description: "D"}, func(context.Context, map[string]string) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{Description: "E", Meta: mcp.Meta{"com.example/a": 1}}, nil
	})
	got, err := get(t, s, "messages", nil)
	want(t, got, err, `"description":"D","messages":[{"role":"user","content":{"type":"text","text":"a"}},`+
		`{"role":"assistant","content":{"type":"image","data":"AQ==","mimeType":"image/png"}},`+
		`{"role":"user","content":{"type":"audio","data":"Ag==","mimeType":"audio/wav"}},`+
		`{"role":"user","content":{"type":"resource_link","uri":"x://a","name":"a"}},`+
		`{"role":"user","content":{"type":"resource","resource":{"uri":"x://b","mimeType":"text/plain","text":""}}}]`)
	back := decode[struct{ Messages []mcp.PromptMessage }](t, json.RawMessage(got))
	for i := range messages {
		if messages[i].Role == "" {
			messages[i].Role = mcp.RoleUser
		}
	}
	if diff := cmp.Diff(messages, back.Messages); diff != "" {
		t.Error(diff)
	}
	got, err = get(t, s, "result", nil)
	want(t, got, err, `"com.example/a":1`, `"description":"E","messages":[]`)
}

// Requirement: PRM-07, PRM-08
func TestInvalidPromptMessagesAreNotEncoded(t *testing.T) {
	for what, m := range map[string]mcp.PromptMessage{
		"no content":   {},
		"role":         {Role: "system", Content: mcp.Text("a")},
		"image type":   {Content: &mcp.ImageContent{Data: []byte{1}}},
		"audio type":   {Content: &mcp.AudioContent{Data: []byte{1}}},
		"no resource":  {Content: &mcp.EmbeddedResource{}},
		"no URI":       {Content: &mcp.EmbeddedResource{Resource: &mcp.ResourceContents{MIMEType: "a/b"}}},
		"no MIME type": {Content: &mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "x://a"}}},
		"tool use":     {Content: &mcp.ToolUseContent{}},
	} {
		if raw, err := json.Marshal(m); err == nil {
			t.Errorf("%s: encoded to %s, want an error", what, raw)
		}
	}
	for _, bad := range []string{`{}`, `{"role":"user"}`, `{"role":"user","content":[]}`, `{"role":"user","content":{"type":"x"}}`, `{"role":"user","content":{}}`} {
		var m mcp.PromptMessage
		if err := json.Unmarshal([]byte(bad), &m); err == nil {
			t.Errorf("%s: decoded to %+v, want an error", bad, m)
		}
	}
}

// Requirement: PRM-11
func TestPromptsMayAsk(t *testing.T) {
	s := quietServer(mcp.ServerOptions{})
	mcp.AddPrompt(s, &mcp.Prompt{Name: "ask"}, func(ctx context.Context, _ struct{}) (string, error) {
		name, err := mcp.Ask[string](ctx, "name", "Who?", nil)
		return "Hello " + name, err
	})
	got, err := get(t, s, "ask", nil)
	want(t, got, err, `"resultType":"input_required"`)
	state := decode[struct{ RequestState string }](t, json.RawMessage(got)).RequestState
	got, err = serveModern(t, s, "prompts/get", map[string]any{"name": "ask", "requestState": state,
		"inputResponses": map[string]any{"name": map[string]any{"action": "accept", "content": map[string]any{"value": "Ann"}}}})
	want(t, got, err, `"text":"Hello Ann"`, `"resultType":"complete"`)
}

// Requirement: PAG-01
func TestPromptsAreListedInPages(t *testing.T) {
	s := quietServer(mcp.ServerOptions{PageSize: 1})
	for _, name := range []string{"b", "a"} {
		mcp.AddPrompt(s, &mcp.Prompt{Name: name}, func(context.Context, struct{}) (string, error) { return "", nil })
	}
	got, err := serveModern(t, s, "prompts/list", nil)
	want(t, got, err, `"prompts":[{"name":"a"}]`)
	cursor := decode[struct{ NextCursor string }](t, json.RawMessage(got)).NextCursor
	got, err = serveModern(t, s, "prompts/list", map[string]any{"cursor": cursor})
	want(t, got, err, `"prompts":[{"name":"b"}]`)
	if strings.Contains(got, "nextCursor") {
		t.Errorf("last page: got %s, want no nextCursor", got)
	}
}

// Requirement: PRM-02
func TestUpdatedAndRemovedPrompts(t *testing.T) {
	s := quietServer(mcp.ServerOptions{})
	handle := mcp.AddPrompt(s, &mcp.Prompt{Name: "p", Arguments: []mcp.PromptArgument{{Name: "a"}}},
		func(_ context.Context, args map[string]string) (string, error) { return args["b"], nil })
	got, err := get(t, s, "p", map[string]string{"b": "c"})
	wantError(t, got, err, mcp.CodeInvalidParams, "b")
	handle.Update(func(p *mcp.Prompt) { p.Arguments = []mcp.PromptArgument{{Name: "b", Title: "B"}} })
	got, err = get(t, s, "p", map[string]string{"b": "c"})
	want(t, got, err, `"text":"c"`)
	got, err = serveModern(t, s, "prompts/list", nil)
	want(t, got, err, `"arguments":[{"name":"b","title":"B"}]`)
	handle.Remove()
	got, err = get(t, s, "p", nil)
	wantError(t, got, err, mcp.CodeInvalidParams, "unknown prompt")
	got, err = serveModern(t, s, "prompts/list", nil)
	want(t, got, err, `"prompts":[]`)
}

// Requirement: PRM-05
func TestMistakesAtRegistrationPanic(t *testing.T) {
	s := quietServer(mcp.ServerOptions{})
	none := func(context.Context, struct{}) (string, error) { return "", nil }
	free := func(context.Context, map[string]string) (string, error) { return "", nil }
	mustPanic(t, "nil", "nil", func() { mcp.AddPrompt(s, nil, none) })
	mustPanic(t, "no name", "name is empty", func() { mcp.AddPrompt(s, &mcp.Prompt{}, none) })
	mustPanic(t, "input", "want a struct", func() {
		mcp.AddPrompt(s, &mcp.Prompt{Name: "p"}, func(context.Context, string) (string, error) { return "", nil })
	})
	mustPanic(t, "output", "want string", func() {
		mcp.AddPrompt(s, &mcp.Prompt{Name: "p"}, func(context.Context, struct{}) (int, error) { return 0, nil })
	})
	mustPanic(t, "list", `"l" is a list`, func() {
		mcp.AddPrompt(s, &mcp.Prompt{Name: "p"}, func(context.Context, struct {
			L []string `json:"l"`
		}) (string, error) {
			return "", nil
		})
	})
	mustPanic(t, "object", "want a string, a number", func() {
		mcp.AddPrompt(s, &mcp.Prompt{Name: "p"}, func(context.Context, struct {
			O struct{} `json:"o"`
		}) (string, error) {
			return "", nil
		})
	})
	mustPanic(t, "other arguments", `but the function takes`, func() {
		mcp.AddPrompt(s, &mcp.Prompt{Name: "p", Arguments: []mcp.PromptArgument{{Name: "x"}}}, none)
	})
	mustPanic(t, "argument twice", "empty or in use", func() {
		mcp.AddPrompt(s, &mcp.Prompt{Name: "p", Arguments: []mcp.PromptArgument{{Name: "x"}, {Name: "x"}}}, free)
	})
	mustPanic(t, "completion", "no such argument", func() {
		mcp.AddPrompt(s, &mcp.Prompt{Name: "p", Complete: map[string]mcp.CompleteFunc{"x": nil}}, free)
	})
	mustPanic(t, "nil completion", "is nil", func() {
		mcp.AddPrompt(s, &mcp.Prompt{Name: "p", Arguments: []mcp.PromptArgument{{Name: "x"}}, Complete: map[string]mcp.CompleteFunc{"x": nil}}, free)
	})
	handle := mcp.AddPrompt(s, &mcp.Prompt{Name: "p"}, none)
	mustPanic(t, "rename", "cannot become", func() { handle.Update(func(p *mcp.Prompt) { p.Name = "q" }) })
}

func ExampleAddPrompt() {
	type args struct {
		Language string `json:"language" jsonschema:"the language to answer in,enum=English|German"`
		Words    int    `json:"words,omitempty" jsonschema:"how long,default=50"`
	}
	s := mcp.NewServer("prompts", "1.0.0", nil)
	mcp.AddPrompt(s, &mcp.Prompt{Name: "summary", Title: "Summarize"},
		func(_ context.Context, a args) (string, error) {
			return fmt.Sprintf("Summarize the last document in %d words of %s.", a.Words, a.Language), nil
		})
	printResult(s, "prompts/list", "")
	printResult(s, "prompts/get", `"name":"summary","arguments":{"language":"German","words":"20"}`)
	// Output:
	// {"prompts":[{"name":"summary","title":"Summarize","arguments":[{"name":"language","description":"the language to answer in","required":true},{"name":"words","description":"how long"}]}],"ttlMs":0,"cacheScope":"private"}
	// {"messages":[{"role":"user","content":{"type":"text","text":"Summarize the last document in 20 words of German."}}]}
}
