package jsonrpc_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// compareMessages lets go-cmp compare the unexported fields.
var compareMessages = cmp.AllowUnexported(jsonrpc.ID{}, jsonrpc.Error{})

// refuse decodes text and fails unless it is refused.
func refuse(t *testing.T, text string) *jsonrpc.DecodeError {
	t.Helper()
	m, err := jsonrpc.Decode([]byte(text))
	refused, ok := errors.AsType[*jsonrpc.DecodeError](err)
	if !ok {
		t.Fatalf("Decode(%.80q) = %+v, %v; want a refusal", text, m, err)
	}
	return refused
}

// accept decodes text and fails unless it is a message.
func accept(t *testing.T, text string) *jsonrpc.Message {
	t.Helper()
	m, err := jsonrpc.Decode([]byte(text))
	if err != nil {
		t.Fatalf("Decode(%.80q): %v", text, err)
	}
	return m
}

func nest(depth int) string {
	return strings.Repeat("[", depth) + strings.Repeat("]", depth)
}

func keys(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"k%d":0`, i)
	}
	return "{" + b.String()[1:] + "}"
}

func TestDecodeMessages(t *testing.T) {
	remote := accept(t, `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no such method","data":[1]}}`).Error
	tests := []struct {
		name string
		text string
		want *jsonrpc.Message
		kind jsonrpc.Kind
	}{
		{
			"request", `{"jsonrpc":"2.0","id":1,"method":"ping"}`,
			&jsonrpc.Message{ID: jsonrpc.IntID(1), Method: "ping"}, jsonrpc.Request,
		},
		{
			"request with everything", ` { "params" : {"a": [1] } , "method":"tools\/call","id":"x" ,"jsonrpc":"2\u002e0"} `,
			&jsonrpc.Message{ID: jsonrpc.StringID("x"), Method: "tools/call", Params: []byte(`{"a": [1] }`)}, jsonrpc.Request,
		},
		{
			"positional params", `{"jsonrpc":"2.0","id":1,"method":"m","params":[]}`,
			&jsonrpc.Message{ID: jsonrpc.IntID(1), Method: "m", Params: []byte(`[]`)}, jsonrpc.Request,
		},
		{
			"notification", `{"jsonrpc":"2.0","method":"notifications/initialized","params":{}}`,
			&jsonrpc.Message{Method: "notifications/initialized", Params: []byte(`{}`)}, jsonrpc.Notification,
		},
		{
			"result", `{"jsonrpc":"2.0","id":0,"result":{"x":null}}`,
			&jsonrpc.Message{ID: jsonrpc.IntID(0), Result: []byte(`{"x":null}`)}, jsonrpc.Response,
		},
		{
			"result null", `{"jsonrpc":"2.0","id":"","result":null}`,
			&jsonrpc.Message{ID: jsonrpc.StringID(""), Result: []byte(`null`)}, jsonrpc.Response,
		},
		{
			"error", `{"jsonrpc":"2.0","id":1,"error":{"data":[1],"code":-32601,"more":0,"message":"no such method"}}`,
			&jsonrpc.Message{ID: jsonrpc.IntID(1), Error: remote}, jsonrpc.Response,
		},
		{
			"members that are not JSON-RPC's", `{"jsonrpc":"2.0","method":"m","x":1,"_meta":{},"ids":3,"meth":0}`,
			&jsonrpc.Message{Method: "m"}, jsonrpc.Notification,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := accept(t, tt.text)
			if diff := cmp.Diff(tt.want, got, compareMessages); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			if got.Kind() != tt.kind {
				t.Errorf("kind = %v, want %v", got.Kind(), tt.kind)
			}
		})
	}
}

