package check_test

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/check"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
	"github.com/patchbay-mcp/patchbay/visible"
)

const hostile = "red \x1b[31malert\u202e!</failure> ]]>"

func newServer() *mcp.Server {
	s := mcp.NewServer("test", "1", nil)
	type pair struct {
		A int `json:"a"`
		B int `json:"b"`
	}
	type sum struct {
		Sum int `json:"sum"`
	}
	mcp.AddTool(s, &mcp.Tool{Name: "add"}, func(_ context.Context, in pair) (sum, error) { return sum{in.A + in.B}, nil })
	type value struct {
		Value json.RawMessage `json:"value"`
	}
	mcp.AddTool(s, &mcp.Tool{Name: "echo"}, func(_ context.Context, in value) (value, error) { return in, nil })
	mcp.AddTool(s, &mcp.Tool{Name: "say"}, func(context.Context, struct{}) (string, error) { return hostile, nil })
	mcp.AddTool(s, &mcp.Tool{Name: "fail"}, func(context.Context, struct{}) (string, error) { return "", errors.New("it broke") })
	type region struct {
		Region string `json:"region" jsonschema:"where,header=Region"`
	}
	mcp.AddTool(s, &mcp.Tool{Name: "mirrored"}, func(_ context.Context, in region) (string, error) { return in.Region, nil })
	var n atomic.Int64
	mcp.AddTool(s, &mcp.Tool{Name: "count"}, func(context.Context, struct{}) (string, error) {
		return strconv.FormatInt(n.Add(1), 10), nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "ask"}, func(ctx context.Context, _ struct{}) (string, error) {
		return mcp.Ask[string](ctx, "name", "What is your name?", nil)
	})
	return s
}

// optionsFor returns options that connect to a handler over a transport.
func optionsFor(t *testing.T, h mcp.Handler, transport string) *check.Options {
	return &check.Options{
		Dial: func(_ context.Context, revision string, adjust func(*mcp.ClientOptions)) (*mcp.Client, error) {
			opts := &mcp.ClientOptions{Elicit: func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
				return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: []byte(`{"value": "Ann"}`)}, nil
			}}
			adjust(opts)
			if revision == "" {
				revision = mcptest.Modern
			}
			return mcptest.Dial(t, h, mcptest.Combination{Transport: transport, Revision: revision}, opts), nil
		},
		Close:  func(*mcp.Client) {},
		Answer: func(context.Context, string) error { return nil },
		Mask:   func(text string) string { return strings.ReplaceAll(text, "s3cret", "***") },
	}
}

