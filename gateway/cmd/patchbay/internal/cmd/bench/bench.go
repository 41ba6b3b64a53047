// Package bench measures a server.
package bench

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/call"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/list"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/observe"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/question"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// maxBenchWorkers bounds -c: more calls at once measure the client.
	maxBenchWorkers = 10_000
	// maxBenchConnections bounds --connections: each may be a process.
	maxBenchConnections = 1000
	// benchWarmUp is how long uncounted calls are made first, without --count.
	benchWarmUp = time.Second
)

// Options are the flags of "bench".
type Options struct {
	cmdutil.Invocation
	Plan
	Connections int
	Yes         bool // do not ask before a tool is called that is not read-only
}

// NewCmdBench returns the command "bench".
func NewCmdBench(f *cmdutil.Factory, run cmdutil.Run[*Options]) *cobra.Command {
	o := &Options{}
	var cmd *cobra.Command
	const short = "Call a tool many times and print the rate and latencies"
	cmd = cmdutil.TargetCommand(f, "bench TOOL [ARGUMENT…]", short, list.Tools(f).Names, o,
		func(ctx context.Context, o *Options) error {
			if err := o.check(cmd.Flags().Changed); err != nil {
				return exit.UsageError(err)
			}
			return cmdutil.Or(run, start)(ctx, o)
		})
	// traces would be measured too
	cmd.PreRun = func(*cobra.Command, []string) { f.Observe.Observed = observe.Unobserved() }
	flags := cmd.Flags()
	flags.IntVarP(&o.Workers, "concurrency", "c", 1, "make this many calls at the same time")
	flags.IntVarP(&o.Count, "count", "n", 0,
		"stop after this many calls, or after --duration if that is given and earlier")
	flags.DurationVarP(&o.Duration, "duration", "d", 10*time.Second, "stop after this time; no default with --count")
	flags.DurationVar(&o.WarmUp, "warm-up", benchWarmUp,
		"make calls that do not count for this time first; with --count the default is 0")
	flags.Float64Var(&o.Rate, "rate", 0, "start at most this many calls per second, evenly (default no limit)")
	flags.IntVar(&o.Connections, "connections", 1, "distribute the calls over this many connections")
	flags.BoolVarP(&o.Yes, "yes", "y", false, "call a tool that is not annotated as read-only, without a question")
	return cmd
}

// check returns an error for values that are not allowed, and fills in defaults. given reports whether
// the command line contains a flag.
func (o *Options) check(given func(flag string) bool) error {
	switch {
	case o.Workers < 1 || o.Workers > maxBenchWorkers:
		return fmt.Errorf("invalid --concurrency %d: want 1 to %d", o.Workers, maxBenchWorkers)
	case o.Connections < 1 || o.Connections > maxBenchConnections:
		return fmt.Errorf("invalid --connections %d: want 1 to %d", o.Connections, maxBenchConnections)
	case o.Connections > o.Workers:
		return fmt.Errorf("invalid --connections %d: want at most %d, the --concurrency", o.Connections, o.Workers)
	case given("count") && o.Count < 1:
		return fmt.Errorf("invalid --count %d: want more than 0", o.Count)
	case o.Duration <= 0:
		return fmt.Errorf("invalid --duration %v: want more than 0", o.Duration)
	case o.WarmUp < 0:
		return fmt.Errorf("invalid --warm-up %v: want 0 or more", o.WarmUp)
	case o.Rate < 0 || o.Rate > 1e6:
		return fmt.Errorf("invalid --rate %v: want 0 to 1000000 calls per second", o.Rate)
	case o.Client.Shell != nil && o.Connections > 1:
		return fmt.Errorf("invalid --connections %d: a shell has one connection; run \"patchbay bench\" outside "+
			"of the shell", o.Connections)
	}
	if !given("warm-up") && o.Count > 0 {
		o.WarmUp = 0
	}
	if !given("duration") && o.Count > 0 {
		o.Duration = 0
	}
	return nil
}

func start(ctx context.Context, o *Options) error {
	o.Client.NoQuestions = true
	return o.WithServer(ctx, func(ctx context.Context, c *mcp.Client) error { return bench(ctx, o, c) })
}

func bench(ctx context.Context, o *Options, c *mcp.Client) error {
	ctx = mcp.WithCallOptions(ctx, mcp.CallOptions{}) // without progress
	tool, arguments, err := call.PrepareCall(ctx, &o.Invocation, c, "bench")
	if err != nil {
		return err
	}
	if err := mayBench(ctx, o, tool); err != nil {
		return err
	}
	clients := []*mcp.Client{c}
	defer func() { closeAll(o.Factory, clients[1:]) }()
	for len(clients) < o.Connections {
		another, err := o.Client.Connect(ctx, o.Target)
		if err != nil {
			return fmt.Errorf("connection %d: %w", len(clients)+1, err)
		}
		clients = append(clients, another)
		if _, err := cmdutil.Collect(another.Tools(ctx)); err != nil { // calls need the schemas
			return err
		}
	}
	o.IO.Err.Status("measuring …")
	m := o.Plan.run(ctx, func(ctx context.Context, worker int) error {
		return callOnce(ctx, clients[worker%len(clients)], tool.Name, arguments)
	})
	o.IO.Err.Done()
	r := newBenchReport(o, tool.Name, c.Revision(), m)
	if o.Flags.JSON {
		o.IO.Out.Value(r)
	} else {
		showBench(o.Factory, r)
	}
	switch {
	case ctx.Err() != nil:
		o.IO.Err.Printf("patchbay: interrupted; this was measured until then")
		return &exit.Error{Code: exit.Interrupted, Err: exit.ErrShown}
	case len(r.Errors) > 0:
		return &exit.Error{Code: exit.Failure, Err: exit.ErrShown}
	}
	return nil
}

