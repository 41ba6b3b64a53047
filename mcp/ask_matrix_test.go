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

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// An answerRecorder records the input requests of a server and responds to each with its next
// answer.
type answerRecorder struct {
	asked   []string // method and params of each request
	answers []any    // the last one is repeated; an error is sent as an error
}

func (a *answerRecorder) answer(method string, params json.RawMessage) (any, error) {
	next := a.answers[min(len(a.asked), len(a.answers)-1)]
	a.asked = append(a.asked, method+" "+string(params))
	if err, ok := next.(error); ok {
		return nil, err
	}
	return next, nil
}

// answerWith makes a client respond to input requests with the given results.
func answerWith(c *mcptest.Client, results ...any) *answerRecorder {
	a := &answerRecorder{answers: results}
	c.Options.Answer = a.answer
	return a
}

func acceptResult(content object) object { return object{"action": "accept", "content": content} }

// callText calls a tool and returns its text, or the code, message and data of the error.
func callText(t *testing.T, c *mcptest.Client, tool string) string {
	t.Helper()
	raw, err := c.Try("tools/call", object{"name": tool})
	if err != nil {
		return fmt.Sprintf("%d %s %s", err.Code, err.Message, err.Data)
	}
	return decode[toolResult](t, raw).text()
}

// addAskTool adds a tool that asks for a T and returns it as JSON.
func addAskTool[T any](s *mcp.Server, name string, opts *mcp.AskOptions) {
	addTool(s, name, func(ctx context.Context) (string, error) {
		v, err := mcp.Ask[T](ctx, "a", "What?", opts)
		if err != nil {
			return "", err
		}
		b, err := json.Marshal(v)
		return string(b), err
	})
}

// Forms are encoded as each revision requires. The test client validates them with its schema.
//
// Requirement: ELI-08
func TestFormsInEveryRevision(t *testing.T) {
	type everything struct {
		Text  string   `json:"text" jsonschema:"some text,minLength=1,default=hello"`
		Mail  string   `json:"mail,omitempty" jsonschema:"format=email"`
		Count int      `json:"count" jsonschema:"minimum=1,maximum=9,default=3"`
		Score float64  `json:"score,omitempty"`
		Sure  bool     `json:"sure" jsonschema:"default=true"`
		Color color    `json:"color" jsonschema:"default=red"`
		Size  string   `json:"size" jsonschema:"enum=s|l,titles=Small|Large"`
		_     struct{} // fields without a name are skipped
	}
	type several struct {
		Colors []color  `json:"colors" jsonschema:"minItems=1"`
		Sizes  []string `json:"sizes,omitempty" jsonschema:"enum=s|l,titles=Small|Large"`
	}
	s := newServer(t, nil)
	addAskTool[bool](s, "one", nil)
	addAskTool[everything](s, "struct", nil)
	addAskTool[several](s, "several", nil)
	addAskTool[map[string]string](s, "named", &mcp.AskOptions{Schema: json.RawMessage(
		`{"type":"object","properties":{"n":{"type":"string","enum":["a","b"],"enumNames":["A","B"]}}}`)})
	one := `"requestedSchema":{"type":"object","properties":{"value":{"type":"boolean"}},"required":["value"]}`
	enumOld := `"size":{"type":"string","enum":["s","l"],"enumNames":["Small","Large"]}`
	enumNew := `"size":{"type":"string","oneOf":[{"const":"s","title":"Small"},{"const":"l","title":"Large"}]}`
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		if !c.Since("2025-06-18") {
			for _, tool := range []string{"one", "struct", "several", "named"} {
				if got := callText(t, c, tool); !strings.HasPrefix(got, "-32600 ") ||
					!strings.Contains(got, "elicitation") {
					t.Errorf("%s: got %s, want code -32600 for elicitation", tool, got)
				}
			}
			return
		}
		asks := func(tool string, answer object, want string, forms ...string) {
			t.Helper()
			a := answerWith(c, acceptResult(answer))
			if got := callText(t, c, tool); got != want {
				t.Errorf("%s: got %s, want %s", tool, got, want)
			}
			for _, form := range forms {
				if len(a.asked) != 1 || !strings.Contains(a.asked[0], form) {
					t.Errorf("%s: asked %s, want %s", tool, a.asked, form)
				}
			}
			if mode := c.Since("2025-11-25"); len(a.asked) != 1 ||
				strings.Contains(a.asked[0], `"mode":"form"`) != mode {
				t.Errorf("%s: asked %s, want mode form since 2025-11-25", tool, a.asked)
			}
		}
		enum, defaults := enumNew, []string{`"default":"hello"`, `"default":3`, `"default":"red"`}
		if !c.Since("2025-11-25") {
			enum, defaults = enumOld, nil
		}
		asks("one", object{"value": true}, "true", one)
		asks("struct", object{"size": "l", "text": "x"},
			`{"text":"x","count":3,"sure":true,"color":"red","size":"l"}`, append(defaults, enum, `"default":true`)...)
		asks("named", object{"n": "b"}, `{"n":"b"}`, `"enum":["a","b"],"enumNames":["A","B"]`)
		if c.Since("2025-11-25") {
			asks("several", object{"colors": []string{"red", "blue"}, "sizes": []string{"s"}},
				`{"colors":["red","blue"],"sizes":["s"]}`,
				`{"type":"string","enum":["red","green","blue"]}`,
				`"anyOf":[{"const":"s","title":"Small"},{"const":"l","title":"Large"}]`)
			return
		}
		a := answerWith(c, acceptResult(nil))
		if got := callText(t, c, "several"); !strings.HasPrefix(got, "-32600 ") ||
			!strings.Contains(got, "multiple choice") || len(a.asked) > 0 {
			t.Errorf("several: got %s, asked %s", got, a.asked)
		}
	})
}

