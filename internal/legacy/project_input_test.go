package legacy

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// T-43: forms of 2025-06-18 have no mode, one kind of titled choice and one kind of default.
func TestFormsForOlderClients(t *testing.T) {
	form := func(properties string) string {
		return `{"message":"m","requestedSchema":{"type":"object","properties":{` + properties + `}}}`
	}
	cases := []struct{ name, properties, want string }{
		{"titled choice", `"a":{"type":"string","oneOf":[{"const":"x","title":"X"},{"title":"Y","const":"y"},{"const":"z"}],"default":"x","title":"A"}`,
			`"a":{"type":"string","title":"A","enum":["x","y","z"],"enumNames":["X","Y","z"]}`},
		{"choice twice", `"a":{"type":"string","oneOf":[{"const":"x","title":"X"}],"enum":["x"]}`, `"a":{"type":"string","enum":["x"]}`},
		{"nothing but a choice", `"a":{"oneOf":[]}`, `"a":{"enum":[],"enumNames":[]}`},
		{"defaults", `"a":{"type":"string","default":"x"},"b":{"type":"number","default":1},"c":{"type":"boolean","default":false}`,
			`"a":{"type":"string"},"b":{"type":"number"},"c":{"type":"boolean","default":false}`},
		{"named choice", `"a":{"type":"string","enum":["x"],"enumNames":["X"]}`, `"a":{"type":"string","enum":["x"],"enumNames":["X"]}`},
		{"a field called default", `"default":{"type":"string"},"oneOf":{"type":"string"}`, `"default":{"type":"string"},"oneOf":{"type":"string"}`},
	}
	for _, test := range cases {
		t.Run(test.name, func(t *testing.T) {
			got, err := projectInputRequest(wire.June2025, wire.MethodElicitationCreate, json.RawMessage(form(test.properties)), "")
			if err != nil || string(got) != form(test.want) {
				t.Errorf("got %s, %v\nwant %s", got, err, form(test.want))
			}
		})
	}
}

// T-08: 2025-11-25 has a mode, earlier revisions have none.
func TestMode(t *testing.T) {
	for _, test := range []struct {
		rev          wire.Revision
		params, want string
	}{
		{wire.June2025, `{"mode":"form","message":"m"}`, `{"message":"m"}`},
		{wire.June2025, `{"message":"m"}`, `{"message":"m"}`},
		{wire.November2025, `{"message":"m"}`, `{"message":"m","mode":"form"}`},
		{wire.November2025, `{"message":"m","mode":"form"}`, `{"message":"m","mode":"form"}`},
		{wire.November2025, `{"mode":"url","url":"https://e"}`, `{"mode":"url","url":"https://e","elicitationId":"i\"d"}`},
		{wire.November2025, `{"mode":"url","url":"https://e","elicitationId":"own"}`, `{"mode":"url","url":"https://e","elicitationId":"own"}`},
	} {
		got, err := projectInputRequest(test.rev, wire.MethodElicitationCreate, json.RawMessage(test.params), `i"d`)
		if err != nil || string(got) != test.want {
			t.Errorf("%v %s: got %s, %v, want %s", test.rev, test.params, got, err, test.want)
		}
	}
}

// T-44: before 2025-11-25 a message has one content block.
func TestSamplingBlocks(t *testing.T) {
	const params = `{"maxTokens":1,"messages":[{"role":"user","content":[{"type":"text","text":"a"}]},{"content":[{"type":"text","text":"b","annotations":{}},{"type":"image"}],"role":"assistant","_meta":{}},{"role":"user","content":{"type":"text","text":"c"}},{"role":"user","content":[]}],"tools":[]}`
	const want = `{"maxTokens":1,"messages":[{"role":"user","content":{"type":"text","text":"a"}},{"content":{"type":"text","text":"b"},"role":"assistant"},{"content":{"type":"image"},"role":"assistant"},{"role":"user","content":{"type":"text","text":"c"}}]}`
	for _, rev := range []wire.Revision{wire.November2024, wire.March2025, wire.June2025} {
		got, err := projectInputRequest(rev, wire.MethodSamplingCreateMessage, json.RawMessage(params), "")
		if err != nil || strings.ReplaceAll(string(got), `,"annotations":{}`, "") != want {
			t.Errorf("%v: got %s, %v\nwant %s", rev, got, err, want)
		}
	}
	got, err := projectInputRequest(wire.November2025, wire.MethodSamplingCreateMessage, json.RawMessage(params), "")
	if err != nil || !strings.Contains(string(got), `"content":[{"type":"text","text":"a"}]`) {
		t.Errorf("got %s, %v, want arrays unchanged", got, err)
	}
}

