package root

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/bench"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/connect"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

func benchOf(t *testing.T, args ...string) (r bench.BenchReport, o outcome) {
	t.Helper()
	o = patchbay(t, "", append([]string{"bench", "--json"}, args...)...)
	if o.stdout != "" && json.Unmarshal([]byte(o.stdout), &r) != nil {
		t.Fatalf("%q: %s%s", args, o.stdout, o.stderr)
	}
	return r, o
}

func TestBenchCallsATool(t *testing.T) {
	mcptest.NoLeaks(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	url := listenHTTP(t, newServer("demo"))
	for _, revision := range mcptest.Revisions() {
		for name, args := range map[string][]string{
			"HTTP":  {url, "add", "a=1", "b=2"},
			"stdio": {"add", "a=1", "b=2", "--env", serveEnv + "=1", "--", self},
		} {
			r, o := benchOf(t, append([]string{"-n", "20", "--yes", "-c", "3", "--connections", "2", "--revision",
				revision}, args...)...)
			l := r.LatencyMs
			if o.status != exit.OK || r.Calls != 20 || r.Failed != 0 || r.Rate <= 0 || r.Revision != revision ||
				l == nil || l.Min > l.P50 || l.P50 > l.P99 || l.P99 > l.Max {
				t.Errorf("%s over %s: exit code %d, %+v, %s", revision, name, o.status, r, o.stderr)
			}
		}
	}
	o := patchbay(t, "", "bench", "-n", "3", url, "add", "a=1", "b=2")
	for _, want := range []string{"tool         add, revision 2026-07-28", "calls        3 in ", "rate         ",
		"  p99.9 ", "errors       0\n"} {
		if !strings.Contains(o.stdout, want) {
			t.Errorf("%s\ndoes not contain %q", o.stdout, want)
		}
	}
}

func newBenchServer(calls *atomic.Int64, each func()) *mcp.Server {
	s := mcp.NewServer("bench", "1", nil)
	yes := true
	add := func(name string, a *mcp.ToolAnnotations, err error) {
		mcp.AddTool(s, &mcp.Tool{Name: name, Annotations: a}, func(context.Context, struct{}) (string, error) {
			calls.Add(1)
			each()
			return "", err
		})
	}
	add("plain", nil, nil)
	add("odd", &mcp.ToolAnnotations{ReadOnly: &yes, Destructive: &yes}, nil)
	add("fail", &mcp.ToolAnnotations{ReadOnly: &yes}, errors.New("it \x1b[2J broke"))
	add("refuse", &mcp.ToolAnnotations{ReadOnly: &yes}, &mcp.Error{Code: 4001, Message: "not today"})
	add("read", &mcp.ToolAnnotations{ReadOnly: &yes}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "ask", Annotations: &mcp.ToolAnnotations{ReadOnly: &yes}},
		func(ctx context.Context, _ struct{}) (bool, error) { return mcp.Ask[bool](ctx, "sure", "Sure?", nil) })
	return s
}

// Tools that may change something are called only if the user has agreed.
func TestBenchAsksBeforeItChangesSomething(t *testing.T) {
	var calls atomic.Int64
	url := listenHTTP(t, newBenchServer(&calls, func() {}))
	for tool, why := range map[string]string{"plain": "not annotated as read-only", "odd": "annotated as destructive"} {
		for name, run := range map[string]func(args ...string) outcome{
			"pipe":      func(args ...string) outcome { return patchbay(t, "y\n", args...) },
			"declined":  func(args ...string) outcome { return atTerminal(t, "\n", nil, args...) },
			"cancelled": func(args ...string) outcome { return atTerminal(t, "", nil, args...) },
			"no input":  func(args ...string) outcome { return atTerminal(t, "y\n", nil, append(args, "--no-input")...) },
		} {
			if o := run("bench", "-n", "5", url, tool); o.status == exit.OK || calls.Load() != 0 ||
				!strings.Contains(o.stderr, why) {
				t.Errorf("%s, %s: exit code %d, %d calls, %s", tool, name, o.status, calls.Swap(0), o.stderr)
			}
		}
		if o := atTerminal(t, "y\n", nil, "bench", "-n", "5", url, tool); o.status != exit.OK || calls.Swap(0) != 5 ||
			!strings.Contains(o.stderr, "(5 calls, 1 at a time)") {
			t.Errorf("%s after the question: exit code %d, %s", tool, o.status, o.stderr)
		}
		if o := patchbay(t, "", "bench", "-n", "5", "--yes", url, tool); o.status != exit.OK || calls.Swap(0) != 5 {
			t.Errorf("%s with --yes: exit code %d, %s", tool, o.status, o.stderr)
		}
	}
	if o := patchbay(t, "", "bench", "-n", "5", url, "plain"); o.status != exit.Usage ||
		!strings.Contains(o.stderr, "--yes") {
		t.Errorf("exit code %d, %s, want the flag", o.status, o.stderr)
	}
}