// Requirement: ELI-10, ELI-25
func TestActionsOfTheUser(t *testing.T) {
	s := newServer(t, nil)
	addTool(s, "ask", func(ctx context.Context) (string, error) {
		_, err := mcp.Ask[bool](ctx, "a", "Sure?", nil)
		return fmt.Sprint(errors.Is(err, mcp.ErrDeclined),
			errors.Is(err, mcp.ErrDismissed) && !errors.Is(err, mcp.ErrCancelled), err == nil), nil
	})
	mcptest.RunOn(t, s, mcptest.Since("2025-06-18"), nil, func(t *testing.T, c *mcptest.Client) {
		for _, test := range []struct {
			want   string
			answer []any
		}{
			{"true false false", []any{object{"action": "decline"}}},
			{"false true false", []any{object{"action": "cancel", "content": nil}}},
			{"false false true", []any{acceptResult(object{"value": true})}},
			// Content that does not match the form is asked again.
			{"false false true", []any{acceptResult(object{}), acceptResult(object{"value": "yes"}),
				acceptResult(object{"value": true})}},
		} {
			a := answerWith(c, test.answer...)
			if got := callText(t, c, "ask"); got != test.want || len(a.asked) != len(test.answer) {
				t.Errorf("%v: got %s after %d questions, want %s", test.answer, got, len(a.asked), test.want)
			}
		}
		answerWith(c, object{"action": "maybe"}) // MRTR-17
		if got := callText(t, c, "ask"); !strings.HasPrefix(got, "-32602 ") {
			t.Errorf("malformed: got %s", got)
		}
		answerWith(c, errors.New("dialog failed"))
		want := "false true false"
		if c.Modern() { // the client does not retry
			want = "-32603 dialog failed "
		}
		if got := callText(t, c, "ask"); got != want {
			t.Errorf("error of the client: got %s, want %s", got, want)
		}
	})
}