func TestInputRequestsHaveNoServerInfo(t *testing.T) {
	for _, method := range []string{wire.MethodElicitationCreate, wire.MethodSamplingCreateMessage, wire.MethodRootsList} {
		got, err := projectInputRequest(wire.June2025, method, json.RawMessage(`{"_meta":{"io.modelcontextprotocol/serverInfo":{},"a":1}}`), "")
		if err != nil || string(got) != `{"_meta":{"a":1}}` {
			t.Errorf("%s: got %s, %v", method, got, err)
		}
	}
}

func TestInputRequestsWithoutProjection(t *testing.T) {
	cases := []struct {
		rev                   wire.Revision
		method, params, names string
	}{
		{wire.March2025, wire.MethodElicitationCreate, `{}`, "elicitation/create"},
		{wire.June2025, wire.MethodElicitationCreate, `{"mode":"url","url":"https://e"}`, "url"},
		{wire.November2025, wire.MethodElicitationCreate, `{"mode":"voice"}`, "voice"},
		{wire.June2025, wire.MethodElicitationCreate, `{"requestedSchema":{"type":"object","properties":{"pick":{"type":"array"}}}}`, `"pick"`},
		{wire.June2025, wire.MethodSamplingCreateMessage, `{"tools":[{}]}`, "tools"},
		{wire.June2025, wire.MethodSamplingCreateMessage, `{"messages":[{"content":{"type":"tool_use"}}]}`, "tools"},
		{wire.June2025, wire.MethodSamplingCreateMessage, `{"messages":[{"content":[{"type":"text"},{"type":"tool_result"}]}]}`, "tools"},
		{wire.November2024, wire.MethodSamplingCreateMessage, `{"messages":[{"content":{"type":"audi\u006f"}}]}`, "audio"},
		{wire.November2025, wire.MethodToolsCall, `{}`, "tools/call"},
		{wire.November2025, wire.NotificationProgress, `{}`, "progress"},
		{wire.November2025, wire.MethodRootsList, `[]`, "roots/list"},
	}
	for _, test := range cases {
		got, err := projectInputRequest(test.rev, test.method, json.RawMessage(test.params), "")
		if err == nil || err.Code != -32600 || !strings.Contains(err.Message, test.names) {
			t.Errorf("%v %s %s: got %s, %v", test.rev, test.method, test.params, got, err)
		}
	}
	if got, err := projectInputRequest(wire.November2024, wire.MethodRootsList, nil, ""); got != nil || err != nil {
		t.Errorf("no params: %s, %v", got, err)
	}
}

func TestProjectInputResponse(t *testing.T) {
	for _, test := range []struct{ method, result, want string }{
		{wire.MethodElicitationCreate, `{"_meta":{},"action":"accept","content":{"a":1},"x":1}`, `{"action":"accept","content":{"a":1}}`},
		{wire.MethodElicitationCreate, `{"action":"cancel","content":null}`, `{"action":"cancel"}`},
		{wire.MethodRootsList, `{"roots":[{"uri":"file:///a"}],"_meta":{}}`, `{"roots":[{"uri":"file:///a"}]}`},
		{wire.MethodSamplingCreateMessage, `{"role":"assistant","content":{"type":"text","text":"x"},"model":"m","usage":1}`, `{"role":"assistant","content":{"type":"text","text":"x"},"model":"m"}`},
		{wire.MethodRootsList, `null`, `null`},
	} {
		if got := projectInputResponse(wire.November2025, test.method, json.RawMessage(test.result)); string(got) != test.want {
			t.Errorf("%s: got %s, want %s", test.result, got, test.want)
		}
	}
}