// refusals are invalid messages. id is the request id if it can be read, or empty.
var refusals = []struct {
	rule string
	text string
	code int
	id   string
	kind jsonrpc.Kind
}{
	// RPC-32: text that is not JSON.
	{"empty", ``, jsonrpc.CodeParseError, "", jsonrpc.Invalid},
	{"white space", " \n", jsonrpc.CodeParseError, "", jsonrpc.Invalid},
	{"cut", `{"jsonrpc":"2.0","id":1,"method":"m","par`, jsonrpc.CodeParseError, "1", jsonrpc.Request},
	{"cut in the id", `{"jsonrpc":"2.0","method":"m","id":"a`, jsonrpc.CodeParseError, "", jsonrpc.Request},
	{"cut result", `{"jsonrpc":"2.0","id":1,"result":{"a":`, jsonrpc.CodeParseError, "1", jsonrpc.Response},
	{"cut, maybe a notification", `{"jsonrpc":"2.0","method":"m"`, jsonrpc.CodeParseError, "", jsonrpc.Invalid},
	{"trailing bytes", `{"jsonrpc":"2.0","id":1,"method":"m"}x`, jsonrpc.CodeParseError, "1", jsonrpc.Request},
	{"two messages", `{"jsonrpc":"2.0","id":1,"method":"m"}{}`, jsonrpc.CodeParseError, "1", jsonrpc.Request},
	{"trailing NUL", `{"jsonrpc":"2.0","id":1,"method":"m"}` + "\x00", jsonrpc.CodeParseError, "1", jsonrpc.Request},
	{"byte order mark", "\uFEFF" + `{"jsonrpc":"2.0","id":1,"method":"m"}`, jsonrpc.CodeParseError, "", jsonrpc.Invalid},
	{"UTF-16", "\xff\xfe{\x00}\x00", jsonrpc.CodeParseError, "", jsonrpc.Invalid},
	{"invalid UTF-8", `{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"` + "\xc3\x28" + `"}}`, jsonrpc.CodeParseError, "1", jsonrpc.Request},
	{"overlong UTF-8", `{"jsonrpc":"2.0","id":1,"method":"` + "\xc1\xad" + `"}`, jsonrpc.CodeParseError, "1", jsonrpc.Request},
	{"encoded surrogate", `{"jsonrpc":"2.0","id":1,"method":"m","params":["` + "\xed\xa0\x80" + `"]}`, jsonrpc.CodeParseError, "1", jsonrpc.Request},
	{"lone surrogate", `{"jsonrpc":"2.0","id":1,"method":"m","params":["\ud800"]}`, jsonrpc.CodeParseError, "1", jsonrpc.Request},
	{"lone surrogate in the id", `{"jsonrpc":"2.0","id":"\udc00","method":"m"}`, jsonrpc.CodeParseError, "", jsonrpc.Invalid},
	{"comment", `{"jsonrpc":"2.0",/**/"id":1,"method":"m"}`, jsonrpc.CodeParseError, "", jsonrpc.Invalid},
	{"raw line break in a string", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\n\"}", jsonrpc.CodeParseError, "1", jsonrpc.Request},
	{"not closed deep down", `{"jsonrpc":"2.0","id":1,"method":"m","params":` + strings.Repeat("[", 1<<20), jsonrpc.CodeParseError, "1", jsonrpc.Request},

	// JSON that is ambiguous or exceeds a limit.
	{"method twice", `{"jsonrpc":"2.0","id":1,"method":"a","method":"b"}`, jsonrpc.CodeInvalidRequest, "1", jsonrpc.Request},
	{"method twice, escaped", `{"jsonrpc":"2.0","method":"a","\u006dethod":"b","id":1}`, jsonrpc.CodeInvalidRequest, "1", jsonrpc.Request},
	{"id twice", `{"jsonrpc":"2.0","id":1,"id":1,"method":"m"}`, jsonrpc.CodeInvalidRequest, "", jsonrpc.Request},
	{"id three times", `{"jsonrpc":"2.0","id":1,"id":2,"id":3,"method":"m"}`, jsonrpc.CodeInvalidRequest, "", jsonrpc.Request},
	{"unknown key twice", `{"jsonrpc":"2.0","x":1,"x":2,"id":1,"method":"m"}`, jsonrpc.CodeInvalidRequest, "1", jsonrpc.Request},
	{"key of an argument twice", `{"jsonrpc":"2.0","id":1,"method":"m","params":{"arguments":{"a":1,"a":1}}}`, jsonrpc.CodeInvalidRequest, "1", jsonrpc.Request},
	{"duplicate before the id", `{"params":[{"a":1,"a":1}],"jsonrpc":"2.0","method":"m","id":"late"}`, jsonrpc.CodeInvalidRequest, `"late"`, jsonrpc.Request},
	{"duplicate in a notification", `{"jsonrpc":"2.0","method":"m","params":{"a":1,"a":1}}`, jsonrpc.CodeInvalidRequest, "", jsonrpc.Notification},
	{"duplicate in a result", `{"jsonrpc":"2.0","id":1,"result":{"a":1,"a":1}}`, jsonrpc.CodeInvalidRequest, "1", jsonrpc.Response},
	{"depth 65", `{"params":` + nest(64) + `,"jsonrpc":"2.0","id":1,"method":"m"}`, jsonrpc.CodeInvalidRequest, "1", jsonrpc.Request},
	{"10,001 keys", `{"params":` + keys(10_001) + `,"jsonrpc":"2.0","id":1,"method":"m"}`, jsonrpc.CodeInvalidRequest, "1", jsonrpc.Request},

	// Keys that other decoders may accept as members of JSON-RPC.
	{"Method beside method", `{"jsonrpc":"2.0","id":1,"method":"a","Method":"b"}`, jsonrpc.CodeInvalidRequest, "1", jsonrpc.Request},
	{"METHOD alone", `{"jsonrpc":"2.0","id":1,"METHOD":"b"}`, jsonrpc.CodeInvalidRequest, "1", jsonrpc.Invalid},
	{"ID", `{"jsonrpc":"2.0","ID":1,"method":"m"}`, jsonrpc.CodeInvalidRequest, "", jsonrpc.Invalid},
	{"long s in paramſ", `{"jsonrpc":"2.0","id":1,"method":"m","param` + "\u017f" + `":{}}`, jsonrpc.CodeInvalidRequest, "1", jsonrpc.Request},
	{"long s in jsonrpc, escaped", `{"jsonrpc":"2.0","j\u017fonrpc":"1.0","id":1,"method":"m"}`, jsonrpc.CodeInvalidRequest, "1", jsonrpc.Request},
	{"NUL after method", `{"jsonrpc":"2.0","id":1,"method":"a","method\u0000":"b"}`, jsonrpc.CodeInvalidRequest, "1", jsonrpc.Request},
	{"case and NULs", `{"jsonrpc":"2.0","id":1,"method":"a","Result\u0000\u0000":{}}`, jsonrpc.CodeInvalidRequest, "1", jsonrpc.Request},

	// RPC-01.
	{"no version", `{"id":1,"method":"m"}`, jsonrpc.CodeInvalidRequest, "1", jsonrpc.Request},
	{"no version, no id", `{"method":"m"}`, jsonrpc.CodeInvalidRequest, "", jsonrpc.Invalid},
	{"version 1.0", `{"jsonrpc":"1.0","id":1,"method":"m"}`, jsonrpc.CodeInvalidRequest, "1", jsonrpc.Request},
	{"version as a number", `{"jsonrpc":2.0,"id":1,"method":"m"}`, jsonrpc.CodeInvalidRequest, "1", jsonrpc.Request},

	// RPC-02, RPC-03: ids.
	{"null id", `{"jsonrpc":"2.0","id":null,"method":"m"}`, jsonrpc.CodeInvalidRequest, "", jsonrpc.Request},
	{"fraction", `{"jsonrpc":"2.0","id":1.5,"method":"m"}`, jsonrpc.CodeInvalidRequest, "", jsonrpc.Request},
	{"integer written as a fraction", `{"jsonrpc":"2.0","id":1.0,"method":"m"}`, jsonrpc.CodeInvalidRequest, "", jsonrpc.Request},
	{"integer written with an exponent", `{"jsonrpc":"2.0","id":1e3,"method":"m"}`, jsonrpc.CodeInvalidRequest, "", jsonrpc.Request},
	{"minus zero", `{"jsonrpc":"2.0","id":-0,"method":"m"}`, jsonrpc.CodeInvalidRequest, "", jsonrpc.Request},
	{"bool", `{"jsonrpc":"2.0","id":true,"method":"m"}`, jsonrpc.CodeInvalidRequest, "", jsonrpc.Request},
	{"object", `{"jsonrpc":"2.0","id":{},"method":"m"}`, jsonrpc.CodeInvalidRequest, "", jsonrpc.Request},
	{"array", `{"jsonrpc":"2.0","id":[1],"method":"m"}`, jsonrpc.CodeInvalidRequest, "", jsonrpc.Request},
	{"257 bytes", `{"jsonrpc":"2.0","id":"` + strings.Repeat("i", 257) + `","method":"m"}`, jsonrpc.CodeInvalidRequest, "", jsonrpc.Request},
	{"21 digits", `{"jsonrpc":"2.0","id":` + strings.Repeat("1", 21) + `,"method":"m"}`, jsonrpc.CodeInvalidRequest, "", jsonrpc.Request},

	// Shapes.
	{"string", `"ping"`, jsonrpc.CodeInvalidRequest, "", jsonrpc.Invalid},
	{"number", `1`, jsonrpc.CodeInvalidRequest, "", jsonrpc.Invalid},
	{"null", `null`, jsonrpc.CodeInvalidRequest, "", jsonrpc.Invalid},
	{"empty object", `{}`, jsonrpc.CodeInvalidRequest, "", jsonrpc.Invalid},
	{"only an id", `{"jsonrpc":"2.0","id":1}`, jsonrpc.CodeInvalidRequest, "1", jsonrpc.Invalid},
	{"method is a number", `{"jsonrpc":"2.0","id":1,"method":7}`, jsonrpc.CodeInvalidRequest, "1", jsonrpc.Request},
	{"method is a number, without id", `{"jsonrpc":"2.0","method":7}`, jsonrpc.CodeInvalidRequest, "", jsonrpc.Invalid},
	{"empty method", `{"jsonrpc":"2.0","id":1,"method":""}`, jsonrpc.CodeInvalidRequest, "1", jsonrpc.Request},
	{"params string", `{"jsonrpc":"2.0","id":1,"method":"m","params":"{}"}`, jsonrpc.CodeInvalidRequest, "1", jsonrpc.Request},
	{"params string in a notification", `{"jsonrpc":"2.0","method":"m","params":"{}"}`, jsonrpc.CodeInvalidRequest, "", jsonrpc.Notification},
	{"method and result", `{"jsonrpc":"2.0","id":1,"method":"m","result":{}}`, jsonrpc.CodeInvalidRequest, "1", jsonrpc.Invalid},
	{"method and error", `{"jsonrpc":"2.0","id":1,"method":"m","error":{"code":1,"message":""}}`, jsonrpc.CodeInvalidRequest, "1", jsonrpc.Invalid},
	// Requirement: RPC-07
	{"result and error", `{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":""}}`, jsonrpc.CodeInvalidRequest, "1", jsonrpc.Response},
	// Requirement: RPC-07
	{"result and null error", `{"jsonrpc":"2.0","id":1,"result":{},"error":null}`, jsonrpc.CodeInvalidRequest, "1", jsonrpc.Response},
	{"result with params", `{"jsonrpc":"2.0","id":1,"result":{},"params":{}}`, jsonrpc.CodeInvalidRequest, "1", jsonrpc.Response},
	{"result without id", `{"jsonrpc":"2.0","result":{}}`, jsonrpc.CodeInvalidRequest, "", jsonrpc.Response},
	{"result with null id", `{"jsonrpc":"2.0","id":null,"result":{}}`, jsonrpc.CodeInvalidRequest, "", jsonrpc.Response},
	{"error with bad id", `{"jsonrpc":"2.0","id":1.5,"error":{"code":1,"message":""}}`, jsonrpc.CodeInvalidRequest, "", jsonrpc.Response},

	// RPC-09.
	{"error is a string", `{"jsonrpc":"2.0","id":1,"error":"no"}`, jsonrpc.CodeInvalidRequest, "1", jsonrpc.Response},
	{"error without message", `{"jsonrpc":"2.0","id":1,"error":{"code":1}}`, jsonrpc.CodeInvalidRequest, "1", jsonrpc.Response},
	{"message is null", `{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":null}}`, jsonrpc.CodeInvalidRequest, "1", jsonrpc.Response},

	// Batches that are rejected as a whole.
	{"empty batch", ` [ ] `, jsonrpc.CodeInvalidRequest, "", jsonrpc.Batch},
	{"101 messages", `[` + strings.Repeat(`0,`, 100) + `0]`, jsonrpc.CodeInvalidRequest, "", jsonrpc.Batch},
	{"cut batch", `[{"jsonrpc":"2.0","id":1,"method":"m"}`, jsonrpc.CodeParseError, "", jsonrpc.Invalid},
	{"broken at depth 64 of a message", `[{"jsonrpc":"2.0","id":1,"method":"m","params":` + strings.Repeat("[", 63) + "1 2" + strings.Repeat("]", 63) + `}]`, jsonrpc.CodeParseError, "", jsonrpc.Invalid},
	{"batch with bad UTF-8", `[{"jsonrpc":"2.0","id":1,"method":"` + "\xff" + `"}]`, jsonrpc.CodeParseError, "", jsonrpc.Invalid},
}