// Requirement: ELI-33, ELI-27
func TestURLsInEveryRevision(t *testing.T) {
	s := newServer(t, nil)
	addTool(s, "page", func(ctx context.Context) (string, error) {
		err := mcp.AskURL(ctx, "a", "https://example.com/pay", "Please pay.")
		if errors.Is(err, errors.ErrUnsupported) {
			return "pay by phone", nil
		}
		return fmt.Sprint(err), nil
	})
	addTool(s, "only_page", func(ctx context.Context) (string, error) {
		return "", mcp.AskURL(ctx, "a", "https://example.com/pay", "Please pay.")
	})
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		a := answerWith(c, object{"action": "accept"})
		got, unhandled := callText(t, c, "page"), callText(t, c, "only_page")
		if !c.Since("2025-11-25") {
			if got != "pay by phone" || !strings.HasPrefix(unhandled, "-32600 ") ||
				!strings.Contains(unhandled, "elicitation.url") || len(a.asked) > 0 {
				t.Errorf("got %s and %s, asked %s; want unsupported", got, unhandled, a.asked)
			}
			return
		}
		if got != "<nil>" || unhandled != "" || len(a.asked) != 2 {
			t.Fatalf("got %s and %s, asked %s; want two requests", got, unhandled, a.asked)
		}
		p := decode[mcp.ElicitRequestParams](t, json.RawMessage(strings.TrimPrefix(a.asked[0], "elicitation/create ")))
		if p.Mode != "url" || p.URL != "https://example.com/pay" || p.Message != "Please pay." ||
			(p.ElicitationID != "") == c.Modern() {
			t.Errorf("asked %s", a.asked[0])
		}
		answerWith(c, object{"action": "decline"})
		if got := callText(t, c, "page"); !strings.Contains(got, "declined") {
			t.Errorf("declined: got %s", got)
		}
	})
}

// Requirement: MRTR-05, ELI-04, META-12
func TestUndeclaredCapabilitiesAreNotUsed(t *testing.T) {
	s := newServer(t, nil)
	ask := func(name string, q func() mcp.Question) {
		addTool(s, name, func(ctx context.Context) (string, error) {
			err := mcp.AskAll(ctx, q())
			if !errors.Is(err, errors.ErrUnsupported) {
				return "", fmt.Errorf("got %w, want ErrUnsupported", err)
			}
			return "", err
		})
	}
	hello := []mcp.SamplingMessage{samplingMessage(mcp.RoleUser, mcp.Text("hello"))}
	sample := func(p *mcp.CreateMessageParams) func() mcp.Question {
		return func() mcp.Question { return mcp.SampleQuestion("a", p, new(*mcp.CreateMessageResult)) }
	}
	ask("form", func() mcp.Question { return mcp.FormQuestion("a", "?", new(bool), nil) })
	ask("url", func() mcp.Question { return mcp.URLQuestion("a", "https://example.com", "?") })
	ask("roots", func() mcp.Question { return mcp.RootsQuestion("a", new([]mcp.Root)) })
	ask("sample", sample(&mcp.CreateMessageParams{Messages: hello, MaxTokens: 1}))
	ask("tools", sample(&mcp.CreateMessageParams{Messages: hello, MaxTokens: 1, Tools: []*mcp.Tool{{Name: "x"}}}))
	ask("context", sample(&mcp.CreateMessageParams{Messages: hello, MaxTokens: 1, IncludeContext: "allServers"}))
	for _, client := range []struct {
		caps  object
		lacks map[string]string // tool → required capabilities
	}{
		{object{}, map[string]string{
			"form": `{"elicitation":{}}`, "url": `{"elicitation":{"url":{}}}`, "roots": `{"roots":{}}`,
			"sample": `{"sampling":{}}`, "tools": `{"sampling":{}}`, "context": `{"sampling":{}}`,
		}},
		{object{"elicitation": object{}, "sampling": object{}}, map[string]string{
			"url":   `{"elicitation":{"url":{}}}`,
			"tools": `{"sampling":{"tools":{}}}`, "context": `{"sampling":{"context":{}}}`,
		}},
		{object{"elicitation": object{"url": object{}}}, map[string]string{"form": `{"elicitation":{"form":{}}}`}},
	} {
		mcptest.RunOn(t, s, mcptest.Since("2025-11-25"), &mcptest.Options{Capabilities: client.caps},
			func(t *testing.T, c *mcptest.Client) {
				a := answerWith(c, errors.New("unexpected input request"))
				for tool, required := range client.lacks {
					_, err := c.Try("tools/call", object{"name": tool})
					code := mcp.CodeInvalidRequest
					if c.Modern() {
						code = driver.CodeMissingRequiredClientCapability
					}
					wantCode(t, tool, err, code)
					if err != nil && string(err.Data) != `{"requiredCapabilities":`+required+`}` {
						t.Errorf("%s: got %s, want %s", tool, err.Data, required)
					}
				}
				if len(a.asked) > 0 {
					t.Errorf("asked %s", a.asked)
				}
			})
	}
}

