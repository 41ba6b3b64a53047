package mcp_test

import (
	"context"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/mcp"
)

func samplingMessage(role mcp.Role, content ...mcp.ContentBlock) mcp.SamplingMessage {
	return mcp.SamplingMessage{Role: role, Content: content}
}

func use(id string) *mcp.ToolUseContent {
	return &mcp.ToolUseContent{ID: id, Name: "weather", Input: json.RawMessage(`{"city":"Paris"}`)}
}

func result(id string) *mcp.ToolResultContent {
	return &mcp.ToolResultContent{ToolUseID: id, Content: []mcp.ContentBlock{mcp.Text("sunny")}}
}

// sampling returns a tool that samples and returns the text of the result.
func sampling(p *mcp.CreateMessageParams) func(ctx context.Context, _ json.RawMessage) (string, error) {
	return func(ctx context.Context, _ json.RawMessage) (string, error) {
		res, err := mcp.Sample(ctx, "a", p)
		if err != nil {
			return "", err
		}
		return res.Text() + "/" + res.StopReason, nil
	}
}

// Requirement: SAMP-17
func TestSamplingRequestAndResult(t *testing.T) {
	cold := 0.0
	p := newHandlerPeer(t, nil, sampling(&mcp.CreateMessageParams{
		Messages: []mcp.SamplingMessage{
			samplingMessage(mcp.RoleUser, mcp.Text("What is it like in Paris?"), &mcp.ImageContent{Data: []byte("x"), MIMEType: "image/png"}),
			samplingMessage(mcp.RoleAssistant, use("1"), use("2")),
			{Role: mcp.RoleUser, Content: []mcp.ContentBlock{result("2"), &mcp.ToolResultContent{ToolUseID: "1", IsError: true,
				StructuredContent: json.RawMessage(`[1]`), Meta: mcp.Meta{"x.example/k": 1}}}, Meta: mcp.Meta{"x.example/m": true}},
		},
		MaxTokens: 100, SystemPrompt: "Be brief.", Temperature: &cold, StopSequences: []string{"."},
		Metadata:         map[string]any{"b": 1, "a": 2},
		ModelPreferences: &mcp.ModelPreferences{Hints: []mcp.ModelHint{{Name: "sonnet"}}, SpeedPriority: 0.5},
		IncludeContext:   "none",
		Tools:            []*mcp.Tool{{Name: "weather", Description: "The weather."}},
		ToolChoice:       &mcp.ToolChoice{Mode: "auto"},
	}))
	r := p.call("t", "", "", "")
	const want = `{"messages":[` +
		`{"role":"user","content":[{"type":"text","text":"What is it like in Paris?"},{"type":"image","data":"eA==","mimeType":"image/png"}]},` +
		`{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"weather","input":{"city":"Paris"}},{"type":"tool_use","id":"2","name":"weather","input":{"city":"Paris"}}]},` +
		`{"role":"user","content":[{"type":"tool_result","toolUseId":"2","content":[{"type":"text","text":"sunny"}]},` +
		`{"type":"tool_result","toolUseId":"1","content":[],"structuredContent":[1],"isError":true,"_meta":{"x.example/k":1}}],"_meta":{"x.example/m":true}}],` +
		`"maxTokens":100,"systemPrompt":"Be brief.","modelPreferences":{"hints":[{"name":"sonnet"}],"speedPriority":0.5},` +
		`"temperature":0,"stopSequences":["."],"metadata":{"a":2,"b":1},"includeContext":"none",` +
		`"tools":[{"name":"weather","description":"The weather.","inputSchema":{"type":"object"}}],"toolChoice":{"mode":"auto"}}`
	if diff := cmp.Diff(want, string(r.InputRequests["a"].Params)); diff != "" || r.InputRequests["a"].Method != "sampling/createMessage" {
		t.Fatalf("question (-want +got):\n%s", diff)
	}
	for answer, want := range map[string]string{
		`{"role":"assistant","model":"m","content":{"type":"text","text":"sunny"}}`:                                                                                                      "sunny/",
		`{"role":"assistant","model":"m","stopReason":"endTurn","content":[{"type":"text","text":"sun"},{"type":"audio","data":"","mimeType":"audio/wav"},{"type":"text","text":"ny"}]}`: "sunny/endTurn",
		`{"role":"assistant","model":"m","stopReason":"toolUse","content":[{"type":"tool_use","id":"9","name":"weather","input":{}}],"_meta":{"x":1},"more":2}`:                          "/toolUse",
		`{"role":"user","model":"m","content":[]}`: "/",
	} {
		if r := p.call("t", "", `{"a":`+answer+`}`, r.RequestState); r.text() != want {
			t.Errorf("%s: got %+v, want %s", answer, r, want)
		}
	}
}

