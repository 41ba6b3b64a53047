package root

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/shell"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/connect"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// forEachShell runs a test over stdio and HTTP, in every revision. run runs a script.
func forEachShell(t *testing.T, test func(t *testing.T, run func(script string, flags ...string) outcome)) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, revision := range connect.Revisions() {
		for _, over := range []string{"HTTP", "stdio"} {
			t.Run(over+" "+revision, func(t *testing.T) {
				mcptest.NoLeaks(t)
				freshState(t)
				at := []string{"--env", serveEnv + "=1", "--env", "GORACE=atexit_sleep_ms=0", "--", self}
				if over == "HTTP" {
					at = []string{listenHTTP(t, newServer("demo"))}
				}
				test(t, func(script string, flags ...string) outcome {
					args := append([]string{"shell", "--revision", revision}, flags...)
					return patchbay(t, script, append(args, at...)...)
				})
			})
		}
	}
}

func TestShellRunsAScriptOverOneConnection(t *testing.T) {
	forEachShell(t, func(t *testing.T, run func(script string, flags ...string) outcome) {
		script := "# a comment\n\nincrement\ncall increment # another\n  read 'demo://counter'\n" +
			"get review language=go code=\"x := 1\"\ncomplete demo://cities/{country}/{city} country=j\n" +
			"count steps=1\ntask list\ntools roll_dice\nquit\nping\n"
		o := run(script)
		want := "1\n2\n2user:\nReview this go code. Name the worst problem first.\n\nx := 1\njapan\ncounted to 1\n"
		if o.status != exit.OK || !strings.HasPrefix(o.stdout, want) || strings.Contains(o.stdout, "answered in") {
			t.Errorf("got %d, %q, %s, want %d, %q and no ping", o.status, o.stdout, o.stderr, exit.OK, want)
		}
	})
}

func TestShellPrintsOneJSONValuePerCommand(t *testing.T) {
	forEachShell(t, func(t *testing.T, run func(script string, flags ...string) outcome) {
		o := run("add a=1 b=2\nadd a=1\nno_such\nping --bogus\nread demo://counter\nadd 'a=1\n", "--json",
			"--keep-going")
		var got []string
		for line := range strings.Lines(o.stdout) {
			got = append(got, line[:min(len(line), 40)])
		}
		if o.status != exit.Usage || len(got) != 6 || !strings.Contains(got[0], `"resultType"`) ||
			!strings.HasPrefix(got[1], `{"error":{"kind":"usage"`) ||
			!strings.HasPrefix(got[2], `{"error":{"kind":"usage"`) ||
			!strings.HasPrefix(got[3], `{"error":{"kind":"usage"`) || !strings.Contains(got[4], `contents`) ||
			!strings.HasPrefix(got[5], `{"error":{"kind":"usage"`) {
			t.Errorf("got %d, %q, want %d, and six values of which four are usage errors", o.status, got, exit.Usage)
		}
	})
}

func TestShellStopsAtTheFirstFailure(t *testing.T) {
	url := listenHTTP(t, newServer("odd"))
	for _, test := range []struct {
		script         string
		Flags          []string
		status         int
		stdout, stderr string
	}{
		{"fail\necho text=x\n", nil, exit.Tool, "", "it broke"},
		{"echo text=x\nread x://none\nfail", nil, exit.NotFound, `{"text":"x"}`, "x://none"},
		{"fail\necho text=x\nread x://none\n", []string{"--keep-going"}, exit.Tool, `{"text":"x"}`, "x://none"},
		{"call\n", nil, exit.OK, "echo [text=string]", ""},
		{"read\n", nil, exit.Usage, "", "usage: read URI [VARIABLE=VALUE…]\n"},
		{"echo number=x\n", nil, exit.Usage, "", "usage: call echo ["},
		{"tolos\n", nil, exit.Usage, "", `did you mean "tools"?`},
		{"shell http://127.0.0.1:1/\n", nil, exit.Usage, "", `"shell" is not a command of this shell`},
		{"auth logout\n", nil, exit.Usage, "", `run "patchbay auth" outside of the shell`},
		{"help serve\n", nil, exit.Usage, "", `run "patchbay serve" outside of the shell`},
		{"ping --header a:b\n", nil, exit.Usage, "", "unknown flag: --header (see ping --help)"},
		{"echo text='x\n", nil, exit.Usage, "", "unclosed quote"},
		{"help nothing\n", nil, exit.Usage, "", "unknown command"},
		{"help\nhelp call\nhelp task get\nhelp json\n", nil, exit.OK, "", "call [TOOL] [ARGUMENT…]"},
		{"task\n", nil, exit.Usage, "", "  watch "},
		{"unsubscribe x://a\n", nil, exit.NotFound, "", `unknown subscription "x://a"`},
		{"echo -- text=-x\n", nil, exit.OK, `{"text":"-x"}`, ""},
		{"echo text=" + strings.Repeat("x", term.MaxLine) + "\n", nil, exit.Failure, "", "standard input: "},
		{"echo -\n", nil, exit.Usage, "", "standard input"},
		{"", nil, exit.OK, "", ""},
	} {
		o := patchbay(t, test.script, append(append([]string{"shell"}, test.Flags...), url)...)
		if o.status != test.status || !strings.Contains(o.stdout, test.stdout) ||
			!strings.Contains(o.stderr, test.stderr) || test.stdout == "" && o.stdout != "" {
			t.Errorf("%.40q: got %d, %q, %s, want %d, %q, %q", test.script, o.status, o.stdout, o.stderr, test.status,
				test.stdout, test.stderr)
		}
	}
	if o := patchbay(t, "ping\n", "shell", refusedURL(t)); o.status != exit.Unreachable {
		t.Errorf("without a server: got %d, %s, want %d", o.status, o.stderr, exit.Unreachable)
	}
}