// Requirement: SAMP-04, DEP-02
func TestSamplingInEveryRevision(t *testing.T) {
	s := newServer(t, nil)
	add := func(name string, p mcp.CreateMessageParams) {
		p.MaxTokens = 10
		addTool(s, name, func(ctx context.Context) (string, error) {
			res, err := mcp.Sample(ctx, "a", &p)
			if errors.Is(err, errors.ErrUnsupported) {
				return "unsupported", nil
			}
			if err != nil {
				return "", err
			}
			return res.Model + ": " + res.Text(), nil
		})
	}
	parts := []mcp.SamplingMessage{samplingMessage(mcp.RoleUser, mcp.Text("one"),
		&mcp.ImageContent{Data: []byte{1}, MIMEType: "image/png"})}
	add("plain", mcp.CreateMessageParams{Messages: []mcp.SamplingMessage{samplingMessage(mcp.RoleUser, mcp.Text("hello"))},
		SystemPrompt:     "Be kind.",
		ModelPreferences: &mcp.ModelPreferences{Hints: []mcp.ModelHint{{Name: "m"}}}})
	add("parts", mcp.CreateMessageParams{Messages: parts})
	add("audio", mcp.CreateMessageParams{Messages: []mcp.SamplingMessage{samplingMessage(mcp.RoleUser,
		&mcp.AudioContent{Data: []byte{1}, MIMEType: "audio/wav"})}})
	add("tools", mcp.CreateMessageParams{
		Messages: []mcp.SamplingMessage{samplingMessage(mcp.RoleUser, mcp.Text("weather?")), samplingMessage(mcp.RoleAssistant, use("1")),
			samplingMessage(mcp.RoleUser, result("1"))},
		Tools: []*mcp.Tool{{Name: "weather"}}, ToolChoice: &mcp.ToolChoice{Mode: "required"},
	})
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		sampled := object{"role": "assistant", "model": "test", "stopReason": "endTurn",
			"content": object{"type": "text", "text": "hi"}}
		for tool, since := range map[string]string{"plain": "2024-11-05", "parts": "2024-11-05",
			"audio": "2025-03-26", "tools": "2025-11-25"} {
			a := answerWith(c, sampled)
			want := "test: hi"
			if !c.Since(since) {
				want = "unsupported"
			}
			if got := callText(t, c, tool); got != want || (len(a.asked) == 1) != c.Since(since) {
				t.Errorf("%s: got %s and requests %s, want %s", tool, got, a.asked, want)
			}
			if tool == "parts" { // SAMP-16, SAMP-17
				messages := strings.Count(a.asked[0], `"role"`)
				if split := !c.Since("2025-11-25"); split != (messages == 2) {
					t.Errorf("asked %s", a.asked[0])
				}
			}
		}
		if c.Since("2025-11-25") {
			answerWith(c, object{"role": "assistant", "model": "test",
				"content": []any{object{"type": "text", "text": "h"}, object{"type": "text", "text": "i"}}})
			if got := callText(t, c, "plain"); got != "test: hi" {
				t.Errorf("content in parts: got %s", got)
			}
		}
		answerWith(c, object{"role": "assistant", "model": "test"}) // no content
		if got := callText(t, c, "plain"); !strings.HasPrefix(got, "-32602 ") {
			t.Errorf("malformed: got %s", got)
		}
		answerWith(c, &mcp.Error{Code: -1, Message: "User rejected sampling request"}) // SAMP-09, SAMP-21
		if got := callText(t, c, "plain"); !strings.HasPrefix(got, "-1 ") || !strings.Contains(got, "User rejected") {
			t.Errorf("error of the client: got %s", got)
		}
	})
}

