package mcp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// allCapabilities are the capabilities of a client that supports all input requests.
const allCapabilities = `{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{},"context":{}},"roots":{}}`

// A peer sends requests directly to a handler, without a client and transport.
type handlerPeer struct {
	testing.TB
	handler   mcp.Handler
	revision  string // default: the newest
	caps      string // default: allCapabilities
	principal *mcp.Principal
	notify    func(method string, params json.RawMessage)
}

// A reply is the response to a request of a peer.
type reply struct {
	ResultType    string
	InputRequests map[string]mcp.InputRequest
	RequestState  string
	Content       []struct{ Type, Text string }
	IsError       bool
	Err           *jsonrpc.Error `json:"-"`
}

// text returns the text of a complete tool result.
func (r reply) text() string {
	var b strings.Builder
	for _, c := range r.Content {
		b.WriteString(c.Text)
	}
	return b.String()
}

// keys returns the keys of the input requests.
func (r reply) keys() (keys []string) {
	for _, k := range []string{"a", "b", "c", "d", "roots"} {
		if _, ok := r.InputRequests[k]; ok {
			keys = append(keys, k)
		}
	}
	return keys
}

// send sends one request. members are pairs of name and value.
func (p *handlerPeer) send(method string, members ...any) reply {
	p.Helper()
	revision, caps := p.revision, p.caps
	if revision == "" {
		revision = "2026-07-28"
	}
	if caps == "" {
		caps = allCapabilities
	}
	params := map[string]any{"_meta": map[string]any{
		"io.modelcontextprotocol/protocolVersion":    revision,
		"io.modelcontextprotocol/clientCapabilities": json.RawMessage(caps),
		"progressToken": 7,
	}}
	for i := 0; i < len(members); i += 2 {
		if members[i+1] != nil && members[i+1] != "" {
			params[members[i].(string)] = members[i+1]
		}
	}
	raw, err := json.Marshal(params)
	if err != nil {
		p.Fatal(err)
	}
	req, err := mcp.NewRequest(&jsonrpc.Message{ID: jsonrpc.IntID(1), Method: method, Params: raw})
	if err != nil {
		p.Fatal(err)
	}
	req.Principal = p.principal
	req.Notify = func(_ context.Context, method string, params json.RawMessage) error {
		if p.notify != nil {
			p.notify(method, params)
		}
		return nil
	}
	msg := mcp.Driver(p.handler).Respond(p.Context(), req)
	if msg.Error != nil {
		return reply{Err: msg.Error}
	}
	var r reply
	if err := json.Unmarshal(msg.Result, &r); err != nil {
		p.Fatalf("%v: %s", err, msg.Result)
	}
	return r
}

// call calls a tool. args and answers are JSON objects, state is the request state of the last
// reply. All may be empty.
func (p *handlerPeer) call(tool, args, answers, state string) reply {
	p.Helper()
	raw := func(s string) any {
		if s == "" {
			return nil
		}
		return json.RawMessage(s)
	}
	return p.send("tools/call", "name", tool, "arguments", raw(args), "inputResponses", raw(answers),
		"requestState", state)
}

// newHandlerPeer returns a peer of a server with the single tool "t".
func newHandlerPeer(
	t testing.TB, opts *mcp.ServerOptions, f func(ctx context.Context, args json.RawMessage) (string, error),
) *handlerPeer {
	s := mcp.NewServer("test", "1", opts)
	mcp.AddTool(s, &mcp.Tool{Name: "t", InputSchema: json.RawMessage(`{"type":"object"}`)}, f)
	return &handlerPeer{TB: t, handler: s}
}

// discardLogger returns a logger that discards everything.
func discardLogger() *slog.Logger { return slog.New(slog.DiscardHandler) }

// acceptJSON returns the result of a user who accepts a form with the content.
func acceptJSON(content string) string { return `{"action":"accept","content":` + content + `}` }

type named struct {
	Name string `json:"name" jsonschema:"your name,minLength=1"`
}