// Commands that use standard input and output alone are neither run nor offered; a tool of such a
// name is called. A new command about a server has to be added to the list, or to outsideShell.
func TestShellRefusesCommandsForOutside(t *testing.T) {
	p := factoryFor("")
	sh := &shell.Shell{Commands: commands}
	p.Client.Shell = sh
	var offered, outside []string
	for _, cmd := range sh.Verbs(p) {
		offered = append(offered, cmd.Name())
	}
	want := strings.Fields("probe tools resources templates prompts call read get complete listen rpc lint bench ping " +
		"skills task events subscribe unsubscribe")
	if !slices.Equal(offered, want) {
		t.Errorf("offered: %q, want %q", offered, want)
	}
	for _, cmd := range commands(p) {
		if cmd.Runnable() && !slices.Contains(offered, cmd.Name()) {
			outside = append(outside, cmd.Name())
		}
	}
	for _, name := range []string{"bridge", "record", "mock", "serve", "auth", "completion"} {
		if !slices.Contains(outside, name) {
			t.Errorf("%s is not among %q", name, outside)
		}
	}
	forEachShell(t, func(t *testing.T, run func(script string, flags ...string) outcome) {
		o := run(strings.Join(outside, " --help\n")+"\nbridge\nrecord calls.jsonl\nincrement\n", "--keep-going",
			"--json")
		if n := strings.Count(o.stdout, "outside of the shell"); o.status != exit.Usage || n != len(outside)+2 ||
			!strings.HasSuffix(o.stdout, "}\n") || !strings.Contains(o.stdout, `"text":"1"`) {
			t.Errorf("got %d, %d refusals, %s%s, want %d, %d, and then a call", o.status, n, o.stdout, o.stderr,
				exit.Usage, len(outside)+2)
		}
	})
	s := mcp.NewServer("taker", "1", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "record"},
		func(context.Context, struct{}) (string, error) { return "recorded", nil })
	if o := patchbay(t, "record\n", "shell", listenHTTP(t, s)); o.status != exit.OK || o.stdout != "recorded\n" {
		t.Errorf("a tool named record: got %d, %s%s", o.status, o.stdout, o.stderr)
	}
}

// A script declines questions, and --answers answers them.
func TestShellAnswersQuestions(t *testing.T) {
	answers := filepath.Join(t.TempDir(), "answers.json")
	writeFile(t, answers, `{"elicitation": [{"content": {"value": true}}]}`)
	forEachShell(t, func(t *testing.T, run func(script string, flags ...string) outcome) {
		if strings.HasSuffix(t.Name(), "2024-11-05") || strings.HasSuffix(t.Name(), "2025-03-26") {
			t.Skip("elicitation was added in 2025-06-18")
		}
		if o := run("deploy environment=staging\n"); o.status != exit.Tool || !strings.Contains(o.stderr, "declined: ") {
			t.Errorf("got %d, %s, want %d and a declined question", o.status, o.stderr, exit.Tool)
		}
		o := run("deploy environment=staging\n", "--answers", answers)
		if o.status != exit.OK || !strings.Contains(o.stdout, `"environment":"staging"`) {
			t.Errorf("--answers: got %d, %q, %s, want %d and the deployment", o.status, o.stdout, o.stderr, exit.OK)
		}
	})
}