// Requirement: RPC-32
func TestInvalidMessagesAreRefused(t *testing.T) {
	for _, tt := range refusals {
		t.Run(tt.rule, func(t *testing.T) {
			got := refuse(t, tt.text)
			if got.Err.Code != tt.code || got.ID.String() != tt.id || got.Kind != tt.kind {
				t.Errorf("refused with code %d, id %q, as %v; want code %d, id %q, as %v (%v)",
					got.Err.Code, got.ID, got.Kind, tt.code, tt.id, tt.kind, got)
			}
			if got.Err.Remote() || got.Err.Data != nil {
				t.Errorf("got error %+v, want a local error without data", got.Err)
			}
		})
	}
}

// Requirement: RPC-14
func TestNoResponseToNotificationOrResponse(t *testing.T) {
	for _, tt := range refusals {
		refused := refuse(t, tt.text)
		answer := refused.Response()
		if silent := tt.kind == jsonrpc.Notification || tt.kind == jsonrpc.Response; silent != (answer == nil) {
			t.Errorf("%s: response = %+v, refused as %v", tt.rule, answer, tt.kind)
		}
		if answer != nil && (answer.ID != refused.ID || answer.Error != refused.Err) {
			t.Errorf("%s: response = %+v, want id %v and %v", tt.rule, answer, refused.ID, refused.Err)
		}
	}
}