// Requirement: MRTR-01, TOOL-28
func TestQuestionEndsTheRunAndAnswerStartsAnother(t *testing.T) {
	runs := 0
	p := newHandlerPeer(t, nil, func(ctx context.Context, _ json.RawMessage) (string, error) {
		runs++
		who, err := mcp.Ask[named](ctx, "a", "Who are you?", nil)
		if err != nil {
			return "", err
		}
		return "Hello, " + who.Name, nil
	})
	r := p.call("t", "", "", "")
	if r.Err != nil || r.ResultType != "input_required" || r.RequestState == "" || len(r.Content) != 0 {
		t.Fatalf("first round: got %+v", r)
	}
	want := map[string]mcp.InputRequest{"a": {Method: "elicitation/create",
		Params: json.RawMessage(`{"mode":"form","message":"Who are you?",` +
			`"requestedSchema":{"type":"object","properties":{"name":` +
			`{"type":"string","description":"your name","minLength":1}},"required":["name"]}}`)}}
	asText := cmp.Transformer("text", func(m json.RawMessage) string { return string(m) })
	if diff := cmp.Diff(want, r.InputRequests, asText); diff != "" {
		t.Errorf("question (-want +got):\n%s", diff)
	}
	r = p.call("t", "", `{"a":`+acceptJSON(`{"name":"Ada"}`)+`}`, r.RequestState)
	if r.ResultType != "complete" || r.text() != "Hello, Ada" || runs != 2 {
		t.Errorf("second round: got %+v after %d runs", r, runs)
	}
}

// Requirement: MRTR-16
func TestStateHoldsEarlierAnswers(t *testing.T) {
	p := newHandlerPeer(t, nil, func(ctx context.Context, _ json.RawMessage) (string, error) {
		sum := 0
		for _, key := range []string{"a", "b", "c"} {
			n, err := mcp.Ask[int](ctx, key, "How many "+key+"?", nil)
			if err != nil {
				return "", err
			}
			sum += n
		}
		return fmt.Sprint(sum), nil
	})
	states := map[string]bool{}
	r := p.call("t", `{"x":1}`, "", "")
	for i, key := range []string{"a", "b", "c"} {
		if diff := cmp.Diff([]string{key}, r.keys()); diff != "" {
			t.Fatalf("round %d asks (-want +got):\n%s", i, diff)
		}
		states[r.RequestState] = true
		r = p.call("t", `{"x":1}`, fmt.Sprintf(`{%q:%s}`, key, acceptJSON(fmt.Sprintf(`{"value":%d}`, i+1))),
			r.RequestState)
	}
	if r.text() != "6" || len(states) != 3 {
		t.Errorf("got %+v and %d different states, want text 6 and 3", r, len(states))
	}
}

func TestPendingQuestionReplacesTheResult(t *testing.T) {
	for name, f := range map[string]func(ctx context.Context) (string, error){
		"swallowed error": func(ctx context.Context) (string, error) {
			_, _ = mcp.Ask[bool](ctx, "a", "Go on?", nil)
			return "done", nil
		},
		"another error": func(ctx context.Context) (string, error) {
			_, _ = mcp.Ask[bool](ctx, "a", "Go on?", nil)
			return "", errors.New("broken")
		},
		"protocol error": func(ctx context.Context) (string, error) {
			_, _ = mcp.Ask[bool](ctx, "a", "Go on?", nil)
			return "", mcp.Errorf(mcp.CodeInvalidParams, "no")
		},
		"wrapped error": func(ctx context.Context) (string, error) {
			_, err := mcp.Ask[bool](ctx, "a", "Go on?", nil)
			return "", fmt.Errorf("deploy: %w", err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newHandlerPeer(t, nil, func(ctx context.Context, _ json.RawMessage) (string, error) { return f(ctx) })
			if r := p.call("t", "", "", ""); r.ResultType != "input_required" {
				t.Errorf("got %+v, want input_required", r)
			}
		})
	}
}

