package host_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// A result to which the pointers must apply is denied if they cannot be applied to all of its contents.
//
// Requirement: HOST-06
func TestUnredactableResults(t *testing.T) {
	s := &hostile{answer: func(_ context.Context, req *mcp.Request) (string, error) {
		raw, _ := req.Param("arguments")
		var in struct{ Result, Fail string }
		switch {
		case req.Method != "tools/call":
			return "", nil
		case json.Unmarshal(raw, &in) != nil || in.Fail != "":
			return "", mcp.Errorf(-32050, "%s", in.Fail)
		}
		return `{"resultType":"complete",` + in.Result[1:], nil
	}}
	dial := func(must bool) *mcp.Client {
		rules := policyFunc(func(a *policy.Action) policy.Decision {
			d := policy.Decision{Do: policy.OutcomeAllow}
			if a.Kind == policy.ActionResult {
				d.Redact = []policy.Redaction{{}, {Pointer: "/ssn", MustApply: must}}
			}
			return d
		})
		h := newHostWith(t, map[string]mcp.Handler{"db": s}, host.Options{Policy: rules})
		return mcptest.Dial(t, h.For(&policy.Caller{}), inMemory, nil)
	}
	c := dial(true)
	call := func(c *mcp.Client, member, value string) (text string, denied bool) {
		t.Helper()
		r, err := c.CallTool(t.Context(), "db__t", map[string]any{member: value})
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(r.Text(), r.StructuredContent), r.IsError && strings.Contains(r.Text(), "(code denied)")
	}
	text := func(text string) string { return `{"content":[{"type":"text","text":` + strconv.Quote(text) + `}]}` }
	nested := `{"ssn":"078-05-1120"}`
	for range 5 {
		nested = `{"t":` + strconv.Quote(nested) + `}`
	}
	many := `{"ssn":["` + strings.Repeat(`1000","`, 10_001) + `078-05-1120"]}` // more texts than are remembered
	for name, test := range map[string]struct {
		result string
		passes bool
	}{
		"JSON":               {text(` {"ssn": "078-05-1120", "name": "a b"} `), true},
		"an array":           {text(`[1]`), true},
		"JSON lines":         {text("{\"ssn\":\"078-05-1120\"}\n{\"ssn\":\"078-05-1121\"}\n"), true},
		"fenced":             {text("```json\n{\"ssn\":\"078-05-1120\"}\n```\n"), true},
		"nested":             {text(`{"text":"{\"ssn\":\"078-05-1120\"}"}`), true},
		"structured only":    {`{"content":[],"structuredContent":{"ssn":"078-05-1120"}}`, true},
		"an empty text":      {text(""), true},
		"a resource":         {`{"content":[{"type":"resource","resource":{"uri":"a:b","text":"{}"}}]}`, true},
		"plain text":         {text("the number is 078-05-1120"), false},
		"text before JSON":   {text(`078-05-1120: {"ssn":"078-05-1120"}`), false},
		"text in a fence":    {text("```json\nssn: 078-05-1120\n```"), false},
		"text at a fence":    {text("```078-05-1120\n{}\n```"), false},
		"a JSON string":      {text(`"078-05-1120"`), false},
		"invalid JSON":       {text(`{"ssn":"078-05-1120",}`), false},
		"one of two texts":   {`{"content":[{"type":"text","text":"{}"},{"type":"text","text":"078-05-1120"}]}`, false},
		"plain structured":   {`{"content":[],"structuredContent":"078-05-1120"}`, false},
		"a plain resource":   {`{"content":[{"type":"resource","resource":{"uri":"a:b","text":"078-05-1120"}}]}`, false},
		"a blob":             {`{"content":[{"type":"resource","resource":{"uri":"a:b","blob":"MDc4LTA1LTExMjA="}}]}`, false},
		"an image":           {`{"content":[{"type":"image","data":"MDc4LTA1LTExMjA=","mimeType":"image/png"}]}`, false},
		"a link":             {`{"content":[{"type":"resource_link","uri":"a:078-05-1120","name":"n"}]}`, false},
		"an error of a tool": {`{"isError":true,"content":[{"type":"text","text":"no row 078-05-1120"}]}`, false},
		"nested too deeply":  {text(nested), false},
		"too many texts":     {text(many), false},
	} {
		t.Run(name, func(t *testing.T) {
			got, denied := call(c, "result", test.result)
			if denied == test.passes || strings.Contains(got, "078-05") {
				t.Errorf("got %.300q, denied: %v", got, denied)
			}
		})
	}
	if got, denied := call(c, "fail", "no row 078-05-1120"); !denied || strings.Contains(got, "078-05") {
		t.Errorf("an error of the server: got %q", got)
	}
	if got, denied := call(dial(false), "result", text("plain")); denied || !strings.HasPrefix(got, "plain") {
		t.Errorf("where it need not apply: got %q", got)
	}
}