func TestErrorsDoNotQuoteTheMessage(t *testing.T) {
	for _, text := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"m","SECRET":1,"SECRET":2}`,
		`{"jsonrpc":"SECRET"}`,
		`{"jsonrpc":"2.0","id":1,"error":{"code":"SECRET","message":["SECRET"]}}`,
		`{"jsonrpc":"2.0","id":{"SECRET":1},"method":"SECRET"}`,
		`{"jsonrpc":"2.0","id":1,"method":"m",SECRET}`,
	} {
		refused := refuse(t, text)
		if strings.Contains(refused.Error(), "SECRET") || strings.Contains(refused.Err.Message, "SECRET") {
			t.Errorf("%s: got %v, want nothing of the message in it", text, refused)
		}
	}
}

func TestMessagesAtTheLimitsAreAccepted(t *testing.T) {
	for name, text := range map[string]string{
		"depth 64":              `{"jsonrpc":"2.0","id":1,"method":"m","params":` + nest(63) + `}`,
		"depth 64 in a batch":   `[{"jsonrpc":"2.0","id":1,"method":"m","params":` + nest(63) + `}]`,
		"10,000 keys":           `{"jsonrpc":"2.0","id":1,"method":"m","params":` + keys(10_000) + `}`,
		"id of 256 bytes":       `{"jsonrpc":"2.0","id":"` + strings.Repeat("i", 256) + `","method":"m"}`,
		"id of 20 digits":       `{"jsonrpc":"2.0","id":` + strings.Repeat("9", 20) + `,"method":"m"}`,
		"negative of 20 digits": `{"jsonrpc":"2.0","id":-` + strings.Repeat("9", 20) + `,"method":"m"}`,
		"batch of 100":          `[` + strings.Repeat(`0,`, 99) + `{"jsonrpc":"2.0","method":"m"}]`,
		"method of 1 MiB":       `{"jsonrpc":"2.0","id":1,"method":"` + strings.Repeat("m", 1<<20) + `"}`,
	} {
		m := accept(t, text)
		if m.Kind() == jsonrpc.Batch {
			m = m.Batch[len(m.Batch)-1]
		}
		if m.Kind() == jsonrpc.Invalid {
			t.Errorf("%s: refused with %v", name, m.Refused)
		}
	}
}

// Requirement: RPC-06
func TestIDEchoedWithType(t *testing.T) {
	for _, id := range []string{
		`1`, `"1"`, `0`, `-1`, `""`, `9007199254740993`, `18446744073709551615`, `99999999999999999999`,
		`"\u0041"`, `"A"`, `"é\/\n"`, `"` + strings.Repeat(`\u00e9`, 42) + `"`,
	} {
		request := accept(t, `{"jsonrpc":"2.0","id":`+id+`,"method":"m"}`)
		if request.ID.String() != id {
			t.Errorf("id %s was read as %s", id, request.ID)
		}
		got := string(jsonrpc.Append(nil, &jsonrpc.Message{ID: request.ID, Result: json.RawMessage("{}")}))
		if want := `{"jsonrpc":"2.0","id":` + id + `,"result":{}}`; got != want {
			t.Errorf("response %s, want %s", got, want)
		}
	}
}

// Requirement: RPC-11
func TestErrorWithoutID(t *testing.T) {
	for _, text := range []string{
		`{"jsonrpc":"2.0","error":{"code":-32700,"message":"parse error"}}`,
		`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"parse error"}}`,
	} {
		if m := accept(t, text); m.Kind() != jsonrpc.Response || !m.ID.IsZero() || m.Error.Code != -32700 {
			t.Errorf("%s: got %+v, want an error response without id", text, m)
		}
	}
	got := string(jsonrpc.Append(nil, refuse(t, `{`).Response()))
	if want := `{"jsonrpc":"2.0","error":{"code":-32700,"message":"parse error: malformed JSON at byte 1"}}`; got != want {
		t.Errorf("got response %s, want %s", got, want)
	}
}

// Requirement: RPC-18
func TestBatches(t *testing.T) {
	text := ` [ {"jsonrpc":"2.0","id":1,"method":"a"} , {"jsonrpc":"2.0","method":"b"},
		{"jsonrpc":"2.0","id":"c","result":{}}, 1, [], {"jsonrpc":"2.0","id":4,"method":"m","params":{"a":1,"a":2}},
		{"jsonrpc":"2.0","id":5,"method":"m","params":` + nest(64) + `}] `
	batch := accept(t, text)
	if batch.Kind() != jsonrpc.Batch {
		t.Fatalf("kind = %v", batch.Kind())
	}
	kinds := map[jsonrpc.Kind]string{jsonrpc.Request: "request", jsonrpc.Notification: "notification",
		jsonrpc.Response: "response", jsonrpc.Batch: "batch", jsonrpc.Invalid: "invalid"}
	var got []string
	for _, m := range batch.Batch {
		line := kinds[m.Kind()]
		if m.Refused != nil {
			line += fmt.Sprintf(" %d %s", m.Refused.Err.Code, m.Refused.ID)
		}
		got = append(got, line)
	}
	want := []string{
		"request", "notification", "response", "invalid -32600 ", "invalid -32600 ", "invalid -32600 4", "invalid -32600 5",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestMethodAndIDDoNotAliasTheInput(t *testing.T) {
	data := []byte(`{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1}}`)
	m, err := jsonrpc.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	_ = append(m.Params, '!')
	if data[len(data)-1] != '}' {
		t.Error("appending to the params writes into the message")
	}
	for i := range data {
		data[i] = '#'
	}
	if m.Method != "m" || m.ID != jsonrpc.IntID(1) {
		t.Errorf("got id %v and method %q after the input changed, want 1 and m", m.ID, m.Method)
	}
}

// Requirement: RPC-32
func TestTruncatedIDsAreNotEchoed(t *testing.T) {
	for text, want := range map[string]string{
		`{"jsonrpc":"2.0","id":12`:                    "",
		`{"jsonrpc":"2.0","id":01}`:                   "",
		`{"jsonrpc":"2.0","id":"12"`:                  `"12"`,
		`{"jsonrpc":"2.0","id":12,`:                   "12",
		`{"jsonrpc":"2.0","id":12 `:                   "12",
		`{"id":12,"jsonrpc":"2.0","method":"a","x":1`: "12",
	} {
		_, err := jsonrpc.Decode([]byte(text))
		var refused *jsonrpc.DecodeError
		if !errors.As(err, &refused) || refused.ID.String() != want {
			t.Errorf("%s: got %v with id %q, want id %q", text, err, refused.ID, want)
		}
	}
}

// An error response with an invalid code keeps its message, and a response with a lone surrogate
// keeps its result.
func TestToleratedResponses(t *testing.T) {
	const internal = -32603
	for code, want := range map[string]int{`-32601`: -32601, `"-32601"`: -32601, `-32601.0`: -32601, `1.5`: internal,
		`"E"`: internal, `null`: internal, `99999999999999999999`: internal} {
		m := accept(t, `{"jsonrpc":"2.0","id":1,"error":{"code":`+code+`,"message":"why"}}`)
		if m.Error.Code != want || m.Error.Message != "why" {
			t.Errorf("code %s: got %+v, want code %d", code, m.Error, want)
		}
	}
	for text, want := range map[string]string{
		`{"a":"\ud83d"}`: `{"a":"\ufffd"}`, `{"a":"\\ud83d \uDE00 x"}`: `{"a":"\\ud83d \ufffd x"}`,
		`{"a":"\ud83d\ude00\ud83d\ud83d\ude00"}`: `{"a":"\ud83d\ude00\ufffd\ud83d\ude00"}`,
	} {
		m := accept(t, `{"jsonrpc":"2.0","id":1,"result":`+text+`}`)
		if string(m.Result) != want || !m.Repaired {
			t.Errorf("result %s: got %s, want %s", text, m.Result, want)
		}
	}
	for _, text := range []string{`{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"\ud83d"}}`,
		`{"jsonrpc":"2.0","id":1,"result":{"\ud83d":1,"\ude00":2}}`} {
		if m, err := jsonrpc.Decode([]byte(text)); err == nil {
			t.Errorf("%s: got %+v, want a refusal", text, m)
		}
	}
	if m := accept(t, `{"jsonrpc":"2.0","id":1,"method":"m","params":null}`); m.Params != nil {
		t.Errorf("params null: got %s, want none", m.Params)
	}
}
