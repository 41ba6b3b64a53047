package host_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// Pointers apply to the JSON in texts, wherever it is: in lines, between fences, after other text, and
// in texts of other JSON.
//
// Requirement: HOST-06
func TestRedactedJSONInTexts(t *testing.T) {
	s := mcp.NewServer("db", "1.0.0", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "text"}, func(_ context.Context, in struct{ Text string }) (string, error) {
		return in.Text, nil
	})
	rules := policyFunc(func(a *policy.Action) policy.Decision {
		d := policy.Decision{Do: policy.OutcomeAllow}
		if a.Kind == policy.ActionResult {
			d.Redact = []policy.Redaction{{Pointer: "/ssn"}, {Pointer: "/*/ssn"}}
		}
		return d
	})
	h := newHostWith(t, map[string]mcp.Handler{"db": s}, host.Options{Policy: rules})
	c := mcptest.Dial(t, h.For(&policy.Caller{}), inMemory, nil)
	call := func(text string) string {
		t.Helper()
		r, err := c.CallTool(t.Context(), "db__text", map[string]any{"Text": text})
		if err != nil {
			t.Fatal(err)
		}
		return r.Text()
	}
	for text, want := range map[string]string{
		"{\"ssn\":\"1-1\"}\n{\"ssn\":\"2-2\"}\n":         "{\"ssn\":\"[redacted]\"}\n{\"ssn\":\"[redacted]\"}\n",
		"Rows:\n```json\n{\n \"ssn\": \"1-1\"\n}\n```\n": "Rows:\n```json\n{\"ssn\":\"[redacted]\"}\n```\n",
		`found {"ssn":"1-1"} and [{"ssn":"2-2"}].`:       `found {"ssn":"[redacted]"} and [{"ssn":"[redacted]"}].`,
		`{"text":"{\"ssn\":\"1-1\"}"}`:                   `{"text":"{\"ssn\":\"[redacted]\"}"}`,
		`{"ssn":"1-1","ssn":"2-2"}`:                      `{"ssn":"[redacted]","ssn":"[redacted]"}`,
		`{ broken {"ssn":"1-1"}`:                         `{ broken {"ssn":"[redacted]"}`,
		"plain { text } [x](y) {":                        "plain { text } [x](y) {",
		`{"name": "bob"}`:                                `{"name": "bob"}`,
	} {
		if got := call(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	// A text whose search would exceed the limit is cut.
	hostile := strings.Repeat("[1,", 3000) + strings.Repeat(" ", 100_000) + `{"ssn":"078-05-1120"}`
	start := time.Now()
	if got := call(hostile); strings.Contains(got, "078-05") {
		t.Errorf("got …%q after %v", got[len(got)-100:], time.Since(start))
	}
}