// errToolFailed is the error of a call whose result is an error of the tool.
var errToolFailed = errors.New("the tool failed")

func callOnce(ctx context.Context, c *mcp.Client, name string, arguments stdjson.RawMessage) error {
	r, err := c.CallTool(ctx, name, arguments)
	if err == nil && r.IsError {
		return &exit.Error{Code: exit.OfTool(r), Err: fmt.Errorf("%w: %s", errToolFailed, r.Text())}
	}
	return err
}

// mayBench asks the user before a tool is called many times that is not annotated as read-only, and
// returns an error if that is refused.
func mayBench(ctx context.Context, o *Options, tool *mcp.Tool) error {
	why := benchRisk(tool.Annotations)
	if why == "" || o.Yes {
		return nil
	}
	text := fmt.Sprintf("the tool %q is %s, and would be called many times", term.Shorten(tool.Name,
		term.MaxNameShown), why)
	if !o.IO.MayPrompt() {
		return exit.UsageError(fmt.Errorf("%s: add --yes if that does no harm", text))
	}
	o.IO.Err.Printf("%s (%s).", term.CleanLine(text), o.Plan.String())
	yes, err := o.Ask.Confirm(ctx, "Call it?", "n")
	switch {
	case errors.Is(err, question.ErrCancelled), errors.Is(err, question.ErrDeclined), err == nil && !yes:
		return &exit.Error{Code: exit.Failure, Err: errors.New("not started: the user declined")}
	}
	return err
}

// benchRisk returns in words why a tool should not be called many times without a question, or "".
// Spec: schema ToolAnnotations.
func benchRisk(a *mcp.ToolAnnotations) string {
	readOnly, destructive, _, _ := a.Hints()
	switch {
	case a != nil && a.Destructive != nil && *a.Destructive:
		return "annotated as destructive"
	case readOnly:
		return ""
	case destructive:
		return "not annotated as read-only, so that it may be destructive"
	}
	return "not annotated as read-only"
}

// closeAll closes connections at the same time: commands may exit slowly.
func closeAll(f *cmdutil.Factory, clients []*mcp.Client) {
	var closing sync.WaitGroup
	for _, c := range clients {
		closing.Go(func() { f.Client.Close(c) })
	}
	closing.Wait()
}

// A BenchReport is the output of `patchbay bench --json`. Times of calls are in milliseconds.
type BenchReport struct {
	Target      string                   `json:"target"`
	Tool        string                   `json:"tool"`
	Revision    string                   `json:"revision"`
	Concurrency int                      `json:"concurrency"`
	Connections int                      `json:"connections"`
	Seconds     float64                  `json:"seconds"`
	Calls       int                      `json:"calls"` // ended calls, without the warm-up
	Failed      int                      `json:"failed"`
	Rate        float64                  `json:"rate"` // successful calls per second
	LatencyMs   *benchLatency            `json:"latencyMs,omitzero"`
	Errors      map[string]*failureCount `json:"errors,omitzero"`
}

// benchLatency contains the latencies of successful calls, in milliseconds.
type benchLatency struct {
	Min  float64 `json:"min"`
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p99.9"`
	Max  float64 `json:"max"`
}

func newBenchReport(o *Options, tool, revision string, m *measurement) *BenchReport {
	h := &m.latency
	r := &BenchReport{
		Target: o.Target.String(), Tool: tool, Revision: revision, Concurrency: o.Workers, Connections: o.Connections,
		Seconds: m.took.Seconds(), Calls: h.count + m.failed, Failed: m.failed,
	}
	if m.took > 0 {
		r.Rate = float64(h.count) / m.took.Seconds()
	}
	if h.count > 0 {
		r.LatencyMs = &benchLatency{term.Milliseconds(h.min), term.Milliseconds(h.mean()),
			term.Milliseconds(h.quantile(0.5)),
			term.Milliseconds(h.quantile(0.9)), term.Milliseconds(h.quantile(0.99)),
			term.Milliseconds(h.quantile(0.999)),
			term.Milliseconds(h.max)}
	}
	if len(m.failures) > 0 {
		r.Errors = m.failures
	}
	return r
}

func showBench(f *cmdutil.Factory, r *BenchReport) {
	line := func(name, format string, args ...any) {
		f.IO.Out.Printf("%-12s %s", name, fmt.Sprintf(format, args...))
	}
	line("tool", "%s, revision %s", term.CleanLine(r.Tool), r.Revision)
	line("calls", "%d in %v, %d at a time over %s", r.Calls,
		time.Duration(r.Seconds*float64(time.Second)).Round(time.Millisecond), r.Concurrency,
		term.Counted(r.Connections, "connection"))
	line("rate", "%.1f per second", r.Rate)
	if l := r.LatencyMs; l != nil {
		line("latency", "min %.3g ms, mean %.3g ms", l.Min, l.Mean)
		for _, q := range []struct {
			name  string
			value float64
		}{{"p50", l.P50}, {"p90", l.P90}, {"p99", l.P99}, {"p99.9", l.P999}, {"max", l.Max}} {
			line("  "+q.name, "%.3f ms", q.value)
		}
	}
	line("errors", "%d", r.Failed)
	for _, kind := range slices.Sorted(maps.Keys(r.Errors)) {
		e := r.Errors[kind]
		line("  "+kind, "%d, first: %s", e.Count, e.First)
	}
}