// Requirement: SAMP-16, SAMP-20
func TestResultsAndMessagesRoundTrip(t *testing.T) {
	want := mcp.CreateMessageResult{
		Role: mcp.RoleAssistant, Model: "m", StopReason: "toolUse", Meta: mcp.Meta{"k": "v"},
		Content: []mcp.ContentBlock{mcp.Text("hm"), use("1"),
			&mcp.ToolUseContent{ID: "2", Name: "n", Input: json.RawMessage(`{}`), Meta: mcp.Meta{"u": true}},
			&mcp.ToolResultContent{ToolUseID: "1", IsError: true, StructuredContent: json.RawMessage(`null`),
				Content: []mcp.ContentBlock{mcp.Text("a"), &mcp.ResourceLink{URI: "a:b", Name: "n"}}, Meta: mcp.Meta{"m": true}}},
	}
	raw, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got mcp.CreateMessageResult
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	message := samplingMessage(mcp.RoleUser, mcp.Text("alone"))
	if raw, err = json.Marshal(message); string(raw) != `{"role":"user","content":{"type":"text","text":"alone"}}` || err != nil {
		t.Errorf("got %s, %v, want a single content block", raw, err)
	}
	var again mcp.SamplingMessage
	if err := json.Unmarshal(raw, &again); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(message, again); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Requirement: SAMP-08
func TestInvalidSamplingRequestsAreRefused(t *testing.T) {
	hi := samplingMessage(mcp.RoleUser, mcp.Text("hi"))
	conversation := func(messages ...mcp.SamplingMessage) *mcp.CreateMessageParams {
		return &mcp.CreateMessageParams{MaxTokens: 5, Messages: messages}
	}
	for name, test := range map[string]struct {
		params *mcp.CreateMessageParams
		says   string
	}{
		"none":        {nil, "nil"},
		"no messages": {conversation(), "no messages"},
		"no bound":    {&mcp.CreateMessageParams{Messages: []mcp.SamplingMessage{hi}}, "MaxTokens"},
		// Requirement: SAMP-18
		"no content":  {conversation(samplingMessage(mcp.RoleUser)), "no content"},
		"nil content": {conversation(samplingMessage(mcp.RoleUser, nil)), "nil"},
		// Requirement: SAMP-18
		"unknown role":              {conversation(samplingMessage("system", mcp.Text("hi"))), "role"},
		"a link":                    {conversation(samplingMessage(mcp.RoleUser, &mcp.ResourceLink{URI: "a:b", Name: "n"})), "resource_link"},
		"unknown context":           {&mcp.CreateMessageParams{MaxTokens: 5, Messages: []mcp.SamplingMessage{hi}, IncludeContext: "all"}, "IncludeContext"},
		"unknown choice":            {&mcp.CreateMessageParams{MaxTokens: 5, Messages: []mcp.SamplingMessage{hi}, ToolChoice: &mcp.ToolChoice{Mode: "maybe"}}, "ToolChoice"},
		"a tool without a name":     {&mcp.CreateMessageParams{MaxTokens: 5, Messages: []mcp.SamplingMessage{hi}, Tools: []*mcp.Tool{nil}}, "tool 0"},
		"a preference above 1":      {&mcp.CreateMessageParams{MaxTokens: 5, Messages: []mcp.SamplingMessage{hi}, ModelPreferences: &mcp.ModelPreferences{CostPriority: 2}}, "preference"},
		"a preference that is NaN":  {&mcp.CreateMessageParams{MaxTokens: 5, Messages: []mcp.SamplingMessage{hi}, ModelPreferences: &mcp.ModelPreferences{CostPriority: math.NaN()}}, "preference"},
		"a user who uses tools":     {conversation(samplingMessage(mcp.RoleUser, use("1"))), "tool use in a message of the user"},
		"a use without an id":       {conversation(hi, samplingMessage(mcp.RoleAssistant, use(""))), "tool use"},
		"a use without an object":   {conversation(hi, samplingMessage(mcp.RoleAssistant, &mcp.ToolUseContent{ID: "1", Name: "n", Input: json.RawMessage(`1`)})), "tool use"},
		"a result without a use id": {conversation(hi, samplingMessage(mcp.RoleUser, result(""))), "names no tool use"},
		"a use at the end":          {conversation(hi, samplingMessage(mcp.RoleAssistant, use("1"))), "without a result"},
		"a use not answered":        {conversation(hi, samplingMessage(mcp.RoleAssistant, use("1")), hi), "has no results"},
		"one of two answered":       {conversation(hi, samplingMessage(mcp.RoleAssistant, use("1"), use("2")), samplingMessage(mcp.RoleUser, result("1"))), "1 results for 2"},
		"one answered twice":        {conversation(hi, samplingMessage(mcp.RoleAssistant, use("1"), use("2")), samplingMessage(mcp.RoleUser, result("1"), result("1"))), "has a result already"},
		"another one answered":      {conversation(hi, samplingMessage(mcp.RoleAssistant, use("1")), samplingMessage(mcp.RoleUser, result("2"))), "does not exist or has a result"},
		"one answered too late":     {conversation(hi, samplingMessage(mcp.RoleAssistant, use("1")), hi, samplingMessage(mcp.RoleUser, result("1"))), "has no results"},
		"a result without a use":    {conversation(hi, samplingMessage(mcp.RoleUser, result("1"))), "1 results for 0"},
		// Requirement: SAMP-07
		"a mixed message":       {conversation(hi, samplingMessage(mcp.RoleAssistant, use("1")), samplingMessage(mcp.RoleUser, result("1"), mcp.Text("so?"))), "mixes"},
		"an assistant's result": {conversation(hi, samplingMessage(mcp.RoleAssistant, use("1")), samplingMessage(mcp.RoleAssistant, result("1"))), "in a message of the assistant"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newHandlerPeer(t, nil, sampling(test.params)).call("t", "", "", "")
			if !r.IsError || !strings.Contains(r.text(), test.says) {
				t.Errorf("got %+v, want a tool error with %q", r, test.says)
			}
		})
	}
}