func TestToolWithOutputSchemaAsks(t *testing.T) {
	type out struct {
		Name color `json:"name"`
	}
	s := mcp.NewServer("test", "1", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "typed"}, func(ctx context.Context, _ struct{}) (out, error) {
		_, _ = mcp.Ask[named](ctx, "a", "Who?", nil)
		return out{}, nil // does not match the schema of color
	})
	mcp.AddTool(s, &mcp.Tool{Name: "raw", OutputSchema: json.RawMessage(`{"type":"object"}`)},
		func(ctx context.Context, _ struct{}) (*mcp.CallToolResult, error) {
			_, _ = mcp.Ask[named](ctx, "a", "Who?", nil)
			return &mcp.CallToolResult{}, nil
		})
	p := &handlerPeer{TB: t, handler: s}
	for _, tool := range []string{"typed", "raw"} {
		if r := p.call(tool, "", "", ""); r.ResultType != "input_required" {
			t.Errorf("%s: got %+v, want input_required", tool, r)
		}
	}
}

func TestMiddlewareMayRunAHandlerThatAsksTwice(t *testing.T) {
	twice := func(next mcp.Handler) mcp.Handler {
		return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
			if _, err := next.ServeMCP(ctx, req); err != nil {
				return nil, err
			}
			return next.ServeMCP(ctx, req)
		})
	}
	n := 0
	p := newHandlerPeer(t, &mcp.ServerOptions{Middleware: []mcp.Middleware{twice}},
		func(ctx context.Context, _ json.RawMessage) (string, error) {
			n++
			if _, err := mcp.Once(ctx, "once", func(context.Context) (int, error) { return n, nil }); err != nil {
				return "", err
			}
			_, err := mcp.Ask[bool](ctx, "a", fmt.Sprintf("Run %d?", n), nil)
			return "done", err
		})
	if r := p.call("t", "", "", ""); r.ResultType != "input_required" ||
		!strings.Contains(string(r.InputRequests["a"].Params), "Run 2?") {
		t.Errorf("got %+v, want the question of run 2", r)
	}
}

