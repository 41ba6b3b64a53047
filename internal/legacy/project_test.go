package legacy

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

func notification(method, params string) *jsonrpc.Message {
	return &jsonrpc.Message{Method: method, Params: json.RawMessage(params)}
}

func TestProjectResult(t *testing.T) {
	const a, b, c, d = wire.November2024, wire.March2025, wire.June2025, wire.November2025
	cases := []struct {
		name   string
		rev    wire.Revision
		method string
		result string
		want   string
	}{
		// Requirement: RPC-20
		{"modern members are removed", d, "tools/call", `{` + resultFrame + `,"content":[]}`, `{"_meta":{"com.example/k":{"a":[1]}},"content":[]}`},
		// Requirement: META-13
		{"an empty _meta is removed", d, "tools/call", `{"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{}},"content":[]}`, `{"content":[]}`},
		{"trace context stays", a, "x/y", `{"resultType":"complete","_meta":{"traceparent":"00"}}`, `{"_meta":{"traceparent":"00"}}`},
		{"modern keys in other spellings", d, "x/y", `{"result\u0054ype":"complete","_meta":{"io.modelcontextprotocol\/serverInfo":{}}}`, `{}`},
		{"keys keep their meaning", d, "x/y", `{ "a\"b" : 1 , "\u00e9" : "\u00e9", "resultType":"complete" }`, `{"a\"b":1,"é":"\u00e9"}`},
		{"members of every revision are unchanged", a, "x/y", `{ "a\"b" : 1 , "\u00e9" : "\u00e9" }`, `{ "a\"b" : 1 , "\u00e9" : "\u00e9" }`},
		{"an empty _meta is removed in the oldest revision", a, "x/y", `{"_meta":{}}`, `{}`},
		{"cache hints of an unknown method are kept", d, "x/y", `{"ttlMs":1,"resultType":"complete"}`, `{"ttlMs":1}`},
		{"not an object", d, "tools/call", `[1]`, `[1]`},
		{"the newest revision is unchanged", wire.Latest(), "tools/call", `{"resultType":"complete"}`, `{"resultType":"complete"}`},

		{"audio", a, "tools/call", `{"content":[{"type":"audio","data":"aGVsbG8h","mimeType":"audio/wav","annotations":{"priority":1,"lastModified":"x"}}]}`,
			`{"content":[{"type":"text","text":"[audio that this client cannot take: audio/wav, about 6 bytes]","annotations":{"priority":1}}]}`},
		{"audio in another spelling", a, "tools/call", `{"content":[{"type":"\u0061udio"}]}`,
			`{"content":[{"type":"text","text":"[audio that this client cannot take: unknown type, about 0 bytes]"}]}`},
		{"audio stays", b, "tools/call", `{"content":[{"type":"audio","data":"","mimeType":"audio/wav"}]}`, `{"content":[{"type":"audio","data":"","mimeType":"audio/wav"}]}`},
		// Requirement: TOOL-18
		{"links become text", b, "tools/call", `{"content":[{"type":"resource_link","uri":"file:///a","name":"n","description":"d"}]}`,
			`{"content":[{"type":"text","text":"[resource n: file:///a] d"}]}`},
		{"links in prompts become text", a, "prompts/get", `{"messages":[{"role":"user","content":{"type":"resource_link","uri":"x:y","name":"n","title":"N"}}]}`,
			`{"messages":[{"role":"user","content":{"type":"text","text":"[resource N: x:y]"}}]}`},
		{"icons of links", c, "tools/call", `{"content":[{"type":"resource_link","uri":"x:y","name":"n","icons":[],"_meta":{}}]}`,
			`{"content":[{"type":"resource_link","uri":"x:y","name":"n","_meta":{}}]}`},

		// Requirement: TOOL-16
		{"an object stays", c, "tools/call", `{"content":[],"structuredContent":{"a":1}}`, `{"content":[],"structuredContent":{"a":1}}`},
		{"T-42: other values are removed, text stays", d, "tools/call", `{"content":[{"type":"text","text":"x"}],"structuredContent":[1]}`, `{"content":[{"type":"text","text":"x"}]}`},
		{"T-42: without text, the value is the text", d, "tools/call", `{"structuredContent":["\"",1],"isError":false,"content":[{"type":"image"}]}`,
			`{"content":[{"type":"image"},{"type":"text","text":"[\"\\\"\",1]"}],"isError":false}`},
		{"T-42: without content", d, "tools/call", `{"structuredContent":null}`, `{"content":[{"type":"text","text":"null"}]}`},
		{"structured content before its revision", b, "tools/call", `{"content":[],"structuredContent":{"a":1}}`, `{"content":[{"type":"text","text":"{\"a\":1}"}]}`},

		{"T-42: output schemas", d, "tools/list", `{"tools":[{"name":"a","outputSchema":{"type":"object","properties":{"x":true,"y":false,"z":{}}}},{"name":"b","outputSchema":{"type":"array"}}]}`,
			`{"tools":[{"name":"a","outputSchema":{"type":"object","properties":{"x":{},"y":{"not":{}},"z":{}}}},{"name":"b"}]}`},
		{"output schemas before their revision", b, "tools/list", `{"tools":[{"name":"a","outputSchema":{"type":"object"}}]}`, `{"tools":[{"name":"a"}]}`},
		{"input schemas stay open", a, "tools/list", `{"tools":[{"inputSchema":{"type":"object","$defs":{},"properties":{"x":{"x-mcp-header":"X"}}}}]}`,
			`{"tools":[{"inputSchema":{"type":"object","$defs":{},"properties":{"x":{"x-mcp-header":"X"}}}}]}`},
		{"execution", c, "tools/list", `{"tools":[{"name":"a","execution":{"taskSupport":"forbidden"}}]}`, `{"tools":[{"name":"a"}]}`},
		// Requirement: TOOL-30
		{"execution stays", d, "tools/list", `{"tools":[{"name":"a","execution":{"taskSupport":"forbidden"}}]}`, `{"tools":[{"name":"a","execution":{"taskSupport":"forbidden"}}]}`},
		{"members of MCP Apps stay in the _meta of tools", a, "tools/list", `{"tools":[{"name":"a","_meta":{"x":1,"ui":{"resourceUri":"ui://a","visibility":["app"]},"ui/resourceUri":"ui://a","ui/x":2}},{"name":"b","_meta":{"x":1}}]}`,
			`{"tools":[{"name":"a","_meta":{"ui":{"resourceUri":"ui://a","visibility":["app"]},"ui/resourceUri":"ui://a"}},{"name":"b"}]}`},
		{"members of MCP Apps stay in the _meta of resources", b, "resources/list", `{"resources":[{"uri":"ui://a","_meta":{"u\u0069":{"csp":{}},"x":1}},{"uri":"x:y","_meta":{}}]}`,
			`{"resources":[{"uri":"ui://a","_meta":{"ui":{"csp":{}}}},{"uri":"x:y"}]}`},
		{"members of MCP Apps stay in the _meta of contents", b, "resources/read", `{"contents":[{"uri":"ui://a","text":"","_meta":{"x":1,"ui":{}}},{"uri":"x:y","_meta":null}]}`,
			`{"contents":[{"uri":"ui://a","text":"","_meta":{"ui":{}}},{"uri":"x:y"}]}`},
		{"blocks and prompts have no metadata", b, "tools/call", `{"content":[{"type":"text","text":"x","_meta":{"ui":{}}}]}`, `{"content":[{"type":"text","text":"x"}]}`},
		{"metadata stays", c, "tools/list", `{"tools":[{"name":"a","_meta":{"x":1,"ui":{}}}]}`, `{"tools":[{"name":"a","_meta":{"x":1,"ui":{}}}]}`},
		{"input requests are removed", d, "tools/call", `{"resultType":"input_required","inputRequests":{},"requestState":"x","content":[]}`, `{"content":[]}`},
	}
	for _, test := range cases {
		t.Run(test.name, func(t *testing.T) {
			input := []byte(test.result)
			if got := appendResult(nil, test.rev, test.method, input); string(got) != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			if string(input) != test.result {
				t.Errorf("the input was changed: %s", input)
			}
		})
	}
}

