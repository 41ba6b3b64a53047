package root

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/check"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

func writeChecks(t *testing.T, target, calls string) {
	t.Helper()
	if target != "" {
		target = `"target": ` + target + ", "
	}
	writeProjectFile(t, "checks.json", `{"checks": 1, `+target+"\n"+`"calls": [`+calls+"]}\n")
}

const addCall = `
{"name": "sum", "method": "tools/call", "params": {"name": "add", "arguments": {"a": 20, "b": 22}},
 "expect": [{"at": "/content/0/text", "equals": "42"}]}`

// The demo server passes over HTTP and as a command, in every revision, with answers to its questions.
func TestCheckInEveryRevision(t *testing.T) {
	mcptest.NoLeaks(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	url := listenHTTP(t, newServer("demo"))
	t.Chdir(t.TempDir())
	writeFile(t, "answers.json", `{"elicitation": [{"content": {"name": "Ann"}}]}`)
	revisions, err := json.Marshal(mcptest.Revisions())
	if err != nil {
		t.Fatal(err)
	}
	calls := strings.Replace(addCall, `"expect"`, `"revisions": `+string(revisions)+`, "expect"`, 1) + `,
{"name": "greet", "method": "tools/call", "params": {"name": "greet"}, "answers": "answers.json",
 "revisions": ["2025-06-18", "2025-11-25", "2026-07-28"],
 "expect": [{"at": "/content/0/text", "equals": "Hello, Ann!"}, {"rounds": 1}]},
{"name": "again", "method": "tools/call", "params": {"name": "greet"}, "expect": [{"at": "/content/0/text", "equals": "Hello!"}]}`
	command, err := json.Marshal(map[string]any{"command": self, "env": map[string]string{serveEnv: "1"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		target string
		args   []string
	}{
		{"", []string{url}}, {"", []string{"--env", serveEnv + "=1", "--", self}},
		{string(command), []string{"--trust"}}, {`"` + url + `"`, []string{"--trust"}}, {`{"url": "` + url + `"}`, []string{"--trust"}},
	} {
		writeChecks(t, test.target, calls)
		o := patchbay(t, "", append([]string{"check", "checks.json", "--json"}, test.args...)...)
		var r check.Report
		if err := json.Unmarshal([]byte(o.stdout), &r); err != nil || o.status != exit.OK || r.Passed != len(mcptest.Revisions())+4 {
			t.Errorf("%s %q: exit code %d, %v, %s%s", test.target, test.args, o.status, err, o.stdout, o.stderr)
		}
	}
	o := patchbay(t, "", "check", "checks.json", "--trust", "--revision", "2025-03-26", "--only", "sum")
	if o.status != exit.OK || !strings.HasPrefix(o.stdout, "ok    sum (2025-03-26,") || !strings.HasSuffix(o.stdout, "1 call: 1 passed, 0 failed, 0 not complete\n") {
		t.Errorf("--revision and --only: exit code %d, %s%s", o.status, o.stdout, o.stderr)
	}
}

// The first file and its output in docs/checks.md are real.
func TestDocumentedChecks(t *testing.T) {
	guide, err := os.ReadFile("../../../../../../docs/checks.md")
	if err != nil {
		t.Fatal(err)
	}
	url := listenHTTP(t, newServer("demo"))
	t.Chdir(t.TempDir())
	files := regexp.MustCompile("(?s)```json\n(.*?)```").FindAllStringSubmatch(string(guide), -1)
	output := regexp.MustCompile(`(?s)\$ patchbay check [^\n]*\n(.*?)` + "```").FindStringSubmatch(string(guide))
	if len(files) != 2 || output == nil {
		t.Fatalf("got %d files and the output %q", len(files), output)
	}
	if _, err := check.Parse("second.json", []byte(files[1][1])); err != nil {
		t.Error(err)
	}
	writeFile(t, "patchbay-checks.json", files[0][1])
	o := patchbay(t, "", "check", "patchbay-checks.json", url)
	if got := regexp.MustCompile(`[0-9.]+ ms`).ReplaceAllString(o.stdout, "… ms"); got != output[1] {
		t.Errorf("got\n%s\nwant\n%s%s", got, output[1], o.stderr)
	}
}

func TestCheckReportsAndUpdates(t *testing.T) {
	url := listenHTTP(t, newServer("odd"))
	t.Chdir(t.TempDir())
	t.Setenv("API_KEY", "s3cret-value")
	const calls = `
{"name": "say", "method": "tools/call", "params": {"name": "say"}, "expect": [
  {"at": "/content/0/text", "matches": "^fine"}, // never
  {"at": "/content", "length": 3}]},
{"name": "echo", "method": "tools/call", "params": {"name": "echo", "arguments": {"text": "${API_KEY}"}},
 "expect": [{"at": "/structuredContent/text", "equals": "x"}]}`
	writeChecks(t, "", calls)
	args := []string{"check", "checks.json", url, "--trust", "--junit", "report.xml"}
	o := patchbay(t, "", args...)
	got := regexp.MustCompile(`[0-9.]+ ms`).ReplaceAllString(o.stdout, "N ms")
	const want = `FAIL  say (2026-07-28, N ms)
      checks.json:4: /content/0/text: got "red \u001b[31malert\u001b]0;title\u0007\u{202e}gnp.exe\u{200b}\x9b2J\r!", want matches "^fine"
      checks.json:5: /content: got length 1, want 3
FAIL  echo (2026-07-28, N ms)
      checks.json:7: /structuredContent/text: got "***", want "x"
2 calls: 0 passed, 2 failed, 0 not complete
`
	if o.status != exit.Failure || got != want || o.stderr != "" {
		t.Errorf("exit code %d, got\n%swant\n%s%s", o.status, got, want, o.stderr)
	}
	junit, err := os.ReadFile("report.xml")
	if err != nil {
		t.Fatal(err)
	}
	var suites struct {
		Failures int `xml:"failures,attr"`
	}
	if err := xml.Unmarshal(junit, &suites); err != nil || suites.Failures != 2 || strings.Contains(string(junit), "s3cret") {
		t.Errorf("got %v, %s", err, junit)
	}
	o = patchbay(t, "", append(args, "--update")...)
	text, err := os.ReadFile("checks.json")
	if err != nil {
		t.Fatal(err)
	}
	if o.status != exit.Failure || !strings.Contains(o.stdout, `-  {"at": "/content", "length": 3}]},`) ||
		!strings.Contains(o.stdout, `+  {"at": "/content", "length": 1}]},`) || strings.Contains(string(text), "s3cret") ||
		!strings.Contains(string(text), `"^fine"}, // never`) {
		t.Errorf("--update: exit code %d, %s%s\n%s", o.status, o.stdout, o.stderr, text)
	}
	writeChecks(t, "", strings.Replace(addCall, `"add"`, `"echo"`, 1))
	writeChecks(t, "", `{"name": "a", "method": "tools/call", "params": {"name": "say"}, "expect": [{"at": "/content", "length": 3}]}`)
	if o := patchbay(t, "", append(args, "--update")...); o.status != exit.OK {
		t.Errorf("a complete update: exit code %d, %s%s", o.status, o.stdout, o.stderr)
	}
	if o := patchbay(t, "", args...); o.status != exit.OK {
		t.Errorf("after the update: exit code %d, %s%s", o.status, o.stdout, o.stderr)
	}
}

func TestCheckExitCodes(t *testing.T) {
	url := listenHTTP(t, newServer("demo"))
	t.Chdir(t.TempDir())
	writeChecks(t, "", addCall)
	for _, test := range []struct {
		code int
		want string
		args []string
	}{
		{exit.Usage, "unknown call \"sun\": did you mean \"sum\"?", []string{"checks.json", url, "--only", "sun"}},
		{exit.Usage, "contains no target", []string{"checks.json"}},
		{exit.Usage, "no such file", []string{"nowhere.json", url}},
		{exit.Unreachable, "ERROR sum (no revision, 0.0 ms)", []string{"checks.json", "http://127.0.0.1:1/mcp"}},
		{exit.Unreachable, "1 not complete", []string{"checks.json", "--", "no-such-program-here"}},
	} {
		o := patchbay(t, "", append([]string{"check"}, test.args...)...)
		if o.status != test.code || !strings.Contains(o.stdout+o.stderr, test.want) {
			t.Errorf("%q: exit code %d, want %d: %s%s", test.args, o.status, test.code, o.stdout, o.stderr)
		}
	}
}

// Nothing of a file is started, contacted or replaced before the user trusts it.
func TestCheckAsksBeforeItUsesAFile(t *testing.T) {
	project := newHostileProject(t)
	const send = `{"name": "a", "method": "tools/list", "params": {"x": "${` + secretVariable + `}"}}`
	for name, test := range map[string]struct {
		target, call string
		args         []string
	}{
		"command": {`{"command": "touch", "args": ["mark"]}`, `{"name": "a", "method": "tools/list"}`, nil},
		"URL with a variable": {`{"url": "` + project.url + `", "headers": {"X": "${` + secretVariable + `}"}}`,
			`{"name": "a", "method": "tools/list"}`, nil},
		"URL as text": {`"` + project.url + `"`, `{"name": "a", "method": "tools/list"}`, nil},
		"variable":    {"", send, []string{project.url}},
	} {
		writeChecks(t, test.target, test.call)
		args := append([]string{"check", "checks.json"}, test.args...)
		if o := patchbay(t, "y\n", args...); project.used() || o.status != exit.Usage || !strings.Contains(o.stderr, "nothing was run or sent") {
			t.Errorf("%s in a pipe: used %t, exit code %d, %s", name, project.used(), o.status, o.stderr)
		}
		for _, typed := range []string{"", "\n", "n\n"} {
			o := atTerminal(t, typed, nil, args...)
			if project.used() || o.status != exit.Usage || strings.Contains(o.stderr, "s3cret") {
				t.Errorf("%s with %q typed: used %t, exit code %d, %s", name, typed, project.used(), o.status, o.stderr)
			}
		}
	}
}

// Trust in a target is remembered, and ends when a call uses another variable.
func TestCheckRemembersTrust(t *testing.T) {
	newHostileProject(t)
	url := listenHTTP(t, newServer("odd"))
	call := func(variable string) string {
		return fmt.Sprintf(`{"name": "a", "method": "tools/call", "params": {"name": "echo", "arguments": {"text": "${%s}"}}}`, variable)
	}
	writeChecks(t, `{"url": "`+url+`"}`, call(secretVariable))
	o := atTerminal(t, "y\n", nil, "check", "checks.json")
	if o.status != exit.OK || !strings.Contains(o.stderr, `{"variables":["`+secretVariable+`"]}`) {
		t.Errorf("trusted: exit code %d, %s%s", o.status, o.stdout, o.stderr)
	}
	if o := patchbay(t, "", "check", "checks.json"); o.status != exit.OK {
		t.Errorf("without a terminal: exit code %d, %s%s", o.status, o.stdout, o.stderr)
	}
	writeChecks(t, `{"url": "`+url+`"}`, call("HOME"))
	if o := patchbay(t, "", "check", "checks.json"); o.status != exit.Usage || !strings.Contains(o.stderr, "not trusted") {
		t.Errorf("another variable: exit code %d, %s%s", o.status, o.stdout, o.stderr)
	}
}