// Requirement: MRTR-05, ELI-04
func TestUnsupportedInputIsNotRequested(t *testing.T) {
	form := func(ctx context.Context) error { _, err := mcp.Ask[bool](ctx, "a", "Sure?", nil); return err }
	page := func(ctx context.Context) error { return mcp.AskURL(ctx, "a", "https://example.com/", "Visit?") }
	sample := func(p mcp.CreateMessageParams) func(ctx context.Context) error {
		p.MaxTokens = 10
		if p.Messages == nil {
			p.Messages = []mcp.SamplingMessage{{Role: mcp.RoleUser, Content: []mcp.ContentBlock{mcp.Text("hi")}}}
		}
		return func(ctx context.Context) error { _, err := mcp.Sample(ctx, "a", &p); return err }
	}
	roots := func(ctx context.Context) error { _, err := mcp.Roots(ctx); return err }
	several := func(ctx context.Context) error {
		var colors []color
		return mcp.AskAll(ctx, mcp.FormQuestion("a", "Which?", &colors, nil))
	}
	audio := []mcp.SamplingMessage{{Role: mcp.RoleUser,
		Content: []mcp.ContentBlock{&mcp.AudioContent{MIMEType: "audio/wav"}}}}
	for _, test := range []struct {
		name, revision, caps string
		ask                  func(context.Context) error
		required             string // JSON of the required capabilities, or the message
	}{
		{"form", "", `{}`, form, `{"elicitation":{}}`},
		{"form, only URL", "", `{"elicitation":{"url":{}}}`, form, `{"elicitation":{"form":{}}}`},
		{"form, before elicitation", "2025-03-26", allCapabilities, form, `{"elicitation":{}}`},
		{"URL", "", `{"elicitation":{}}`, page, `{"elicitation":{"url":{}}}`},
		{"URL, before its revision", "2025-06-18", allCapabilities, page, `{"elicitation":{"url":{}}}`},
		{"multiple choice, before its revision", "2025-06-18", allCapabilities, several,
			"protocol revision 2025-06-18 has no forms with multiple choice, which this request needs"},
		{"sampling", "", `{"elicitation":{}}`, sample(mcp.CreateMessageParams{}), `{"sampling":{}}`},
		{"sampling with tools", "", `{"sampling":{}}`,
			sample(mcp.CreateMessageParams{Tools: []*mcp.Tool{{Name: "x"}}}), `{"sampling":{"tools":{}}}`},
		{"sampling with a tool choice", "", `{"sampling":{}}`,
			sample(mcp.CreateMessageParams{ToolChoice: &mcp.ToolChoice{}}), `{"sampling":{"tools":{}}}`},
		{"sampling with context", "", `{"sampling":{}}`,
			sample(mcp.CreateMessageParams{IncludeContext: "thisServer"}), `{"sampling":{"context":{}}}`},
		{"sampling of audio, before its revision", "2024-11-05", allCapabilities,
			sample(mcp.CreateMessageParams{Messages: audio}),
			"protocol revision 2024-11-05 has no audio content, which this request needs"},
		{"roots", "", `{}`, roots, `{"roots":{}}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			handled := false
			p := newHandlerPeer(t, nil, func(ctx context.Context, _ json.RawMessage) (string, error) {
				err := test.ask(ctx)
				if !errors.Is(err, errors.ErrUnsupported) {
					t.Errorf("got error %v, want ErrUnsupported", err)
				}
				if handled {
					return "handled", nil
				}
				return "", err
			})
			p.revision, p.caps = test.revision, test.caps
			r := p.call("t", "", "", "")
			if r.Err == nil {
				t.Fatalf("got %+v, want an error", r)
			}
			want, code := test.required, mcp.CodeInvalidRequest
			got := r.Err.Message
			if strings.HasPrefix(want, "{") {
				want, got = `{"requiredCapabilities":`+want+`}`, string(r.Err.Data)
				code = driver.CodeMissingRequiredClientCapability
			}
			if got != want || r.Err.Code != code {
				t.Errorf("got %d %s, want %d %s", r.Err.Code, got, code, want)
			}
			handled = true
			if r := p.call("t", "", "", ""); r.text() != "handled" {
				t.Errorf("handler that ignores the error: got %+v, want handled", r)
			}
		})
	}
}

// Requirement: MRTR-05
func TestUnsupportedQuestionFailsTheWholeAskAll(t *testing.T) {
	p := newHandlerPeer(t, nil, func(ctx context.Context, _ json.RawMessage) (string, error) {
		var ok bool
		var roots []mcp.Root
		err := mcp.AskAll(ctx, mcp.FormQuestion("a", "Sure?", &ok, nil), mcp.RootsQuestion("b", &roots))
		return fmt.Sprint(errors.Is(err, errors.ErrUnsupported)), nil
	})
	p.caps = `{"elicitation":{}}`
	if r := p.call("t", "", "", ""); r.text() != "true" {
		t.Errorf("got %+v, want ErrUnsupported", r)
	}
}

// Requirement: MRTR-17
func TestMalformedAnswerIsInvalidParams(t *testing.T) {
	// Handlers ignore the error: the call fails anyway.
	ignoreError := func(ask func(ctx context.Context) error) *handlerPeer {
		return newHandlerPeer(t, nil, func(ctx context.Context, _ json.RawMessage) (string, error) {
			_ = ask(ctx)
			return "done", nil
		})
	}
	form := ignoreError(func(ctx context.Context) error { _, err := mcp.Ask[named](ctx, "a", "Who?", nil); return err })
	page := ignoreError(func(ctx context.Context) error {
		return mcp.AskURL(ctx, "a", "https://example.com/", "Visit?")
	})
	sample := ignoreError(func(ctx context.Context) error {
		_, err := mcp.Sample(ctx, "a", &mcp.CreateMessageParams{MaxTokens: 5,
			Messages: []mcp.SamplingMessage{{Role: mcp.RoleUser, Content: []mcp.ContentBlock{mcp.Text("hi")}}}})
		return err
	})
	roots := ignoreError(func(ctx context.Context) error {
		var r []mcp.Root
		return mcp.AskAll(ctx, mcp.RootsQuestion("a", &r))
	})
	for _, test := range []struct {
		name   string
		peer   *handlerPeer
		answer string
	}{
		{"form, number", form, `12345`},
		{"form, null", form, `null`},
		{"form, no action", form, `{"content":{"name":"x"}}`},
		{"form, unknown action", form, `{"action":"maybe"}`},
		{"form, action in capitals", form, `{"Action":"accept"}`},
		{"form, content of a list", form, `{"action":"accept","content":[]}`},
		{"URL, string", page, `"accept"`},
		{"sampling, no role", sample, `{"model":"m","content":{"type":"text","text":"x"}}`},
		{"sampling, unknown role", sample, `{"role":"system","model":"m","content":{"type":"text","text":"x"}}`},
		{"sampling, no model", sample, `{"role":"assistant","content":{"type":"text","text":"x"}}`},
		{"sampling, no content", sample, `{"role":"assistant","model":"m"}`},
		{"sampling, content of null", sample, `{"role":"assistant","model":"m","content":null}`},
		{"sampling, content of a link", sample,
			`{"role":"assistant","model":"m","content":{"type":"resource_link","uri":"a:b","name":"n"}}`},
		{"sampling, unknown content type", sample, `{"role":"assistant","model":"m","content":[{"type":"smell"}]}`},
		{"sampling, tool use without input", sample,
			`{"role":"assistant","model":"m","content":{"type":"tool_use","id":"1","name":"n"}}`},
		{"roots, none", roots, `{}`},
		{"roots, string", roots, `{"roots":"file:///"}`},
		{"roots, another scheme", roots, `{"roots":[{"uri":"https://example.com/"}]}`},
		{"roots, not a URI", roots, `{"roots":[{"uri":"file://%zz"}]}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			first := test.peer.call("t", "", "", "")
			for _, state := range []string{first.RequestState, ""} {
				r := test.peer.call("t", "", `{"a":`+test.answer+`}`, state)
				if r.Err == nil || r.Err.Code != mcp.CodeInvalidParams ||
					!strings.HasPrefix(r.Err.Message, "params.inputResponses: ") {
					t.Errorf("got %+v, want invalid params", r)
				}
			}
		})
	}
}