func TestResourceNotFound(t *testing.T) {
	e := &jsonrpc.Error{Code: wire.CodeInvalidParams, Message: "resource not found", Data: json.RawMessage(`{"uri":"x:y"}`)}
	for _, rev := range legacyRevisions() {
		got := projectError(rev, wire.MethodResourcesRead, e)
		if got.Code != -32002 || got.Message != e.Message || string(got.Data) != string(e.Data) {
			t.Errorf("%v: %+v", rev, got)
		}
		for _, data := range []string{``, `null`, `{}`, `{"uri":1}`, `"uri"`} {
			other := &jsonrpc.Error{Code: wire.CodeInvalidParams, Data: json.RawMessage(data)}
			if got := projectError(rev, wire.MethodResourcesRead, other); got != other {
				t.Errorf("%v: data %s: code %d, want it unchanged", rev, data, got.Code)
			}
		}
		if got := projectError(rev, wire.MethodToolsCall, e); got != e {
			t.Errorf("%v: code %d for a tool, want it unchanged", rev, got.Code)
		}
	}
	if e.Code != wire.CodeInvalidParams {
		t.Error("the error was changed")
	}
	if got := projectError(wire.Latest(), wire.MethodResourcesRead, e); got != e {
		t.Errorf("code %d in the newest revision, want it unchanged", got.Code)
	}
}