// Requirement: SAMP-06
func TestIncludeContextNeedsTheCapabilitySince20251125(t *testing.T) {
	p := newHandlerPeer(t, nil, sampling(&mcp.CreateMessageParams{MaxTokens: 5, IncludeContext: "allServers",
		Messages: []mcp.SamplingMessage{samplingMessage(mcp.RoleUser, mcp.Text("hi"))}}))
	p.caps = `{"sampling":{}}`
	for revision, asks := range map[string]bool{"2025-06-18": true, "2025-11-25": false, "2026-07-28": false} {
		p.revision = revision
		if r := p.call("t", "", "", ""); (r.ResultType == "input_required") != asks {
			t.Errorf("%s: got %+v, want a request %v", revision, r, asks)
		}
	}
}

// Requirement: SAMP-19
func TestToolChoiceIsSentAsGiven(t *testing.T) {
	for _, test := range []struct {
		choice *mcp.ToolChoice
		want   string
	}{
		{nil, ""},
		{&mcp.ToolChoice{}, `{}`},
		{&mcp.ToolChoice{Mode: "auto"}, `{"mode":"auto"}`},
		{&mcp.ToolChoice{Mode: "required"}, `{"mode":"required"}`},
		{&mcp.ToolChoice{Mode: "none"}, `{"mode":"none"}`},
	} {
		p := newHandlerPeer(t, nil, sampling(&mcp.CreateMessageParams{MaxTokens: 5, Tools: []*mcp.Tool{{Name: "x"}}, ToolChoice: test.choice,
			Messages: []mcp.SamplingMessage{samplingMessage(mcp.RoleUser, mcp.Text("hi"))}}))
		params := p.call("t", "", "", "").InputRequests["a"].Params
		got := decode[struct{ ToolChoice json.RawMessage }](t, params).ToolChoice
		if string(got) != test.want {
			t.Errorf("%+v: got %s, want %q", test.choice, got, test.want)
		}
	}
}