// Requirement: MRTR-18
func TestUnknownKeysAreIgnored(t *testing.T) {
	p := newHandlerPeer(t, nil, askName)
	r := p.call("t", "", "", "")
	answers := `{"zzz":12345,"a":` + acceptJSON(`{"name":"Ada"}`) + `,"b":` + acceptJSON(`{"name":"Bob"}`) + `}`
	for _, state := range []string{r.RequestState, ""} {
		if r := p.call("t", "", answers, state); r.text() != "Ada" {
			t.Errorf("got %+v, want text Ada", r)
		}
	}
}

// askName asks for a name and returns it.
func askName(ctx context.Context, _ json.RawMessage) (string, error) {
	who, err := mcp.Ask[named](ctx, "a", "Who?", nil)
	return who.Name, err
}

// Requirement: MRTR-19
func TestMissingAndInvalidAnswersAreAskedAgain(t *testing.T) {
	p := newHandlerPeer(t, nil, askName)
	first := p.call("t", "", "", "")
	for name, answers := range map[string]string{
		"none":              "",
		"empty":             `{}`,
		"another key":       `{"b":` + acceptJSON(`{"name":"Ada"}`) + `}`,
		"no content":        `{"a":{"action":"accept"}}`,
		"a field missing":   `{"a":` + acceptJSON(`{}`) + `}`,
		"of the wrong type": `{"a":` + acceptJSON(`{"name":5}`) + `}`,
		"too short":         `{"a":` + acceptJSON(`{"name":""}`) + `}`,
	} {
		t.Run(name, func(t *testing.T) {
			again := p.call("t", "", answers, first.RequestState)
			if again.ResultType != "input_required" || len(again.keys()) != 1 {
				t.Fatalf("got %+v, want input_required with one question", again)
			}
			if r := p.call("t", "", `{"a":`+acceptJSON(`{"name":"Ada"}`)+`}`, again.RequestState); r.text() != "Ada" {
				t.Errorf("then: got %+v", r)
			}
		})
	}
}

