package forward

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

func TestParamsHaveTheDefinedMembers(t *testing.T) {
	for _, test := range []struct{ method, params, want string }{ // "" for unchanged
		{wire.MethodToolsCall, `{"_meta":{"a":1},"name":"n","arguments":{"Name":1}}`, ``},
		{wire.MethodToolsCall, `{"name":"n","arguments":null,"_meta":{},"more":1}`, `{"_meta":{},"name":"n"}`},
		{wire.MethodToolsCall, `{"task":{"ttl":1,"x":2},"name":"n"}`, `{"task":{"ttl":1},"name":"n"}`},
		{wire.MethodToolsCall, `{"x":1}`, `{}`},
		{wire.MethodPromptsGet, `{"name":"n","uri":"u","requestState":"s"}`, `{"name":"n","requestState":"s"}`},
		{wire.MethodResourcesRead, `{"uri":"u","inputResponses":{"Q":{"action":"accept","content":{"a":1,"A":2},"x":1},"r":1}}`,
			`{"uri":"u","inputResponses":{"Q":{"action":"accept","content":{"a":1,"A":2}},"r":1}}`},
		{wire.MethodResourcesRead, `{"uri":"u","inputResponses":{"q":{"roots":[{"uri":"r","x":1},{"name":"n"},2]}}}`,
			`{"uri":"u","inputResponses":{"q":{"roots":[{"uri":"r"},{"name":"n"},2]}}}`},
		{wire.MethodCompletionComplete, `{"ref":{"type":"t","name":"n"},"argument":{"name":"a","value":"v"},"context":{}}`, ``},
		{wire.MethodCompletionComplete, `{"ref":{"x":1},"argument":1}`, `{"ref":{},"argument":1}`},
		{wire.MethodToolsList, `{"cursor":"c","name":1}`, `{"cursor":"c"}`},
		{wire.MethodSubscriptionsListen, `{"notifications":{"toolsListChanged":true,"jobs":[1]},"x":1}`,
			`{"notifications":{"toolsListChanged":true,"jobs":[1]}}`},
		{"acme/use", `{"anything":{"a":1,"A":2},"name":1,"_meta":{}}`, ``},
		{wire.MethodToolsCall, ``, ``},
	} {
		got, err := Params(test.method, json.RawMessage(test.params))
		if err != nil || string(got) != test.want {
			t.Errorf("%s %s: got %s, %v, want %s", test.method, test.params, got, err, test.want)
		}
	}
}

func TestParamsRefusesWhatResemblesAnother(t *testing.T) {
	for _, test := range []struct{ method, params string }{
		{wire.MethodToolsCall, `{"name":"n","Name":"m"}`},
		{wire.MethodToolsCall, `{"name":"n","name ":"m"}`},
		{wire.MethodToolsCall, `{"name":"n","\u0000name":"m"}`},
		{wire.MethodToolsCall, `{"name":"n","name\u0000x":"m"}`},
		{wire.MethodToolsCall, `{"name":"n","argument\u017f":{}}`},
		{wire.MethodToolsCall, `{"name":"n","_META":{}}`},
		{wire.MethodToolsCall, `{"name":"n","x":1,"X":1}`},
		{wire.MethodToolsCall, `{"name":"n","ta\u017f\u212a":{}}`},
		{wire.MethodToolsCall, `{"name":"n","RequestState":"s"}`},
		{wire.MethodToolsCall, `{"name":"n","inputResponses":{"q":{"action":"decline","Action":"accept"}}}`},
		{wire.MethodToolsCall, `{"name":"n","inputResponses":{"q":{"roots":[{"uri":"r","URI":"s"}]}}}`},
		{wire.MethodToolsCall, `{"name":"n","arguments":[]}`},
		{wire.MethodToolsCall, `{"name":"n","arguments":"{}"}`},
		{wire.MethodPromptsGet, `{"name":"n","arguments":1}`},
		{wire.MethodPromptsGet, `{"NAME":"n"}`},
		{wire.MethodResourcesRead, `{"uri":"u","Uri":"v"}`},
		{wire.MethodResourcesSubscribe, `{"uri":"u","ur\u0131":"v"}`},
		{wire.MethodCompletionComplete, `{"ref":{"name":"n","Name":"m"}}`},
		{wire.MethodCompletionComplete, `{"argument":{"name":"n","valuE":"m"}}`},
		{wire.MethodLoggingSetLevel, `{"level":"info","Level":"debug"}`},
		{wire.MethodToolsList, `{"Cursor":"c"}`},
		{wire.MethodTasksGet, `{"taskId":"a","taskID":"b"}`},
		{"tasks/update", `{"taskId":"a","inputresponses":{}}`},
		{wire.MethodSubscriptionsListen, `{"notifications":{"ResourceSubscriptions":["u"]}}`},
		{"skills/get", `{"uri":"u","URI":"v"}`},
		{"acme/use", `{"uri":"u","URI":"v"}`},
	} {
		if got, err := Params(test.method, json.RawMessage(test.params)); err == nil || err.Code != wire.CodeInvalidParams {
			t.Errorf("%s %s: got %s, %v, want %d", test.method, test.params, got, err, wire.CodeInvalidParams)
		}
	}
}

