package capture_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/capture"
	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// secrets are the secrets of the fixture. The host knows the first two; the others are credentials
// of HTTP, of a login, or of members that a schema declares as secret.
var secrets = []string{
	"s3cr\"e\\t/€-token", "plainsecret", "bearer-abcdef", "cookie-abcdef", "set-cookie-abcdef", "proof-abcdef",
	"session-abcdef", "code-abcdef", "access-abcdef", "key-abcdef", "hunter2", "write-abcdef", "answer-abcdef", "query-abcdef",
}

func mask(text string) string {
	return strings.NewReplacer(secrets[0], "[secret]", secrets[1], "[secret]").Replace(text)
}

// escaped returns the forms of a text in JSON: plain, with each character escaped, and nested in a
// string.
func escaped(text string) []string {
	plain, _ := json.Marshal(text)
	var all strings.Builder
	for _, c := range text {
		all.WriteString(`\u` + strings.ToUpper(strings.Repeat("0", 4)[:4-len(hex(c))]+hex(c)))
	}
	nested, _ := json.Marshal(`{"x":"` + all.String() + `"}`)
	return []string{string(plain), `"` + all.String() + `"`, string(nested)}
}

func hex(c rune) string {
	const digits = "0123456789abcdef"
	text := ""
	for ; c > 0; c /= 16 {
		text = string(digits[c%16]) + text
	}
	return text
}

// checkSecrets tests that no frame, summary, event or export contains a secret, in any form.
func checkSecrets(t *testing.T, ring *capture.Ring) {
	t.Helper()
	var out bytes.Buffer
	if err := ring.WriteRecording(&out, ids(ring)); err != nil && !strings.Contains(err.Error(), "no") {
		t.Fatal(err)
	}
	if err := ring.WriteHAR(&out, ids(ring)); err != nil {
		t.Fatal(err)
	}
	for _, x := range ring.Find(nil, 0, 1000) {
		_, frames, _ := ring.Get(x.ID)
		text, _ := json.Marshal(x)
		out.Write(text)
		out.Write(ring.WireText(x.ID))
		for _, f := range frames {
			out.WriteString(f.Text)
		}
	}
	if out.Len() < 100 {
		t.Fatalf("only %d bytes were captured", out.Len())
	}
	text := out.String()
	for depth := 0; depth < 4; depth++ { // each round decodes the escapes of strings within strings
		for _, secret := range secrets {
			if at := strings.Index(text, secret); at >= 0 {
				t.Errorf("depth %d: the secret %q is in %q", depth, secret, text[max(0, at-60):at+len(secret)])
			}
		}
		text = unescaped(text)
	}
}

// unescaped decodes the escapes of JSON wherever they are.
func unescaped(text string) string {
	var out strings.Builder
	for at := 0; at < len(text); at++ {
		var decoded string
		switch {
		case strings.HasPrefix(text[at:], `\u`) && at+6 <= len(text) && json.Unmarshal([]byte(`"`+text[at:at+6]+`"`), &decoded) == nil:
			out.WriteString(decoded)
			at += 5
		case text[at] == '\\' && at+1 < len(text) && strings.IndexByte(`"\/`, text[at+1]) >= 0:
			out.WriteByte(text[at+1])
			at++
		default:
			out.WriteByte(text[at])
		}
	}
	return out.String()
}

func TestMessagesContainNoSecrets(t *testing.T) {
	ring := capture.New(&capture.Options{Always: true})
	ring.SetMask(mask)
	take := ring.Frames("srv")
	message := func(sent bool, m *jsonrpc.Message) { take(mcp.Frame{Sent: sent, Message: m}) }
	id := jsonrpc.IntID
	message(true, &jsonrpc.Message{ID: id(1), Method: "tools/list"})
	message(false, &jsonrpc.Message{ID: id(1), Result: json.RawMessage(`{"tools":[{"name":"login","inputSchema":
		{"$defs":{"W":{"writeOnly":true}},"properties":{"password":{"type":"string","format":"password"},
		"keys":{"items":{"$ref":"#/$defs/W"}}}}}]}`)})
	n := int64(2)
	for _, secret := range secrets[:2] {
		for _, form := range append(escaped(secret), `"`+strings.Repeat("x", capture.MaxFrame-10)+`\\`+secret[:0]+
			strings.Trim(escaped(secret)[1], `"`)+`"`) {
			message(true, &jsonrpc.Message{ID: id(n), Method: "tools/call",
				Params: json.RawMessage(`{"name":` + form + `,"arguments":{` + form + `:[` + form + `]}}`)})
			message(false, &jsonrpc.Message{ID: id(n), Result: json.RawMessage(`{"content":[{"type":"text","text":` + form + `}]}`)})
			n++
		}
	}
	message(true, &jsonrpc.Message{ID: id(n), Method: "tools/call", Params: json.RawMessage(
		`{"name":"login","arguments":{"deep":[{"password" : "hunter2"}],"keys":["write-abcdef",{"a":"write-abcdef"}]}}`)})
	message(false, &jsonrpc.Message{ID: id(1), Method: "elicitation/create", Params: json.RawMessage(
		`{"requestedSchema":{"properties":{"pin":{"format":"password"}}}}`)})
	message(true, &jsonrpc.Message{ID: id(1), Result: json.RawMessage(`{"content":{"p\u0069n":"answer-abcdef"}}`)})
	message(false, &jsonrpc.Message{ID: id(n), Result: json.RawMessage(`{"structuredContent":{"password":"hunter2"}}`)})
	checkSecrets(t, ring)
	x, frames := find(t, ring, "text:login method:tools/call")
	if len(frames) != 4 || !strings.Contains(frames[1].Text, `"pin":{"format":"password"}`) ||
		!strings.Contains(frames[0].Text, `"password" : "[hidden]"`) {
		t.Errorf("got %+v %+v, want the schema of the question, and hidden values", x, frames)
	}
}

// The secret members of a tool stay hidden when its definition changes.
func TestSecretMembersOfChangedDefinitions(t *testing.T) {
	ring := capture.New(&capture.Options{Always: true})
	recorder := ring.Recorder(nil)
	for n, member := range []string{"pin", "code", "pin"} {
		definition := `{"name":"pay","inputSchema":{"properties":{"` + member + `":{"writeOnly":true}}}}`
		_ = recorder.Record(&event.Record{Event: event.Intent, Call: strconv.Itoa(n), Method: "tools/call",
			Public: "pay" + strconv.Itoa(n), Start: time.Now(), Digest: sha256.Sum256([]byte(definition)),
			Action: policy.Action{Server: "srv", Definition: json.RawMessage(definition),
				Arguments: json.RawMessage(`{"` + member + `":"hunter2","pin":"hunter2","amount":1}`)}})
		_, frames := find(t, ring, "text:pay"+strconv.Itoa(n))
		if len(frames) != 1 || strings.Contains(frames[0].Text, "hunter2") ||
			!strings.Contains(frames[0].Text, `"amount":1`) {
			t.Errorf("the definition with %s: got %+v, want hidden values", member, frames)
		}
	}
}