func TestAnswerToAChangedQuestionIsIgnored(t *testing.T) {
	price := 10
	log := &bytes.Buffer{}
	p := newHandlerPeer(t, &mcp.ServerOptions{Logger: slog.New(slog.NewTextHandler(log, nil))},
		func(ctx context.Context, _ json.RawMessage) (string, error) {
			_, err := mcp.Ask[bool](ctx, "a", fmt.Sprintf("Buy for %d?", price), nil)
			if err != nil {
				return "", err
			}
			_, err = mcp.Ask[bool](ctx, "b", "Really?", nil)
			return fmt.Sprint("bought for ", price), err
		})
	yes := acceptJSON(`{"value":true}`)
	r := p.call("t", "", "", "")
	price = 11 // before the user answers
	r = p.call("t", "", `{"a":`+yes+`}`, r.RequestState)
	if diff := cmp.Diff([]string{"a"}, r.keys()); diff != "" {
		t.Fatalf("answer to a question of the last round: asked (-want +got):\n%s", diff)
	}
	r = p.call("t", "", `{"a":`+yes+`}`, r.RequestState)
	price = 12
	r = p.call("t", "", `{"b":`+yes+`}`, r.RequestState)
	if diff := cmp.Diff([]string{"a"}, r.keys()); diff != "" {
		t.Fatalf("answer to a question of an earlier round: asked (-want +got):\n%s", diff)
	}
	if n := strings.Count(log.String(), "asking again"); n != 2 {
		t.Errorf("got %d warnings, want 2:\n%s", n, log)
	}
}

// Requirement: MRTR-04
func TestTwoQuestionsWithOneKeyAreAnError(t *testing.T) {
	log := &bytes.Buffer{}
	p := newHandlerPeer(t, &mcp.ServerOptions{Logger: slog.New(slog.NewTextHandler(log, nil))},
		func(ctx context.Context, _ json.RawMessage) (string, error) {
			_, _ = mcp.Ask[bool](ctx, "a", "This?", nil)
			_, _ = mcp.Ask[bool](ctx, "a", "That?", nil)
			return "done", nil
		})
	r := p.call("t", "", "", "")
	if r.Err == nil || r.Err.Code != mcp.CodeInternalError || !strings.Contains(r.Err.Message, `key "a"`) {
		t.Errorf("got %+v, want an internal error that names the key", r)
	}
	if want := "invalid handler"; !strings.Contains(log.String(), want) {
		t.Errorf("got log %s, want %s", log, want)
	}
}

// Requirement: MRTR-04
func TestOneQuestionMayBeAskedTwice(t *testing.T) {
	p := newHandlerPeer(t, nil, func(ctx context.Context, args json.RawMessage) (string, error) {
		if _, err := askName(ctx, args); err != nil {
			return "", err
		}
		return askName(ctx, args)
	})
	r := p.call("t", "", "", "")
	if r = p.call("t", "", `{"a":`+acceptJSON(`{"name":"Ada"}`)+`}`, r.RequestState); r.text() != "Ada" {
		t.Errorf("got %+v, want internal error", r)
	}
}

func TestGoroutinesOfAHandlerMayAsk(t *testing.T) {
	p := newHandlerPeer(t, nil, func(ctx context.Context, _ json.RawMessage) (string, error) {
		var wg sync.WaitGroup
		var answers [4]int
		var errs [4]error
		for i, key := range []string{"a", "b", "c", "d"} {
			wg.Go(func() {
				answers[i], errs[i] = mcp.Ask[int](ctx, key, "How many?", nil)
				_, _ = mcp.Once(ctx, key, func(context.Context) (int, error) { return i, nil })
			})
		}
		wg.Wait()
		return fmt.Sprint(answers), errors.Join(errs[:]...)
	})
	r := p.call("t", "", "", "")
	if diff := cmp.Diff([]string{"a", "b", "c", "d"}, r.keys()); diff != "" {
		t.Fatalf("asked (-want +got):\n%s", diff)
	}
	one := acceptJSON(`{"value":1}`)
	r = p.call("t", "", `{"a":`+one+`,"b":`+one+`,"c":`+one+`,"d":`+one+`}`, r.RequestState)
	if r.text() != "[1 1 1 1]" {
		t.Errorf("got %+v, want text Ada", r)
	}
}