// Requirement: ROOT-04, DEP-02
func TestRootsInEveryRevision(t *testing.T) {
	s := newServer(t, nil)
	addTool(s, "roots", func(ctx context.Context) (string, error) {
		roots, err := mcp.Roots(ctx)
		return fmt.Sprint(roots), err
	})
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		a := answerWith(c, object{"roots": []any{object{"uri": "file:///a", "name": "A"}, object{"uri": "file:///b"}}})
		if got := callText(t, c, "roots"); got != "[{file:///a A map[]} {file:///b  map[]}]" ||
			!slices.Equal(a.asked, []string{"roots/list {}"}) {
			t.Errorf("got %s and requests %q, want two roots and one roots/list", got, a.asked)
		}
		for _, wrong := range []any{object{}, object{"roots": []any{object{"uri": "https://example.com"}}}} {
			answerWith(c, wrong)
			if got := callText(t, c, "roots"); !strings.HasPrefix(got, "-32602 ") {
				t.Errorf("%v: got %s, want code -32602", wrong, got)
			}
		}
		answerWith(c, &mcp.Error{Code: mcp.CodeMethodNotFound, Message: "no roots"})
		if got := callText(t, c, "roots"); !strings.Contains(got, "no roots") {
			t.Errorf("error of the client: got %s", got)
		}
	})
}

// A server cannot prove that a handler stays within the roots. It checks what it can: the capability
// and the URIs, each time that a handler asks, so that a root that is gone is no longer returned.
//
// Requirement: ROOT-08
func TestCapabilityAndRootsAreCheckedEachTime(t *testing.T) {
	s := newServer(t, nil)
	addTool(s, "roots", func(ctx context.Context) (string, error) {
		roots, err := mcp.Roots(ctx)
		if errors.Is(err, errors.ErrUnsupported) {
			return "unsupported", nil
		}
		return fmt.Sprint(roots), err
	})
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		list := func(uris ...string) string {
			roots := []any{}
			for _, uri := range uris {
				roots = append(roots, object{"uri": uri})
			}
			answerWith(c, object{"roots": roots})
			return callText(t, c, "roots")
		}
		if got := list("file:///a", "file:///b"); got != "[{file:///a  map[]} {file:///b  map[]}]" {
			t.Errorf("got %s, want two roots", got)
		}
		if got := list("file:///b"); got != "[{file:///b  map[]}]" {
			t.Errorf("after the loss of a root: got %s, want the other one", got)
		}
		if got := list(); got != "[]" {
			t.Errorf("after the loss of all roots: got %s, want an empty list", got)
		}
		for _, uri := range []string{"", "/a", "https://a.example/", "file:a", "file:///a/../b", "file:///a/%2E%2e/b"} {
			if got := list("file:///a", uri); !strings.HasPrefix(got, "-32602 ") {
				t.Errorf("root %q: got %s, want code -32602", uri, got)
			}
		}
	})
	for _, on := range mcptest.Combinations() {
		synctest.Test(t, func(t *testing.T) {
			c := mcptest.Dial(t, s, on, nil)
			if r, err := c.CallTool(t.Context(), "roots", nil); err != nil || r.Text() != "unsupported" {
				t.Errorf("%s: client without roots: got %v, %v, want ErrUnsupported", on, r, err)
			}
		})
	}
}