func parse(t *testing.T, text string) *check.File {
	t.Helper()
	f, err := check.Parse("f.json", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func run(t *testing.T, f *check.File, o *check.Options) *check.Report {
	t.Helper()
	r, err := f.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// problems returns the messages of the failed assertions.
func problems(r *check.Report) (all []string) {
	for _, o := range r.Calls {
		for _, p := range o.Problems {
			all = append(all, fmt.Sprintf("%d: %s", p.Line, p.Message))
		}
	}
	return all
}

// The same file passes in every revision and over every transport.
func TestCallsPassInEveryRevision(t *testing.T) {
	mcptest.NoLeaks(t)
	revisions, err := json.Marshal(mcptest.Revisions())
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(calls(`
{"name": "sum", "method": "tools/call", "params": {"name": "add", "arguments": {"a": 20, "b": 22}}, $R, "set": {"sum": "/content/0/text"},
 "expect": [{"at": "/isError", "exists": false}, {"at": "/content/0/text", "contains": "42"}, {"maxMs": 60000}, {"rounds": 0}]},
{"name": "set", "method": "tools/call", "params": {"name": "echo", "arguments": {"value": "<${sum}>"}}, $R,
 "expect": [{"at": "/content/0/text", "matches": "42.*}>"}]},
{"name": "fail", "method": "tools/call", "params": {"name": "fail"}, $R, "expect": [{"at": "/isError", "equals": true}]},
{"name": "bad", "method": "tools/call", "params": {"name": "nope"}, $R,
 "expect": [{"error": -32602}, {"at": "/message", "matches": "nope"}, {"at": "/code", "equals": -32602.0}]},
{"name": "mirrored", "method": "tools/call", "params": {"name": "mirrored", "arguments": {"region": "eu"}}, $R,
 "expect": [{"at": "/content/0/text", "equals": "eu"}]},
{"name": "list", "method": "tools/list", $R, "expect": [{"at": "/tools", "length": 7}, {"at": "/tools/0", "contains": {"name": "add"}}]},
{"name": "valid", "method": "tools/call", "params": {"name": "add", "arguments": {"a": 1, "b": 2}}, "revisions": ["2025-06-18", "2026-07-28"],
 "expect": [{"outputSchema": "valid"}, {"at": "/structuredContent", "schema": {"required": ["sum"]}}, {"at": "/structuredContent/sum", "type": "integer"}]},
{"name": "ask", "method": "tools/call", "params": {"name": "ask"}, "revisions": ["2025-06-18", "2025-11-25", "2026-07-28"],
 "expect": [{"rounds": 1}, {"at": "/content/0/text", "equals": "Ann"}]}
`), "$R", `"revisions": `+string(revisions))
	for _, transport := range mcptest.Transports() {
		r := run(t, parse(t, text), optionsFor(t, newServer(), transport))
		if want := 6*len(mcptest.Revisions()) + 5; r.Passed != want || r.Failed+r.Errors > 0 {
			t.Errorf("%s: %d passed, want %d: %q", transport, r.Passed, want, problems(r))
		}
	}
}

// Each failed assertion names its line and the first difference.
func TestDifferences(t *testing.T) {
	echo := func(value, assertion string) string {
		return calls("\n" + `{"name": "a", "method": "tools/call", "params": {"name": "echo", "arguments": {"value": ` + value + "}},\n" +
			`"expect": [` + assertion + `]}`)
	}
	const at = `"at": "/structuredContent/value", `
	for _, c := range []struct{ value, assertion, want string }{
		{`20`, `"equals": 20.0`, ""}, {`1e2`, `"equals": 100`, ""},
		{`12345678901234567890`, `"equals": 12345678901234567891`, "/structuredContent/value: got 12345678901234567890, want 12345678901234567891"},
		{`1e10000000000000000000`, `"equals": 1e9999999999999999999`, "got 1e10000000000000000000"},
		{`0.1`, `"equals": 0.10000000000000001`, "got 0.1, want 0.10000000000000001"},
		{`{"a": 1, "b": [1, {"c": "x"}]}`, `"equals": {"b": [1, {"c": "x"}], "a": 1}`, ""},
		{`{"a": 1, "b": [1, {"c": "x"}]}`, `"equals": {"b": [1, {"c": "y"}], "a": 1}`, `value/b/1/c: got "x", want "y"`},
		{`{"a": 1}`, `"equals": {"a": 1, "b/c": 2}`, "value/b~1c: got no value, want 2"},
		{`{"a": 1, "b": 2}`, `"equals": {"a": 1}`, "value/b: got 2, want no value"},
		{`[1, 2]`, `"equals": [1]`, "value/1: got 2, want no value"}, {`[1]`, `"equals": [1, 2]`, "value/1: got no value, want 2"},
		{`"1"`, `"equals": 1`, `got "1", want 1`}, {`null`, `"equals": null`, ""}, {`false`, `"equals": null`, "got false, want null"},
		{`"caf\u00e9"`, `"equals": "café"`, ""}, {`""`, `"equals": ""`, ""},
		{`"abc"`, `"matches": "^b"`, `got "abc", want matches "^b"`}, {`5`, `"matches": "5"`, `got 5, want matches "5"`},
		{`"abc"`, `"contains": "bc"`, ""}, {`"abc"`, `"contains": "x"`, `got "abc", want contains "x"`},
		{`[1, {"a": 2}]`, `"contains": {"a": 2.0}`, ""}, {`[1]`, `"contains": 2`, "got [1], want contains 2"},
		{`{"a": 1, "b": 2}`, `"contains": {"b": 2}`, ""}, {`{"a": 1}`, `"contains": {"b": 2}`, `got {"a":1}, want contains {"b": 2}`},
		{`1`, `"exists": false`, "got 1, want exists false"}, {`5.0`, `"type": "integer"`, ""}, {`5.5`, `"type": "integer"`, "value: got the number 5.5, want an integer"},
		{`{"a": "x"}`, `"schema": {"properties": {"a": {"type": "number"}}}`, "value/a: got the string \"x\", want a number"},
		{`"añb"`, `"length": 3`, ""}, {`[1, 2]`, `"length": 3`, "got length 2, want 3"}, {`1`, `"length": 1`, "got 1, want length 1"},
		{`"x s3cret"`, `"equals": "x"`, `got "x ***", want "x"`},
		{`{"a": "s3cret"}`, `"schema": {"properties": {"a": {"type": "number"}}}`, "got a value with a secret"},
		{`"` + strings.Repeat("x", 300) + `1"`, `"equals": "` + strings.Repeat("x", 300) + `2"`, `from character 281: got "xxxxxxxxxxxxxxxxxxxx1"`},
		{`"` + strings.Repeat("y", 190) + `s3cret"`, `"equals": 1`, "***\""},
	} {
		r := run(t, parse(t, echo(c.value, "{"+at+c.assertion+"}")), optionsFor(t, newServer(), mcptest.InMemory))
		got := strings.Join(problems(r), "\n")
		if c.want == "" && got != "" || c.want != "" && (!strings.HasPrefix(got, "3: ") || !strings.Contains(got, c.want)) ||
			strings.Contains(got, "s3c") {
			t.Errorf("%s %s: got %q, want %q", c.value, c.assertion, got, c.want)
		}
	}
	for assertion, want := range map[string]string{
		`"at": "/nope", "equals": 1`: "3: /nope: got no value, want equals 1", `"at": "/nope", "exists": true`: "got no value, want exists true",
		`"at": "/content/00", "exists": true`: "got no value", `"at": "/content/-1", "exists": true`: "got no value",
		`"error": -32602`: "3: got a result, want the error -32602", `"rounds": 2`: "3: got rounds 0, want 2",
	} {
		r := run(t, parse(t, echo("1", "{"+assertion+"}")), optionsFor(t, newServer(), mcptest.InMemory))
		if got := strings.Join(problems(r), "\n"); !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", assertion, got, want)
		}
	}
	r := run(t, parse(t, calls(`{"name": "a", "method": "tools/call", "params": {"name": "nope"}, "expect": [{"maxMs": 1}]}`)),
		optionsFor(t, newServer(), mcptest.InMemory))
	if got := problems(r); len(got) != 1 || !strings.Contains(got[0], `got the error {"code":-32602`) {
		t.Errorf("an unexpected error: got %q", got)
	}
}

const reported = `
{"name": "sum", "method": "tools/call", "params": {"name": "add", "arguments": {"a": 20, "b": 22}},
 "expect": [{"at": "/structuredContent/sum", "equals": 42}]},
{"name": "say", "method": "tools/call", "params": {"name": "say"},
 "expect": [{"at": "/content/0/text", "equals": "fine"},
  {"at": "/content", "length": 2}]},
{"name": "unset", "method": "tools/list", "set": {"x": "/nope"}},
{"name": "lost\u202e", "method": "tools/call", "params": {"name": "echo", "arguments": {"value": "${x}"}}}`

func TestReports(t *testing.T) {
	r := run(t, parse(t, calls(reported)), optionsFor(t, newServer(), mcptest.InMemory))
	r.Milliseconds = 10
	var text, junit bytes.Buffer
	for _, o := range r.Calls {
		o.Milliseconds = 1
		text.WriteString(o.Text(r.File) + "\n")
	}
	golden(t, filepath.Join("testdata", "report.txt"), text.Bytes())
	if err := r.WriteJUnit(&junit); err != nil {
		t.Fatal(err)
	}
	golden(t, filepath.Join("testdata", "report.xml"), junit.Bytes())
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, filepath.Join("testdata", "report.json"), []byte(visible.EscapeJSON(string(raw))+"\n"))
	var suites struct {
		Failures int `xml:"failures,attr"`
		Suite    struct {
			Cases []struct {
				Name    string `xml:"name,attr"`
				Failure []struct {
					Message string `xml:"message,attr"`
				} `xml:"failure"`
				Error *string `xml:"error"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(junit.Bytes(), &suites); err != nil {
		t.Fatal(err)
	}
	cases := suites.Suite.Cases
	if len(cases) != 4 || suites.Failures != 2 || cases[0].Failure != nil || len(cases[1].Failure) != 2 ||
		!strings.Contains(cases[1].Failure[0].Message, "</failure> ]]>") || cases[3].Error == nil {
		t.Errorf("got %+v", suites)
	}
	if hidden := regexp.MustCompile("[\x1b\u202e]"); hidden.Match(text.Bytes()) || hidden.Match(junit.Bytes()) {
		t.Error("a report contains characters that act on a terminal or hide text")
	}
}

func TestOnlyRunsWhatACallNeeds(t *testing.T) {
	f := parse(t, calls(`{"name": "other", "method": "tools/list"}, {"name": "set", "method": "tools/list", "set": {"all": ""}},
{"name": "use", "method": "tools/call", "params": {"name": "echo", "arguments": {"value": "${all}"}}}`))
	o := optionsFor(t, newServer(), mcptest.InMemory)
	o.Only = []string{"use"}
	if r := run(t, f, o); len(r.Calls) != 2 || r.Calls[0].Name != "set" || r.Passed != 2 {
		t.Errorf("got %d calls: %q", len(r.Calls), problems(r))
	}
	o.Only = []string{"sue"}
	if _, err := f.Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), `unknown call "sue": did you mean "use"?`) {
		t.Errorf("got %v, want a suggestion", err)
	}
}

func TestUpdateKeepsTheRestOfTheFile(t *testing.T) {
	f := parse(t, `// mine
{"checks": 1, "calls": [
  {"name": "a", "method": "tools/call", "params": {"name": "echo", "arguments": {"value": [1.50, "${$}{HOME}", "s3cret"]}},
   "revisions": ["2025-06-18", "2026-07-28"],
   "expect": [
     {"at": "/structuredContent/value/0", "equals": 2}, // wrong
     {"at": "/structuredContent/value/1", "equals": ""},
     {"at": "/structuredContent/value/2", "equals": "x"}, /* secret */
     {"at": "/structuredContent/value", "length": 7},
     {"at": "/resultType", "exists": false},
     {"at": "/content/0/text", "matches": "^never"},
   ]},
]}
`)
	r := run(t, f, optionsFor(t, newServer(), mcptest.InMemory))
	if complete, err := f.Update(r, optionsFor(t, nil, "").Mask); err != nil || complete {
		t.Fatalf("got %t, %v, want failed assertions that cannot be updated", complete, err)
	}
	golden(t, filepath.Join("testdata", "updated.json"), f.Text())
	again, err := check.Parse("f.json", f.Text())
	if err != nil {
		t.Fatal(err)
	}
	if got := problems(run(t, again, optionsFor(t, newServer(), mcptest.InMemory))); len(got) != 4 {
		t.Errorf("after the update: %q, want the secret and the pattern in both revisions", got)
	}
}

// A value that differs between revisions is not written.
func TestUpdateNeedsTheSameValueInAllRevisions(t *testing.T) {
	f := parse(t, calls(`{"name": "a", "method": "tools/call", "params": {"name": "count"}, "revisions": ["2025-06-18", "2026-07-28"],
"expect": [{"at": "/content/0/text", "equals": "x"}]}`))
	old := string(f.Text())
	r := run(t, f, optionsFor(t, newServer(), mcptest.InMemory))
	if complete, err := f.Update(r, optionsFor(t, nil, "").Mask); err != nil || complete || string(f.Text()) != old || r.Failed != 2 {
		t.Errorf("got %t, %v, %d failed and %s, want the old text", complete, err, r.Failed, f.Text())
	}
}

// A server that cannot be reached is not tried in each revision.
func TestUnreachableServerIsTriedOnce(t *testing.T) {
	f := parse(t, calls(`{"name": "a", "method": "tools/list", "revisions": ["2025-06-18", "2026-07-28"]}`))
	dials := 0
	r := run(t, f, &check.Options{Dial: func(context.Context, string, func(*mcp.ClientOptions)) (*mcp.Client, error) {
		dials++
		return nil, errors.New("no route")
	}, Mask: optionsFor(t, nil, "").Mask})
	if dials != 1 || r.Errors != 2 || r.Calls[1].Err == nil {
		t.Errorf("%d attempts, %d errors: %q", dials, r.Errors, problems(r))
	}
}
