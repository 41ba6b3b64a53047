package jsonrpc_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

func TestAppendEncodesEveryKind(t *testing.T) {
	tests := []struct {
		name string
		m    *jsonrpc.Message
		want string
	}{
		{"request", &jsonrpc.Message{ID: jsonrpc.IntID(1), Method: "m", Params: []byte(`{"a":1}`)}, `{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1}}`},
		{"no params", &jsonrpc.Message{ID: jsonrpc.StringID("x"), Method: "a\"b"}, `{"jsonrpc":"2.0","id":"x","method":"a\"b"}`},
		{"notification", &jsonrpc.Message{Method: "n", Params: []byte(`[]`)}, `{"jsonrpc":"2.0","method":"n","params":[]}`},
		{"result", &jsonrpc.Message{ID: jsonrpc.IntID(0), Result: []byte(`{"b":2}`)}, `{"jsonrpc":"2.0","id":0,"result":{"b":2}}`},
		{"no result", &jsonrpc.Message{ID: jsonrpc.IntID(1), Result: json.RawMessage("{}")}, `{"jsonrpc":"2.0","id":1,"result":{}}`},
		{
			"error", &jsonrpc.Message{ID: jsonrpc.IntID(1), Error: &jsonrpc.Error{Code: -32601, Message: "a\nb", Data: []byte(`null`)}},
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"a\nb","data":null}}`,
		},
		{
			"error without id", &jsonrpc.Message{Error: &jsonrpc.Error{}},
			`{"jsonrpc":"2.0","error":{"code":0,"message":""}}`,
		},
		{
			"batch", &jsonrpc.Message{Batch: []*jsonrpc.Message{
				{Method: "a"}, {ID: jsonrpc.IntID(1), Result: json.RawMessage("{}")},
			}},
			`[{"jsonrpc":"2.0","method":"a"},{"jsonrpc":"2.0","id":1,"result":{}}]`,
		},
		{
			"raw parts on many lines", &jsonrpc.Message{ID: jsonrpc.IntID(1), Method: "m", Params: []byte("\n{\r\n \"a\": \"\\n\",\n\"b\":[\n]\n}")},
			`{"jsonrpc":"2.0","id":1,"method":"m","params": {   "a": "\n", "b":[ ] }}`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := string(jsonrpc.Append([]byte("x"), tt.m)); got != "x"+tt.want {
				t.Errorf("got  %s\nwant x%s", got, tt.want)
			}
		})
	}
}

func TestAppendDoesNotChangeRawValues(t *testing.T) {
	params := []byte("{\n}")
	jsonrpc.Append(nil, &jsonrpc.Message{Method: "m", Params: params})
	if string(params) != "{\n}" {
		t.Errorf("params became %q", params)
	}
}

func TestKind(t *testing.T) {
	for want, m := range map[jsonrpc.Kind]*jsonrpc.Message{
		jsonrpc.Invalid:      {},
		jsonrpc.Request:      {ID: jsonrpc.IntID(1), Method: "m"},
		jsonrpc.Notification: {Method: "m"},
		jsonrpc.Response:     {ID: jsonrpc.IntID(1), Result: []byte("{}")},
		jsonrpc.Batch:        {Batch: []*jsonrpc.Message{}},
	} {
		if got := m.Kind(); got != want {
			t.Errorf("%+v: kind = %v, want %v", m, got, want)
		}
	}
	refused := &jsonrpc.Message{Method: "m", Refused: &jsonrpc.DecodeError{}}
	if got := refused.Kind(); got != jsonrpc.Invalid {
		t.Errorf("refused element: kind = %v, want %v", got, jsonrpc.Invalid)
	}
}

// Requirement: RPC-02
func TestParseID(t *testing.T) {
	for _, raw := range []string{`1`, `-1`, `0`, `"a"`, `""`, `"\u0000"`, strings.Repeat("1", 20)} {
		if id, err := jsonrpc.ParseID([]byte(raw)); err != nil || id.String() != raw {
			t.Errorf("ParseID(%s) = %s, %v", raw, id, err)
		}
	}
	for _, raw := range []string{
		``, `null`, `true`, `1.0`, `1e3`, `-0`, `-`, `01`, `-01`, `00`, `+1`, ` 1`, `1 `, `"`, `"a`, `"a"b"`, "\"\n\"", "\"\xff\"",
		`"\ud800"`, `{}`, `[1]`, strings.Repeat("1", 21), `"` + strings.Repeat("i", 257) + `"`,
	} {
		if id, err := jsonrpc.ParseID([]byte(raw)); err == nil || !id.IsZero() {
			t.Errorf("ParseID(%s) = %s, %v; want an error", raw, id, err)
		}
	}
}

