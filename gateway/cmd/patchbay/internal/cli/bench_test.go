package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

func TestBenchPlan(t *testing.T) {
	ten := func(ctx context.Context, _ int) error { time.Sleep(10 * time.Millisecond); return nil }
	for name, test := range map[string]struct {
		plan      benchPlan
		calls     int // in all
		measured  int
		took, p50 time.Duration
	}{
		"duration":    {benchPlan{workers: 1, duration: time.Second}, 100, 100, time.Second, 10 * time.Millisecond},
		"concurrency": {benchPlan{workers: 4, duration: time.Second}, 400, 400, time.Second, 10 * time.Millisecond},
		"count": {benchPlan{workers: 4, count: 10, duration: time.Second}, 10, 10, 30 * time.Millisecond,
			10 * time.Millisecond},
		"warm-up": {benchPlan{workers: 2, count: 10, warmUp: time.Second}, 210, 10, 50 * time.Millisecond,
			10 * time.Millisecond},
		"count first": {benchPlan{workers: 1, count: 5, duration: time.Second},
			5, 5, 50 * time.Millisecond, 10 * time.Millisecond},
		"time first": {benchPlan{workers: 1, count: 500, duration: time.Second},
			100, 100, time.Second, 10 * time.Millisecond},
		"only count": {benchPlan{workers: 1, count: 2000},
			2000, 2000, 20 * time.Second, 10 * time.Millisecond},
		"rate": {benchPlan{workers: 4, duration: time.Second, rate: 50},
			50, 50, 990 * time.Millisecond, 10 * time.Millisecond},
		// One worker makes 100 calls per second, so that the wait for it rises to half of the time.
		"rate too high": {benchPlan{workers: 1, count: 100, rate: 200}, 100, 100, time.Second, 255 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var calls atomic.Int64
				m := test.plan.run(t.Context(), func(ctx context.Context, worker int) error {
					calls.Add(1)
					return ten(ctx, worker)
				})
				p50 := m.latency.quantile(0.5)
				if int(calls.Load()) != test.calls || m.latency.count != test.measured || m.took != test.took ||
					p50 < test.p50 || p50 > test.p50*101/100 {
					t.Errorf("%d calls, %d measured in %v, p50 %v, want %d, %d in %v, %v", calls.Load(),
						m.latency.count, m.took, p50, test.calls, test.measured, test.took, test.p50)
				}
			})
		})
	}
}

func TestBenchEndsEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		plan := benchPlan{workers: 2, duration: time.Hour}
		m := plan.run(ctx, func(ctx context.Context, worker int) error {
			select {
			case <-time.After(400 * time.Millisecond):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		if m.latency.count != 14 || len(m.failures) != 0 || m.took != 3*time.Second {
			t.Errorf("after an interrupt: %d calls, %v in %v, want 14, no failures, 3s", m.latency.count, m.failures,
				m.took)
		}
		plan = benchPlan{workers: 1, duration: time.Hour}
		m = plan.run(t.Context(), func(context.Context, int) error { return errors.New("refused") })
		if m.failed != maxFirstFailures || m.failures["failure"].Count != maxFirstFailures ||
			m.failures["failure"].First != "refused" {
			t.Errorf("without a successful call: %d failures, %v, want %d", m.failed, m.failures, maxFirstFailures)
		}
	})
}

func TestHistogramQuantiles(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var h histogram
	var all []time.Duration
	for range 10_000 {
		d := time.Duration(random.ExpFloat64() * float64(3*time.Millisecond))
		all = append(all, d)
		h.add(d)
	}
	slices.Sort(all)
	for _, share := range []float64{0.5, 0.9, 0.99, 0.999, 1} {
		exact, got := all[int(share*10_000)-1], h.quantile(share)
		if got < exact || float64(got) > 1.008*float64(exact) {
			t.Errorf("quantile %v: %v, want %v", share, got, exact)
		}
	}
	if h.min != all[0] || h.max != all[len(all)-1] || h.quantile(1) != h.max {
		t.Errorf("min %v, max %v, want %v, %v", h.min, h.max, all[0], all[len(all)-1])
	}
	for _, v := range []uint64{0, 1, 127, 128, 255, 256, 257, 1 << 40, 1<<63 - 1} {
		i := bucketOf(v)
		if end := uint64(bucketEnd(i)); end < v || i > 0 && uint64(bucketEnd(i-1)) >= v {
			t.Errorf("bucket %d of %d ends at %d", i, v, end)
		}
	}
	if new(histogram).quantile(0.5) != 0 {
		t.Error("an empty histogram has a quantile")
	}
}