// Requirement: MRTR-04
func TestAskAllInEveryRevision(t *testing.T) {
	s := newServer(t, nil)
	addTool(s, "all", func(ctx context.Context) (string, error) {
		var name string
		var roots []mcp.Root
		var thought *mcp.CreateMessageResult
		err := mcp.AskAll(ctx,
			mcp.FormQuestion("name", "Who?", &name, nil),
			mcp.RootsQuestion("roots", &roots),
			mcp.SampleQuestion("thought", &mcp.CreateMessageParams{MaxTokens: 1,
				Messages: []mcp.SamplingMessage{samplingMessage(mcp.RoleUser, mcp.Text("?"))}}, &thought),
		)
		if errors.Is(err, errors.ErrUnsupported) {
			return "unsupported", nil
		}
		if err != nil {
			return "", err
		}
		return name + " " + roots[0].Name + " " + thought.Text(), nil
	})
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		asked := 0
		answer := c.Options.Answer
		c.Options.Answer = func(method string, params json.RawMessage) (any, error) {
			asked++
			if method == "elicitation/create" {
				return acceptResult(object{"value": "Ada"}), nil
			}
			return answer(method, params)
		}
		want, questions := "Ada work sampled", 3
		if !c.Since("2025-06-18") {
			want, questions = "unsupported", 0 // elicitation is unsupported, so nothing is asked
		}
		if got := callText(t, c, "all"); got != want || asked != questions {
			t.Errorf("got %s after %d questions, want %s after %d", got, asked, want, questions)
		}
		if rounds := strings.Count(c.Transcript(), `"tools/call"`); c.Modern() && rounds != 2 {
			t.Errorf("got %d requests, want 2", rounds)
		}
	})
}

// Requirement: MRTR-16
func TestManyRoundsInEveryRevision(t *testing.T) {
	const rounds = 10
	s := newServer(t, nil)
	effects := 0
	addTool(s, "many", func(ctx context.Context) (string, error) {
		var all []string
		for i := range rounds {
			mcp.Progress(ctx, float64(i+1), rounds, "")
			_, err := mcp.Once(ctx, fmt.Sprint("once", i), func(context.Context) (int, error) {
				effects++
				return effects, nil
			})
			if err != nil {
				return "", err
			}
			answer, err := mcp.Sample(ctx, fmt.Sprint("q", i), &mcp.CreateMessageParams{MaxTokens: 1,
				Messages: []mcp.SamplingMessage{samplingMessage(mcp.RoleUser, mcp.Text("?"))}})
			if err != nil {
				return "", err
			}
			all = append(all, answer.Text())
		}
		return strings.Join(all, " "), nil
	})
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		effects = 0
		n := 0
		c.Options.Answer = func(string, json.RawMessage) (any, error) {
			n++
			text := object{"type": "text", "text": fmt.Sprint(n)}
			return object{"role": "assistant", "model": "m", "content": text}, nil
		}
		notes := callWithProgress(t, c, "many", 1)
		if text := decode[toolResult](t, lastResult(t, c)).text(); text != "1 2 3 4 5 6 7 8 9 10" || effects != rounds {
			t.Errorf("got %s and %d effects, want 10 answers and %d", text, effects, rounds)
		}
		for i, p := range notes {
			if *p.Progress != float64(i+1) {
				t.Errorf("notification %d: got progress %v, want %d", i, *p.Progress, i+1)
			}
		}
		if len(notes) != rounds {
			t.Errorf("got %d progress notifications, want %d", len(notes), rounds)
		}
	})
}

// lastResult returns the last result that the server sent.
func lastResult(t *testing.T, c *mcptest.Client) json.RawMessage {
	t.Helper()
	text := c.Transcript()
	line, _, _ := strings.Cut(text[strings.LastIndex(text, "-- server --\n")+len("-- server --\n"):], "\n")
	return decode[struct{ Result json.RawMessage }](t, json.RawMessage(line)).Result
}