func TestBenchCountsErrorsByKind(t *testing.T) {
	var calls atomic.Int64
	url := listenHTTP(t, newBenchServer(&calls, func() {}))
	for tool, kind := range map[string]string{"fail": "tool_failed", "refuse": "failure"} {
		r, o := benchOf(t, "-n", "7", url, tool)
		if e := r.Errors[kind]; o.status != exit.Failure || r.Failed != 7 || r.LatencyMs != nil || e == nil ||
			e.Count != 7 || strings.Contains(e.First, "\x1b") ||
			!strings.Contains(e.First, "broke") && !strings.Contains(e.First, "not today") {
			t.Errorf("%s: exit code %d, %s%s", tool, o.status, o.stdout, o.stderr)
		}
	}
	for _, revision := range []string{"2026-07-28", "2025-11-25"} {
		if r, o := benchOf(t, "-n", "3", "--revision", revision, url, "ask"); r.Failed != 3 ||
			strings.Contains(o.stderr, "asks") {
			t.Errorf("%s: a tool that asks: %s%s, want 3 failures and no question", revision, o.stdout, o.stderr)
		}
	}
}

// An interrupt prints what was measured.
func TestBenchPrintsWhenInterrupted(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	var calls atomic.Int64
	url := listenHTTP(t, newBenchServer(&calls, func() {
		if calls.Load() == 10 {
			interrupt()
			<-t.Context().Done() // does not answer
		}
	}))
	var stdout, stderr bytes.Buffer
	status := Run(ctx, []string{"bench", "--warm-up", "0", "--json", url, "read"}, strings.NewReader(""), &stdout,
		&stderr)
	var r bench.BenchReport
	if err := json.Unmarshal(stdout.Bytes(), &r); err != nil || status != exit.Interrupted || r.Calls != 9 ||
		!strings.Contains(stderr.String(), "interrupted") {
		t.Errorf("exit code %d, %s%s, %v, want %d and 9 calls", status, &stdout, &stderr, err, exit.Interrupted)
	}
}

func TestBenchChecksItsFlags(t *testing.T) {
	for _, args := range []string{"-c 0", "-c 10001", "--connections 2", "-n -1", "-n 0", "-n 0 -d 1s", "-n 1 -d 0s",
		"-d 0s", "--warm-up -1s", "--rate -1"} {
		o := patchbay(t, "", append(append([]string{"bench"}, strings.Fields(args)...), "http://127.0.0.1:1/mcp",
			"x")...)
		if o.status != exit.Usage || !strings.Contains(o.stderr, "invalid --") {
			t.Errorf("%s: exit code %d, %s, want %d", args, o.status, o.stderr, exit.Usage)
		}
	}
}

func TestBenchNamesItsUsage(t *testing.T) {
	url := newBookServer(t)
	for _, revision := range connect.Revisions() {
		o := patchbay(t, "", "bench", "--revision", revision, "-n", "1", "-y", url, "drop")
		if o.status != exit.Usage || !strings.Contains(o.stderr, "usage: patchbay bench TARGET drop") {
			t.Errorf("%s: exit code %d, %s, want %d and the usage of bench", revision, o.status, o.stderr, exit.Usage)
		}
	}
	for script, want := range map[string]string{
		"bench -n 1 -y drop": "usage: bench drop",
		"bench -n 2 -c 2 --connections 2 -y drop sure=true": "a shell has one connection",
	} {
		if o := patchbay(t, script+"\n", "shell", url); o.status != exit.Usage || !strings.Contains(o.stderr, want) {
			t.Errorf("%s in a shell: exit code %d, %s, want %d and %s", script, o.status, o.stderr, exit.Usage, want)
		}
	}
}

// With --count and --duration a measurement ends at the first of the two.
func TestBenchEndsAtTheFirstLimit(t *testing.T) {
	var calls atomic.Int64
	url := listenHTTP(t, newBenchServer(&calls, func() {}))
	var r bench.BenchReport
	var o outcome
	limit := withLimit(50*time.Millisecond, func(limit time.Duration) bool {
		r, o = benchOf(t, "-y", "-n", "2000000000", "-d", limit.String(), url, "read")
		return r.Calls > 0
	})
	if o.status != exit.OK || r.Calls == 0 || r.Seconds < limit.Seconds() {
		t.Errorf("-d first: exit code %d, %+v, %s", o.status, r, o.stderr)
	}
	if r, o := benchOf(t, "-y", "-n", "3", "-d", "1h", url, "read"); o.status != exit.OK || r.Calls != 3 {
		t.Errorf("-n first: exit code %d, %+v, %s", o.status, r, o.stderr)
	}
}