func TestIDsCompareByTypeAndText(t *testing.T) {
	if jsonrpc.IntID(1) == jsonrpc.StringID("1") {
		t.Error(`1 equals "1"`)
	}
	parsed, err := jsonrpc.ParseID([]byte("-9223372036854775808"))
	if err != nil || parsed != jsonrpc.IntID(-1<<63) {
		t.Errorf("parsed %v, %v", parsed, err)
	}
}

func TestIDInsideOtherJSON(t *testing.T) {
	type params struct {
		ID   jsonrpc.ID `json:"requestId"`
		Next jsonrpc.ID `json:"next,omitzero"`
	}
	for _, text := range []string{`{"requestId":1}`, `{"requestId":"a","next":9007199254740993}`, `{"requestId":null}`} {
		var p params
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			t.Fatal(err)
		}
		if got, err := json.Marshal(p); err != nil || string(got) != text {
			t.Errorf("%s came back as %s, %v", text, got, err)
		}
	}
	var p params
	if err := json.Unmarshal([]byte(`{"requestId":1.5}`), &p); err == nil || !p.ID.IsZero() {
		t.Errorf("1.5 was read as %v, %v", p.ID, err)
	}
}

func TestErrorInsideOtherJSON(t *testing.T) {
	text := `{"code":-32602,"message":"m","data":{"a":1}}`
	var e jsonrpc.Error
	if err := json.Unmarshal([]byte(text), &e); err != nil {
		t.Fatal(err)
	}
	if got, err := json.Marshal(&e); err != nil || string(got) != text {
		t.Errorf("%s came back as %s, %v", text, got, err)
	}
}

func TestErrorsKnowTheirSide(t *testing.T) {
	remote := accept(t, `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"m"}}`).Error
	local := &jsonrpc.Error{Code: -32602, Message: "other"}
	wrapped := fmt.Errorf("call: %w", remote)
	if !remote.Remote() || local.Remote() {
		t.Errorf("Remote: %t and %t", remote.Remote(), local.Remote())
	}
	if !errors.Is(wrapped, local) || !errors.Is(wrapped, remote) {
		t.Error("a remote error does not match its code")
	}
	if errors.Is(local, remote) {
		t.Error("a local error matches a remote one")
	}
	if errors.Is(wrapped, &jsonrpc.Error{Code: -32603}) || errors.Is(wrapped, errors.ErrUnsupported) {
		t.Error("errors with different codes match")
	}
	if got := remote.Error(); got != "remote error: m (code -32602)" {
		t.Errorf("text %q", got)
	}
	refused := refuse(t, `1`)
	if !errors.Is(refused, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest}) {
		t.Errorf("%v does not unwrap", refused)
	}
}

func ExampleDecode() {
	m, err := jsonrpc.Decode([]byte(`{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"cursor":"b"}}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(m.ID, m.Method, string(m.Params))
	// Output: 7 tools/list {"cursor":"b"}
}

func ExampleDecodeError_Response() {
	_, err := jsonrpc.Decode([]byte(`{"jsonrpc":"2.0","id":7,"method":"tools/list","method":"tools/call"}`))
	if refused, ok := errors.AsType[*jsonrpc.DecodeError](err); ok {
		if answer := refused.Response(); answer != nil {
			fmt.Printf("%s\n", jsonrpc.Append(nil, answer))
		}
	}
	// Output: {"jsonrpc":"2.0","id":7,"error":{"code":-32600,"message":"invalid request: duplicate key at byte 46"}}
}