// Requirement: LIFE-15
func TestErrorCodesExistInTheRevision(t *testing.T) {
	cases := []struct {
		e       jsonrpc.Error
		code    int
		message string
	}{
		{jsonrpc.Error{Code: wire.CodeMissingCapability, Message: "m", Data: json.RawMessage(`{"requiredCapabilities":{"elicitation":{"url":{}},"sampling":{}}}`)},
			-32600, "the client did not declare a capability that this request needs, or its revision does not have it: elicitation.url, sampling"},
		{jsonrpc.Error{Code: wire.CodeMissingCapability, Message: "m"}, -32600, "the client did not declare a capability that this request needs, or its revision does not have it"},
		{*wire.UnsupportedVersion("x", nil), -32602, "unsupported protocol version"},
		{jsonrpc.Error{Code: wire.CodeHeaderMismatch, Message: "m"}, -32600, "m"},
		{jsonrpc.Error{Code: wire.CodeURLElicitationRequired, Message: "m"}, -32600, "m"},
		{jsonrpc.Error{Code: -32601, Message: "m"}, -32601, "m"},
		{jsonrpc.Error{Code: -32000, Message: "busy"}, -32000, "busy"},
		{jsonrpc.Error{Code: 7, Message: "own"}, 7, "own"},
	}
	for _, test := range cases {
		got := projectError(wire.June2025, wire.MethodToolsCall, &test.e)
		if got.Code != test.code || got.Message != test.message || !bytes.Equal(got.Data, test.e.Data) {
			t.Errorf("%d: got %+v", test.e.Code, got)
		}
	}
	mismatch := projectError(wire.June2025, wire.MethodInitialize, wire.UnsupportedVersion("x", nil))
	for _, member := range []string{`"supported":[`, `"requested":"x"`} {
		if !strings.Contains(string(mismatch.Data), member) {
			t.Errorf("unsupported version: data %s, want %s", mismatch.Data, member)
		}
	}
	url := &jsonrpc.Error{Code: wire.CodeURLElicitationRequired}
	if got := projectError(wire.November2025, wire.MethodToolsCall, url); got != url {
		t.Errorf("-32042 became %d in a revision that has it", got.Code)
	}
	if projectError(wire.June2025, wire.MethodToolsCall, nil) != nil {
		t.Error("projectError of nil returned an error")
	}
}

func TestProjectNotification(t *testing.T) {
	cases := []struct {
		rev            wire.Revision
		method, params string
		want           string // "" when there is no such notification
	}{
		{wire.November2024, wire.NotificationProgress, `{"progressToken":1,"progress":1,"message":"m"}`, `{"progressToken":1,"progress":1}`},
		{wire.March2025, wire.NotificationProgress, `{"progressToken":1,"progress":1,"message":"m"}`, `{"progressToken":1,"progress":1,"message":"m"}`},
		{wire.November2025, wire.NotificationToolsListChanged, `{"_meta":{"io.modelcontextprotocol/subscriptionId":1}}`, `{}`},
		{wire.November2025, wire.NotificationResourcesUpdated, `{"_meta":{"io.modelcontextprotocol/subscriptionId":1,"a":2},"uri":"x:y"}`, `{"_meta":{"a":2},"uri":"x:y"}`},
		{wire.November2025, wire.NotificationSubscriptionsAcknowledged, `{"notifications":{}}`, ""},
		{wire.November2025, "notifications/com.example/x", `{"a":1}`, `{"a":1}`},
		{wire.Latest(), wire.NotificationToolsListChanged, `{"_meta":{"io.modelcontextprotocol/subscriptionId":1}}`, `{"_meta":{"io.modelcontextprotocol/subscriptionId":1}}`},
	}
	for _, test := range cases {
		m := notification(test.method, test.params)
		got := projectNotification(test.rev, m)
		switch {
		case got == nil && test.want == "":
		case got == nil || string(got.Params) != test.want || got.Method != test.method:
			t.Errorf("%v %s: got %+v, want %s", test.rev, test.method, got, test.want)
		}
		if string(m.Params) != test.params {
			t.Errorf("the message was changed: %s", m.Params)
		}
	}
	m := &jsonrpc.Message{Method: wire.NotificationToolsListChanged}
	if projectNotification(wire.March2025, m) != m {
		t.Error("a notification without params was changed")
	}
}

