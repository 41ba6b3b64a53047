package authorize_test

import (
	"testing"

	"github.com/patchbay-mcp/patchbay/host/internal/authorize"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

func TestPointersRedactStructuredContentAndTextThatRepeatsIt(t *testing.T) {
	got, err := authorize.Redact([]byte(`{"structuredContent":{"rows":[{"ssn":"123-45","name":"Ann"}]},`+
		`"content":[{"type":"text","text":"{\"rows\":[{\"ssn\":\"123-45\"}]}"},{"type":"text","text":"Ann: 123-45"}]}`),
		[]policy.Redaction{{Pointer: "/rows/*/ssn"}})
	want := `{"structuredContent":{"rows":[{"ssn":"[redacted]","name":"Ann"}]},` +
		`"content":[{"type":"text","text":"{\"rows\":[{\"ssn\":\"[redacted]\"}]}"},{"type":"text","text":"Ann: [redacted]"}]}`
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v\nwant %s", got, err, want)
	}
}

func TestResultThatPointersCannotReachIsRefused(t *testing.T) {
	for text, refused := range map[string]bool{
		`{"content":[{"type":"text","text":"plain"}]}`:                         true,
		`{"content":[{"type":"image","data":"AAAA"}]}`:                         true,
		`{"result":{"content":[{"type":"text","text":"plain"}]}}`:              true,
		`{"content":[{"type":"text","text":"{\"a\":1}"}]}`:                     false,
		"{\"content\":[{\"type\":\"text\",\"text\":\"```json\\n[1]\\n```\"}]}": false,
	} {
		_, err := authorize.Redact([]byte(text), []policy.Redaction{{Pointer: "/ssn", MustApply: true}})
		if (err != nil) != refused {
			t.Errorf("%s: got %v, want refused %t", text, err, refused)
		}
	}
}

func TestFaultKeepsItsCodeWhenItsDataIsRedacted(t *testing.T) {
	fault := mcp.Errorf(-32050, "no account %s", "123-45")
	fault.Data = []byte(`{"ssn":"123-45"}`)
	raw, err := authorize.Redact(authorize.FaultResult(fault), []policy.Redaction{{Pointer: "/ssn"}})
	if err != nil {
		t.Fatal(err)
	}
	got, ok := authorize.RedactedFault(fault, raw).(*mcp.Error)
	if !ok || got.Code != -32050 || got.Message != "no account [redacted]" || string(got.Data) != `{"ssn":"[redacted]"}` {
		t.Errorf("got %+v", got)
	}
}