func TestShellShowsSubscribedResources(t *testing.T) {
	forEachShell(t, func(t *testing.T, run func(script string, flags ...string) outcome) {
		const update = "* resource updated demo://counter\n"
		var o outcome
		withLimit(200*time.Millisecond, func(limit time.Duration) bool {
			o = run(fmt.Sprintf("subscribe demo://counter\nincrement\nlisten demo://counter --for %v\n"+
				"unsubscribe demo://counter\n", limit))
			return strings.Contains(o.stderr, update)
		})
		if o.status != exit.OK || !strings.Contains(o.stderr, "demo://counter\n") || !strings.Contains(o.stderr, update) {
			t.Errorf("got %d, %q, %s, want %d and an update", o.status, o.stdout, o.stderr, exit.OK)
		}
	})
}

// A server over stdio that exits is started again by the next command, and the user is told.
func TestShellStartsAServerAgain(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, revision := range connect.Revisions() {
		t.Run(revision, func(t *testing.T) {
			freshState(t)
			script, next := io.Pipe()
			stderr := &trigger{when: "The server has exited, and its state is lost."}
			stderr.then = func() {
				stderr.when = "\x00"
				go func() {
					_, _ = io.WriteString(next, "increment\n")
					next.Close()
				}()
			}
			go func() { _, _ = io.WriteString(next, "increment\nincrement\nrpc exit\n") }()
			var stdout strings.Builder
			status := Run(t.Context(), []string{"shell", "--keep-going", "--revision", revision, "--env",
				exitEnv + "=1", "--env", "GORACE=atexit_sleep_ms=0", "--", self}, script, &stdout, stderr)
			if stdout.String() != "1\n2\n1\n" || status == exit.OK ||
				!strings.Contains(stderr.text(), "Connecting again: ") {
				t.Errorf("got %d, %q, %s, want 1, 2 and 1 from another process", status, &stdout, stderr.text())
			}
		})
	}
}

// exitEnv makes the test binary a server that exits when it gets the request exit.
const exitEnv = "PATCHBAY_TEST_EXIT"

func newExitingServer() mcp.Handler {
	s := newServer("demo")
	return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
		if req.Method == "exit" {
			os.Exit(3)
		}
		return s.ServeMCP(ctx, req)
	})
}

// A session that the server has lost is reported.
func TestShellReportsALostSession(t *testing.T) {
	server := newServer("demo")
	first, second := mcphttp.NewHandler(server, nil), mcphttp.NewHandler(server, nil)
	var current atomic.Pointer[mcphttp.Handler]
	current.Store(first)
	mcp.AddTool(server, &mcp.Tool{Name: "lose"}, func(context.Context, struct{}) (string, error) {
		current.Store(second)
		return "lost", nil
	})
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		current.Load().ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		for _, h := range []*mcphttp.Handler{first, second} {
			if err := h.Shutdown(context.Background()); err != nil {
				t.Error(err)
			}
		}
		web.Close()
	})
	url := web.URL
	o := patchbay(t, "increment\nlose\nincrement\n", "shell", "--revision", "2025-11-25", url)
	if o.status != exit.OK || o.stdout != "1\nlost\n2\n" || !strings.Contains(o.stderr, "A new session has begun.") {
		t.Errorf("got %d, %q, %s, want %d and a notice", o.status, o.stdout, o.stderr, exit.OK)
	}
}

func TestWordsAreSplitAsInAShell(t *testing.T) {
	for line, want := range map[string]string{
		"":                        "",
		"  \t ":                   "",
		"a  b\tc":                 "a|b|c",
		`a\ b 'c d' "e f"`:        "a b|c d|e f",
		`'$HOME' "$HOME" $HOME *`: "$HOME|$HOME|$HOME|*",
		`'a\b' "a\b" a\b`:         `a\b|a\b|ab`,
		`"\$ \" \\ \` + "`" + `"`: "$ \" \\ `",
		`a'b'"c"d`:                "abcd",
		`'' ""`:                   "|",
		"a # b":                   "a",
		"a#b #":                   "a#b",
		"x;y|z&&(w)":              "x;y|z&&(w)",
		`{"a":1} '{"a":1}'`:       `{a:1}|{"a":1}`,
	} {
		got, err := term.SplitWords(line)
		if err != nil || strings.Join(got, "|") != want || want == "|" && len(got) != 2 {
			t.Errorf("splitWords(%q) = %q, %v, want %q", line, got, err, want)
		}
	}
	for _, line := range []string{`a 'b`, `"b`, `"b\"`, `b\`, `"b\`} {
		if got, err := term.SplitWords(line); err == nil {
			t.Errorf("splitWords(%q) = %q, want an error", line, got)
		}
	}
}

func readText(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