func benchOf(t *testing.T, args ...string) (r benchReport, o outcome) {
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
	url := listen(t, newServer("demo"))
	for _, revision := range mcptest.Revisions() {
		for name, args := range map[string][]string{
			"HTTP":  {url, "add", "a=1", "b=2"},
			"stdio": {"add", "a=1", "b=2", "--env", serveEnv + "=1", "--", self},
		} {
			r, o := benchOf(t, append([]string{"-n", "20", "--yes", "-c", "3", "--connections", "2", "--revision",
				revision}, args...)...)
			l := r.LatencyMs
			if o.status != exitOK || r.Calls != 20 || r.Failed != 0 || r.Rate <= 0 || r.Revision != revision ||
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
	url := listen(t, newBenchServer(&calls, func() {}))
	for tool, why := range map[string]string{"plain": "not annotated as read-only", "odd": "annotated as destructive"} {
		for name, run := range map[string]func(args ...string) outcome{
			"pipe":      func(args ...string) outcome { return patchbay(t, "y\n", args...) },
			"declined":  func(args ...string) outcome { return atTerminal(t, "\n", nil, args...) },
			"cancelled": func(args ...string) outcome { return atTerminal(t, "", nil, args...) },
			"no input":  func(args ...string) outcome { return atTerminal(t, "y\n", nil, append(args, "--no-input")...) },
		} {
			if o := run("bench", "-n", "5", url, tool); o.status == exitOK || calls.Load() != 0 ||
				!strings.Contains(o.stderr, why) {
				t.Errorf("%s, %s: exit code %d, %d calls, %s", tool, name, o.status, calls.Swap(0), o.stderr)
			}
		}
		if o := atTerminal(t, "y\n", nil, "bench", "-n", "5", url, tool); o.status != exitOK || calls.Swap(0) != 5 ||
			!strings.Contains(o.stderr, "(5 calls, 1 at a time)") {
			t.Errorf("%s after the question: exit code %d, %s", tool, o.status, o.stderr)
		}
		if o := patchbay(t, "", "bench", "-n", "5", "--yes", url, tool); o.status != exitOK || calls.Swap(0) != 5 {
			t.Errorf("%s with --yes: exit code %d, %s", tool, o.status, o.stderr)
		}
	}
	if o := patchbay(t, "", "bench", "-n", "5", url, "plain"); o.status != exitUsage ||
		!strings.Contains(o.stderr, "--yes") {
		t.Errorf("exit code %d, %s, want the flag", o.status, o.stderr)
	}
}

func TestBenchCountsErrorsByKind(t *testing.T) {
	var calls atomic.Int64
	url := listen(t, newBenchServer(&calls, func() {}))
	for tool, kind := range map[string]string{"fail": "tool_failed", "refuse": "failure"} {
		r, o := benchOf(t, "-n", "7", url, tool)
		if e := r.Errors[kind]; o.status != exitFailure || r.Failed != 7 || r.LatencyMs != nil || e == nil ||
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
	url := listen(t, newBenchServer(&calls, func() {
		if calls.Load() == 10 {
			interrupt()
			<-t.Context().Done() // does not answer
		}
	}))
	var stdout, stderr bytes.Buffer
	status := Run(ctx, []string{"bench", "--warm-up", "0", "--json", url, "read"}, strings.NewReader(""), &stdout,
		&stderr)
	var r benchReport
	if err := json.Unmarshal(stdout.Bytes(), &r); err != nil || status != exitInterrupted || r.Calls != 9 ||
		!strings.Contains(stderr.String(), "interrupted") {
		t.Errorf("exit code %d, %s%s, %v, want %d and 9 calls", status, &stdout, &stderr, err, exitInterrupted)
	}
}

func TestBenchChecksItsFlags(t *testing.T) {
	for _, args := range []string{"-c 0", "-c 10001", "--connections 2", "-n -1", "-n 0", "-n 0 -d 1s", "-n 1 -d 0s",
		"-d 0s", "--warm-up -1s", "--rate -1"} {
		o := patchbay(t, "", append(append([]string{"bench"}, strings.Fields(args)...), "http://127.0.0.1:1/mcp",
			"x")...)
		if o.status != exitUsage || !strings.Contains(o.stderr, "invalid --") {
			t.Errorf("%s: exit code %d, %s, want %d", args, o.status, o.stderr, exitUsage)
		}
	}
}

func TestBenchNamesItsUsage(t *testing.T) {
	url := newBookServer(t)
	for _, revision := range revisions() {
		o := patchbay(t, "", "bench", "--revision", revision, "-n", "1", "-y", url, "drop")
		if o.status != exitUsage || !strings.Contains(o.stderr, "usage: patchbay bench TARGET drop") {
			t.Errorf("%s: exit code %d, %s, want %d and the usage of bench", revision, o.status, o.stderr, exitUsage)
		}
	}
	for script, want := range map[string]string{
		"bench -n 1 -y drop": "usage: bench drop",
		"bench -n 2 -c 2 --connections 2 -y drop sure=true": "a shell has one connection",
	} {
		if o := patchbay(t, script+"\n", "shell", url); o.status != exitUsage || !strings.Contains(o.stderr, want) {
			t.Errorf("%s in a shell: exit code %d, %s, want %d and %s", script, o.status, o.stderr, exitUsage, want)
		}
	}
}

// With --count and --duration a measurement ends at the first of the two.
func TestBenchEndsAtTheFirstLimit(t *testing.T) {
	var calls atomic.Int64
	url := listen(t, newBenchServer(&calls, func() {}))
	var r benchReport
	var o outcome
	limit := withLimit(50*time.Millisecond, func(limit time.Duration) bool {
		r, o = benchOf(t, "-y", "-n", "2000000000", "-d", limit.String(), url, "read")
		return r.Calls > 0
	})
	if o.status != exitOK || r.Calls == 0 || r.Seconds < limit.Seconds() {
		t.Errorf("-d first: exit code %d, %+v, %s", o.status, r, o.stderr)
	}
	if r, o := benchOf(t, "-y", "-n", "3", "-d", "1h", url, "read"); o.status != exitOK || r.Calls != 3 {
		t.Errorf("-n first: exit code %d, %+v, %s", o.status, r, o.stderr)
	}
}