func TestProjectCapabilities(t *testing.T) {
	const all = `{"tools":{"listChanged":true},"completions":{},"experimental":{"x":{}},"tasks":{},"extensions":{"io.modelcontextprotocol/tasks":{},"io.modelcontextprotocol/ui":{}}}`
	cases := []struct {
		rev                wire.Revision
		capabilities, want string
	}{
		{wire.November2024, all, `{"tools":{"listChanged":true},"experimental":{"x":{}},"extensions":{"io.modelcontextprotocol/ui":{}}}`},
		{wire.June2025, all, `{"tools":{"listChanged":true},"completions":{},"experimental":{"x":{}},"extensions":{"io.modelcontextprotocol/ui":{}}}`},
		{wire.November2025, all, `{"tools":{"listChanged":true},"completions":{},"experimental":{"x":{}},"tasks":{},"extensions":{"io.modelcontextprotocol/ui":{}}}`}, // TASKD-01
		{wire.November2025, `{"extensions":{"io.modelcontextprotocol/tasks":{}}}`, `{}`},
		{wire.November2025, ``, `{}`},
	}
	for _, test := range cases {
		if got := projectCapabilities(test.rev, json.RawMessage(test.capabilities)); string(got) != test.want {
			t.Errorf("%v: got %s, want %s", test.rev, got, test.want)
		}
	}
}

// Requirement: LIFE-20
func TestClientCapabilitiesOfASession(t *testing.T) {
	const all = `{"roots":{"listChanged":true},"sampling":{"tools":{}},"elicitation":{"url":{}},"tasks":{"list":{}},"experimental":{"x":{}},"extensions":{"io.modelcontextprotocol/tasks":{},"com.example/x":{"a":1}},"other":{"b":[]}}`
	const rest = `"experimental":{"x":{}},"extensions":{"com.example/x":{"a":1}},"other":{"b":[]}}`
	for rev, want := range map[wire.Revision]string{
		wire.November2024: `{"roots":{},"sampling":{},` + rest,
		wire.March2025:    `{"roots":{},"sampling":{},` + rest,
		wire.June2025:     `{"roots":{},"sampling":{},"elicitation":{},` + rest,
		wire.November2025: `{"roots":{},"sampling":{"tools":{}},"elicitation":{"url":{}},` + rest,
	} {
		if diff := cmp.Diff(want, string(clientCapabilities(rev, json.RawMessage(all)))); diff != "" {
			t.Errorf("%v: %s", rev, diff)
		}
	}
	if got := clientCapabilities(wire.November2025, json.RawMessage(`{"roots":null,"sampling":{"context":null},"elicitation":1,"other":2}`)); string(got) != `{"sampling":{}}` {
		t.Errorf("members that are not objects: got %s, want {\"sampling\":{}}", got)
	}
}

func TestProjectImplementation(t *testing.T) {
	const all = `{"name":"n","title":"T","version":"1","description":"d","websiteUrl":"https://e","icons":[]}`
	for rev, want := range map[wire.Revision]string{
		wire.March2025:    `{"name":"n","version":"1"}`,
		wire.June2025:     `{"name":"n","title":"T","version":"1"}`,
		wire.November2025: all,
	} {
		if got := projectImplementation(rev, json.RawMessage(all)); string(got) != want {
			t.Errorf("%v: got %s, want %s", rev, got, want)
		}
	}
}