// Requirement: MRTR-04
func TestAskAllIsOneRoundTrip(t *testing.T) {
	p := newHandlerPeer(t, nil, func(ctx context.Context, _ json.RawMessage) (string, error) {
		var who named
		var greeting *mcp.CreateMessageResult
		var roots []mcp.Root
		err := mcp.AskAll(ctx,
			mcp.FormQuestion("a", "Who?", &who, nil),
			mcp.SampleQuestion("b", &mcp.CreateMessageParams{MaxTokens: 9, Messages: []mcp.SamplingMessage{
				{Role: mcp.RoleUser, Content: []mcp.ContentBlock{mcp.Text("Greet.")}}}}, &greeting),
			mcp.RootsQuestion("c", &roots),
			mcp.URLQuestion("d", "https://example.com/", "Visit?"),
		)
		if err != nil {
			return "", err
		}
		return who.Name + greeting.Text() + roots[0].Name, nil
	})
	r := p.call("t", "", "", "")
	if diff := cmp.Diff([]string{"a", "b", "c", "d"}, r.keys()); diff != "" {
		t.Fatalf("asked (-want +got):\n%s", diff)
	}
	part := p.call("t", "", `{"a":`+acceptJSON(`{"name":"Ada"}`)+`,"d":{"action":"accept"}}`, r.RequestState)
	if diff := cmp.Diff([]string{"b", "c"}, part.keys()); diff != "" {
		t.Fatalf("after two answers (-want +got):\n%s", diff)
	}
	r = p.call("t", "", `{"b":{"role":"assistant","model":"m","content":{"type":"text","text":", hello from "}},`+
		`"c":{"roots":[{"uri":"file:///src","name":"src"}]}}`, part.RequestState)
	if r.text() != "Ada, hello from src" {
		t.Errorf("got %+v, want text [1 1 1 1]", r)
	}
}

// Requirement: ELI-10
func TestDeclineAndCancelAreErrors(t *testing.T) {
	p := newHandlerPeer(t, nil, func(ctx context.Context, _ json.RawMessage) (string, error) {
		var a, b, c bool
		err := mcp.AskAll(ctx, mcp.FormQuestion("a", "A?", &a, nil), mcp.FormQuestion("b", "B?", &b, nil),
			mcp.FormQuestion("c", "C?", &c, nil))
		return fmt.Sprint(errors.Is(err, mcp.ErrDeclined),
			errors.Is(err, mcp.ErrDismissed) && !errors.Is(err, mcp.ErrCancelled), a, b, c), nil
	})
	answer := func(a, b, c string) string {
		return fmt.Sprintf(`{"a":{"action":%q},"b":{"action":%q},"c":%s}`, a, b, c)
	}
	yes := acceptJSON(`{"value":true}`)
	for answers, want := range map[string]string{
		answer("decline", "decline", yes):                 "true false false false true",
		answer("cancel", "decline", yes):                  "true true false false true",
		answer("cancel", "cancel", `{"action":"cancel"}`): "false true false false false",
	} {
		r := p.call("t", "", "", "")
		if r = p.call("t", "", answers, r.RequestState); r.text() != want {
			t.Errorf("%s: got %+v, want %s", answers, r, want)
		}
	}
}

// Requirement: ELI-32
func TestUnhandledDeclineIsAToolError(t *testing.T) {
	p := newHandlerPeer(t, nil, askName)
	r := p.call("t", "", "", "")
	r = p.call("t", "", `{"a":{"action":"decline","content":null}}`, r.RequestState)
	if !r.IsError || r.text() != `question "a": mcp: declined by the user` {
		t.Errorf("got %+v, want text Ada, hello from src", r)
	}
}

// Requirement: MRTR-02
func TestOnlyThreeMethodsAsk(t *testing.T) {
	if _, err := mcp.Ask[bool](t.Context(), "a", "Sure?", nil); err == nil {
		t.Error("Ask outside a handler: got no error")
	}
	s := mcp.NewServer("test", "1", nil)
	s.HandleMethod("com.example/ask", mcp.HandlerFunc(func(ctx context.Context, _ *mcp.Request) (mcp.Result, error) {
		_, err := mcp.Ask[bool](ctx, "a", "Sure?", nil)
		return mcp.RawResult(fmt.Sprintf(`{"resultType":"complete","content":[{"text":%q}]}`, err)), nil
	}))
	p := &handlerPeer{TB: t, handler: s}
	r := p.send("com.example/ask", "inputResponses", json.RawMessage(`{"a":`+acceptJSON(`{"value":true}`)+`}`))
	if !strings.Contains(r.text(), "com.example/ask cannot ask the client") {
		t.Errorf("got %+v, want the error that the method cannot ask", r)
	}
}

