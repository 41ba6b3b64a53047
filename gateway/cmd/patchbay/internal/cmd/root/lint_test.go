package root

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/lint"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
	"github.com/patchbay-mcp/patchbay/visible"
)

func lintOf(t *testing.T, args ...string) (r lint.LintReport, o outcome) {
	t.Helper()
	o = patchbay(t, "", append([]string{"lint", "--json"}, args...)...)
	if err := json.Unmarshal([]byte(o.stdout), &r); err != nil {
		t.Fatalf("%q: %v: %s%s", args, err, o.stdout, o.stderr)
	}
	return r, o
}

func rulesOf(r lint.LintReport) (ids []string) {
	for _, f := range r.Findings {
		ids = append(ids, f.Rule+" "+f.Where)
	}
	return ids
}

// The demo server breaks no rule, in any revision and over any transport.
func TestLintFindsNothingInTheDemo(t *testing.T) {
	mcptest.NoLeaks(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	url := listenHTTP(t, newServer("demo"))
	for name, target := range map[string][]string{"HTTP": {url}, "stdio": {"--env", serveEnv + "=1", "--", self}} {
		for _, revision := range mcptest.Revisions() {
			if name == "stdio" && revision != mcptest.Modern && revision != "2025-11-25" {
				continue // each starts several processes
			}
			r, o := lintOf(t, append([]string{"--fail-on", "warning", "--revision", revision}, target...)...)
			if o.status != exit.OK || len(r.Findings) > 0 || r.Revision != revision || len(r.Tokens.Tools) != 10 ||
				r.Tokens.Total < 100 {
				t.Errorf("%s over %s: exit code %d, %q, %s", revision, name, o.status, rulesOf(r), o.stderr)
			}
		}
	}
}

// newListServer returns a server of any revision that answers lists with the given results, and
// other methods as an empty server does.
func newListServer(results map[string]string) mcp.Handler {
	empty := mcp.NewServer("lists", "1", nil)
	return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
		if text, ok := results[req.Method]; ok {
			return mcp.RawResult(text), nil
		}
		return empty.ServeMCP(ctx, req)
	})
}

const completeResult = `{"resultType":"complete","ttlMs":0,"cacheScope":"private",`

// Invalid items are reported, which lists of the client leave out.
func TestLintReportsWhatOtherCommandsLeaveOut(t *testing.T) {
	url := listenHTTP(t, newListServer(map[string]string{
		"tools/list":   completeResult + `"tools":[{"description":"` + "x\u202e" + `"},{"name":"a b","inputSchema":null}]}`,
		"prompts/list": completeResult + `"prompts":7}`,
	}))
	undeclared := []string{"capability-not-declared capability tools"}
	items := append([]string{"name-missing tool number 1", "hidden-characters tool number 1",
		"input-schema-missing tool a b", "name-characters tool a b", "list-broken prompts"}, undeclared...)
	for revision, wants := range map[string][]string{
		"2026-07-28": items, "2025-11-25": undeclared, "2024-11-05": undeclared, // lists need a declaration there
	} {
		r, o := lintOf(t, "--revision", revision, url)
		got := rulesOf(r)
		for _, want := range wants {
			if !slices.Contains(got, want) {
				t.Errorf("%s: got %q, want %s", revision, got, want)
			}
		}
		if o.status != exit.Failure || r.Counts.Errors == 0 {
			t.Errorf("%s: exit code %d, %d errors, want %d", revision, o.status, r.Counts.Errors, exit.Failure)
		}
	}
}

// The names of a server cannot act on the terminal, and lists are limited to maxLintPages.
func TestLintOfAHostileServer(t *testing.T) {
	url := listenHTTP(t, newOddServer())
	o := atTerminal(t, "", nil, "lint", url)
	ownEscapes := strings.NewReplacer("\r\x1b[K", "", "\rconnecting to "+url+" …\x1b[K", "")
	text := o.stdout + ownEscapes.Replace(o.stderr)
	if i := strings.IndexFunc(text, func(r rune) bool { return visible.Hidden(r) && r != '\n' }); i >= 0 {
		t.Errorf("the output has %q", text[i:min(len(text), i+8)])
	}
	if o.status != exit.Failure || !strings.Contains(o.stdout, "hidden-characters") {
		t.Errorf("exit code %d, %s", o.status, o.stdout)
	}
	endless := listenHTTP(t, newListServer(map[string]string{
		"tools/list": completeResult + `"tools":[],"nextCursor":"again"}`}))
	if r, o := lintOf(t, "--quick", endless); !slices.Contains(rulesOf(r), "list-broken tools") || o.status != exit.Failure {
		t.Errorf("a list without an end: %q, exit code %d", rulesOf(r), o.status)
	}
}

func TestLintFlags(t *testing.T) {
	url := listenHTTP(t, newPlainServer())
	for _, test := range []struct {
		args []string
		want int
	}{
		{[]string{url}, exit.OK},
		{[]string{"--fail-on", "warning", url}, exit.Failure},
		{[]string{"--fail-on", "warning", "--disable", "tool-description-missing", "--disable", "annotations-missing", url},
			exit.OK},
		{[]string{"--fail-on", "info", url}, exit.Usage},
		{[]string{"--disable", "annotation-missing", url}, exit.Usage},
		{[]string{"--rules"}, exit.OK},
	} {
		if o := patchbay(t, "", append([]string{"lint"}, test.args...)...); o.status != test.want {
			t.Errorf("%q: exit code %d, want %d: %s%s", test.args, o.status, test.want, o.stdout, o.stderr)
		}
	}
	if o := patchbay(t, "", "lint", "--disable", "annotation-missing", url); !strings.Contains(o.stderr,
		`did you mean "annotations-missing"`) {
		t.Errorf("an unknown rule: %s, want a suggestion", o.stderr)
	}
	o := patchbay(t, "", "lint", url)
	for _, want := range []string{"warning  tool plain: no description  [tool-description-missing]", "    source: ",
		"    fix: ", "1 tool cost about ", "0 errors, 2 warnings, 1 info; revision 2026-07-28"} {
		if !strings.Contains(o.stdout, want) {
			t.Errorf("%s\ndoes not contain %q", o.stdout, want)
		}
	}
}

// newPlainServer returns a server with a tool that has no texts.
func newPlainServer() *mcp.Server {
	s := mcp.NewServer("plain", "1", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "plain"}, func(context.Context, struct{}) (string, error) { return "", nil })
	return s
}