// A method that a careless server could take for a method of the protocol is not an extension method.
func TestParamsRefusesMethodsThatResembleOthers(t *testing.T) {
	for _, method := range []string{"Tools/call", "tool\u017f/call", "tools/call ", "\ttools/call", "tools//call", "/tools/call",
		"tools/call/", "tools /call", "tools/call\x00", "TOOLS/CALL", "ta\u017f\u212as/get", "Skills/get", "logging/setlevel",
		"resources//read", "Ping", "tasks/Update", "Roots/list", "\u200btools/call", "sampling/createmessage"} {
		if got, err := Params(method, json.RawMessage(`{}`)); err == nil || err.Code != wire.CodeMethodNotFound {
			t.Errorf("%q: got %s, %v, want %d", method, got, err, wire.CodeMethodNotFound)
		}
	}
	for _, method := range []string{"tools/call", "tools/calls", "acme/Tools", "tools.call", "roots/list", "x"} {
		if _, err := Params(method, json.RawMessage(`{}`)); err != nil {
			t.Errorf("%q: got %v", method, err)
		}
	}
}

// Forwarded params contain only members that the revision of the server defines.
func TestAppendParamsHasTheMembersOfTheRevision(t *testing.T) {
	params := `{"name":"n","task":{},"requestState":"s","context":1,"x":1,"_meta":{}}`
	for r, want := range map[wire.Revision]string{
		wire.November2024: `,"name":"n"`, wire.June2025: `,"name":"n"`, wire.November2025: `,"name":"n","task":{}`,
		wire.July2026: `,"name":"n","requestState":"s"`,
	} {
		if got := string(AppendParams(nil, []byte(params), wire.MethodToolsCall, "", r)); got != want {
			t.Errorf("%v: got %s, want %s", r, got, want)
		}
	}
	params = `{"ref":{"type":"t","name":"n","title":"T"},"argument":{"name":"a","value":"v"},"context":{}}`
	got := string(AppendParams(nil, []byte(params), wire.MethodCompletionComplete, "m", wire.March2025))
	if want := `,"ref":{"type":"t","name":"m"},"argument":{"name":"a","value":"v"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func BenchmarkParams(b *testing.B) {
	params := json.RawMessage(`{"name":"echo","arguments":{"message":"` + strings.Repeat("x", 100) + `"},"_meta":{"a":{"b":1}}}`)
	var dst []byte
	b.ReportAllocs()
	for b.Loop() {
		if got, err := Params(wire.MethodToolsCall, params); got != nil || err != nil {
			b.Fatal(err)
		}
		dst = AppendParams(dst[:0], params, wire.MethodToolsCall, "read", wire.Latest())
	}
}