// The calls run concurrently on one connection and ask with the same key.
//
// Requirement: MRTR-11
func TestAnswersReachTheCallThatAsked(t *testing.T) {
	s := newServer(t, nil)
	type echoIn struct {
		Word string `json:"word"`
	}
	mcp.AddTool(s, &mcp.Tool{Name: "echo"}, func(ctx context.Context, in echoIn) (string, error) {
		res, err := mcp.Sample(ctx, "same key", &mcp.CreateMessageParams{MaxTokens: 1,
			Messages: []mcp.SamplingMessage{samplingMessage(mcp.RoleUser, mcp.Text(in.Word))}})
		if err != nil {
			return "", err
		}
		return res.Text(), nil
	})
	mcptest.RunOn(t, s, mcptest.Before(mcptest.Modern), nil, func(t *testing.T, c *mcptest.Client) {
		c.Options.Answer = func(_ string, params json.RawMessage) (any, error) {
			p := decode[mcp.CreateMessageParams](t, params)
			return mcp.CreateMessageResult{Role: mcp.RoleAssistant, Model: "m", Content: p.Messages[0].Content}, nil
		}
		calls := map[string]*mcptest.Pending{}
		for i := range 20 {
			word := fmt.Sprint("word", i)
			calls[word] = c.Send("tools/call", object{"name": "echo", "arguments": object{"word": word}})
		}
		for word, p := range calls {
			if m := p.Wait(); m.Error != nil || decode[toolResult](t, m.Result).text() != word {
				t.Errorf("%[1]s: got %s, %v, want the text %[1]s", word, m.Result, m.Error)
			}
		}
	})
}

// In a session, a call may be cancelled while the server waits for an answer. The late answer is
// ignored.
//
// Requirement: CAN-04
func TestCallIsCancelledWhileItAsks(t *testing.T) {
	s := newServer(t, nil)
	runs := 0
	addTool(s, "ask", func(ctx context.Context) (string, error) {
		runs++
		_, err := mcp.Roots(ctx)
		return "done", err
	})
	mcptest.RunOn(t, s, mcptest.Before(mcptest.Modern), nil, func(t *testing.T, c *mcptest.Client) {
		runs = 0
		asked, release := make(chan bool), make(chan bool)
		c.Options.Answer = func(string, json.RawMessage) (any, error) {
			asked <- true
			<-release
			return object{"roots": []any{}}, nil
		}
		p := c.Send("tools/call", object{"name": "ask"})
		<-asked
		p.Cancel("too slow")
		synctest.Wait()
		close(release)
		synctest.Wait()
		if p.Answered() || runs != 1 {
			t.Errorf("answered: %v after %d runs, want no response and 1 run", p.Answered(), runs)
		}
		c.Options.Answer = func(string, json.RawMessage) (any, error) { return object{"roots": []any{}}, nil }
		if got := callText(t, c, "ask"); got != "done" {
			t.Errorf("afterwards: got %s", got)
		}
	})
}

// Requirement: MRTR-16
func TestRoundsOfASessionAreLimited(t *testing.T) {
	s := newServer(t, nil)
	rounds := 0
	addTool(s, "endless", func(ctx context.Context) (string, error) {
		for i := range rounds + 1 {
			if _, err := mcp.Ask[string](ctx, fmt.Sprint(i), "And then?", nil); err != nil {
				rounds++
				return "", err
			}
		}
		return "", nil
	})
	mcptest.RunOn(t, s, mcptest.Before(mcptest.Modern), nil, func(t *testing.T, c *mcptest.Client) {
		if !c.Since("2025-06-18") {
			return
		}
		rounds = 0
		answerWith(c, acceptResult(object{"value": "x"}))
		if got := callText(t, c, "endless"); !strings.HasPrefix(got, "-32603 ") || rounds > 100 {
			t.Errorf("got %s after %d rounds, want code -32603 after at most 100", got, rounds)
		}
	})
}

// Requirement: ELI-06
func TestSessionAndModernRequestsAreEqual(t *testing.T) {
	s := newServer(t, nil)
	addAskTool[color](s, "ask", &mcp.AskOptions{Default: "green"})
	var asked []string
	on := []mcptest.Combination{{Transport: mcptest.InMemory, Revision: "2025-11-25"},
		{Transport: mcptest.InMemory, Revision: mcptest.Modern}}
	mcptest.RunOn(t, s, on, nil, func(t *testing.T, c *mcptest.Client) {
		a := answerWith(c, acceptResult(object{}))
		if got := callText(t, c, "ask"); got != `"green"` {
			t.Errorf("got %s, want green", got)
		}
		asked = append(asked, a.asked...)
	})
	if len(asked) != 2 || asked[0] != asked[1] {
		t.Errorf("input requests differ: %q", asked)
	}
}
