package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// rawQuestions are questions of another server, by the tool that asks them, and the first revision that has them.
var rawQuestions = map[string]struct{ method, params, since, capability string }{
	"form": {"elicitation/create", `{"message":"?","requestedSchema":{"type":"object","properties":{"a":{"type":"string"}}}}`,
		"2025-06-18", "elicitation"},
	"choice": {"elicitation/create", `{"message":"?","mode":"form","requestedSchema":{"type":"object","properties":{"a":{"type":"array",` +
		`"items":{"type":"string","enum":["x"]}}}}}`, "2025-11-25", "elicitation"},
	"url":    {"elicitation/create", `{"message":"?","mode":"url","url":"https://example.com/"}`, "2025-11-25", "elicitation.url"},
	"sample": {"sampling/createMessage", `{"messages":[{"role":"user","content":{"type":"text","text":"hi"}}],"maxTokens":5}`, "2024-11-05", "sampling"},
	"roots":  {"roots/list", ``, "2024-11-05", "roots"},
}

func rawQuestionServer(t *testing.T) *mcp.Server {
	s := newServer(t, nil)
	for name, q := range rawQuestions {
		addTool(s, name, func(ctx context.Context) (string, error) {
			var answer json.RawMessage
			err := mcp.AskAll(ctx, mcp.RawQuestion("k", mcp.InputRequest{Method: q.method, Params: json.RawMessage(q.params)}, &answer))
			if errors.Is(err, errors.ErrUnsupported) {
				return "unsupported", nil
			}
			return string(answer), err
		})
	}
	return s
}

// Requirement: MRTR-05
func TestRawQuestionsInEveryRevision(t *testing.T) {
	results := map[string][]string{
		"form":   {`{"action":"accept","content":{"a":"x"}}`, `{"action":"decline"}`, `{"action":"cancel"}`, `{"action":"accept","content":{"a":1}}`},
		"choice": {`{"action":"accept","content":{"a":["x"]}}`},
		"url":    {`{"action":"accept"}`, `{"action":"decline"}`},
		"sample": {`{"role":"assistant","content":{"type":"text","text":"hello"},"model":"m"}`},
		"roots":  {`{"roots":[{"uri":"file:///a"}]}`},
	}
	s := rawQuestionServer(t)
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		for tool, q := range rawQuestions {
			for _, result := range results[tool] {
				a := answerWith(c, json.RawMessage(result))
				got := callText(t, c, tool)
				if !c.Since(q.since) {
					if got != "unsupported" || len(a.asked) > 0 {
						t.Errorf("%s: got %s, asked %q, want it unsupported", tool, got, a.asked)
					}
					continue
				}
				if diff := cmp.Diff(decode[any](t, json.RawMessage(result)), decode[any](t, json.RawMessage(got))); diff != "" {
					t.Errorf("%s: got another answer (-want +got):\n%s", tool, diff)
				}
				if len(a.asked) != 1 || !strings.HasPrefix(a.asked[0], q.method) {
					t.Errorf("%s: asked %q, want one question", tool, a.asked)
				}
			}
		}
	})
}

// Requirement: MRTR-17
func TestRawAnswersAreChecked(t *testing.T) {
	s := rawQuestionServer(t)
	mcptest.RunOn(t, s, mcptest.Since("2025-11-25"), nil, func(t *testing.T, c *mcptest.Client) {
		for tool, result := range map[string]string{
			"form": `{"action":"maybe"}`, "url": `{}`, "sample": `{"role":"assistant"}`, "roots": `{"roots":[{"uri":"https://a/"}]}`,
		} {
			answerWith(c, json.RawMessage(result))
			if got := callText(t, c, tool); !strings.HasPrefix(got, "-32602 ") {
				t.Errorf("%s: got %s, want code -32602", tool, got)
			}
		}
	})
}

// Requirement: MRTR-05
func TestRawQuestionsNeedTheCapability(t *testing.T) {
	s := rawQuestionServer(t)
	mcptest.RunOn(t, s, mcptest.Combinations(), &mcptest.Options{Capabilities: map[string]any{}}, func(t *testing.T, c *mcptest.Client) {
		for tool := range rawQuestions {
			if got := callText(t, c, tool); got != "unsupported" {
				t.Errorf("%s: got %s", tool, got)
			}
		}
	})
}

func TestInvalidRawQuestionsAreErrors(t *testing.T) {
	s := newServer(t, &mcp.ServerOptions{Logger: discardLogger()})
	var request mcp.InputRequest
	var asked error
	addTool(s, "ask", func(ctx context.Context) (string, error) {
		asked = mcp.AskAll(ctx, mcp.RawQuestion("k", request, new(json.RawMessage)))
		return "", asked
	})
	mcptest.RunOn(t, s, mcptest.Since(mcptest.Modern), nil, func(t *testing.T, c *mcptest.Client) {
		for _, request = range []mcp.InputRequest{
			{Method: "tools/call"}, {Method: ""},
			{Method: "elicitation/create", Params: json.RawMessage(`[]`)},
			{Method: "elicitation/create", Params: json.RawMessage(`{"a":`)},
			{Method: "elicitation/create", Params: json.RawMessage(`{"message":1}`)},
			{Method: "sampling/createMessage", Params: json.RawMessage(`{"messages":{}}`)},
		} {
			asked = nil
			callText(t, c, "ask")
			if asked == nil || !strings.Contains(asked.Error(), `question "k"`) {
				t.Errorf("%s %s: got %v, want an error", request.Method, request.Params, asked)
			}
		}
	})
}

func TestHeaderParamsOfASchema(t *testing.T) {
	got, err := driver.HeaderParamsOf(json.RawMessage(`{"type":"object","properties":{
		"region":{"type":"string","x-mcp-header":"Region"},
		"user":{"type":"object","properties":{"id":{"type":"integer","x-mcp-header":"User-Id"}}}}}`))
	want := []driver.HeaderParam{
		{Header: "Region", Path: []string{"region"}, Type: "string"},
		{Header: "User-Id", Path: []string{"user", "id"}, Type: "integer"},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("got %v (-want +got):\n%s", err, diff)
	}
	for schema, fails := range map[string]bool{
		"": false, `{"type":"object"}`: false,
		`{"properties":{"a":{"type":"array","x-mcp-header":"A"}}}`:                                           true,
		`{"properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"}}}`: true,
		`{"properties":{"a":{"type":"string","x-mcp-header":"A: B"}}}`:                                       true,
		`{"x-mcp-header":`: true,
	} {
		if params, err := driver.HeaderParamsOf(json.RawMessage(schema)); (err != nil) != fails || !slices.Equal(paths(params), nil) {
			t.Errorf("%s: got %v, %v", schema, params, err)
		}
	}
}

func paths(params []driver.HeaderParam) (all []string) {
	for _, p := range params {
		all = append(all, strings.Join(p.Path, "."))
	}
	return all
}