// Requirement: MRTR-02
func TestAskAfterTheHandlerReturnedIsAnError(t *testing.T) {
	var handlerContext context.Context
	p := newHandlerPeer(t, nil, func(ctx context.Context, _ json.RawMessage) (string, error) {
		handlerContext = ctx
		return "done", nil
	})
	p.call("t", "", "", "")
	if _, err := mcp.Ask[bool](handlerContext, "a", "Sure?", nil); err == nil ||
		!strings.Contains(err.Error(), "has returned") {
		t.Errorf("got error %v, want has returned", err)
	}
}

// Requirement: MRTR-02
func TestPromptsAndResourcesAsk(t *testing.T) {
	s := mcp.NewServer("test", "1", nil)
	mcp.AddPrompt(s, &mcp.Prompt{Name: "p"}, func(ctx context.Context, _ struct{}) (string, error) {
		return askName(ctx, nil)
	})
	mcp.AddResource(s, &mcp.Resource{URI: "test://r", Name: "r"}, func(ctx context.Context, _ string) (string, error) {
		return askName(ctx, nil)
	})
	p := &handlerPeer{TB: t, handler: s}
	for _, target := range [][]any{{"prompts/get", "name", "p"}, {"resources/read", "uri", "test://r"}} {
		method := target[0].(string)
		t.Run(method, func(t *testing.T) {
			r := p.send(method, target[1:]...)
			if r.ResultType != "input_required" || len(r.keys()) != 1 {
				t.Fatalf("got %+v, want input_required with one question", r)
			}
			r = p.send(method, append(target[1:], "requestState", r.RequestState,
				"inputResponses", json.RawMessage(`{"a":`+acceptJSON(`{"name":"Ada"}`)+`}`))...)
			if r.ResultType != "complete" {
				t.Errorf("got %+v, want complete", r)
			}
		})
	}
}

func TestProgressIsNotRepeatedInLaterRounds(t *testing.T) {
	var got []float64
	p := newHandlerPeer(t, nil, func(ctx context.Context, args json.RawMessage) (string, error) {
		mcp.Progress(ctx, 1, 3, "started")
		if _, err := askName(ctx, args); err != nil {
			return "", err
		}
		mcp.Progress(ctx, 2, 3, "asked")
		return "done", nil
	})
	p.notify = func(method string, params json.RawMessage) {
		var note struct{ Progress float64 }
		if err := json.Unmarshal(params, &note); err != nil || method != "notifications/progress" {
			t.Errorf("got %s %s, want progress", method, params)
		}
		got = append(got, note.Progress)
	}
	r := p.call("t", "", "", "")
	p.call("t", "", `{"a":`+acceptJSON(`{"name":"Ada"}`)+`}`, r.RequestState)
	if diff := cmp.Diff([]float64{1, 2}, got); diff != "" {
		t.Errorf("progress (-want +got):\n%s", diff)
	}
}

// Requirement: MRTR-03
func TestInputRequiredResultMustNotBeEmpty(t *testing.T) {
	var res mcp.Result
	p := &handlerPeer{TB: t, handler: mcp.HandlerFunc(func(context.Context, *mcp.Request) (mcp.Result, error) {
		return res, nil
	})}
	res = &mcp.InputRequiredResult{}
	if r := p.call("t", "", "", ""); r.Err == nil || r.Err.Code != mcp.CodeInternalError {
		t.Errorf("empty: got %+v", r)
	}
	res = &mcp.InputRequiredResult{RequestState: "later"}
	if r := p.call("t", "", "", ""); r.ResultType != "input_required" || r.RequestState != "later" {
		t.Errorf("only a request state: got %+v", r)
	}
	res = &mcp.InputRequiredResult{InputRequests: map[string]mcp.InputRequest{"roots": {Method: "roots/list"}}}
	if r := p.call("t", "", "", ""); r.InputRequests["roots"].Method != "roots/list" {
		t.Errorf("only an input request: got %+v", r)
	}
}
