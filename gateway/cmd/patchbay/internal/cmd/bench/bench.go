// Package bench measures a server.
package bench

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/call"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/list"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/observe"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/question"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
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

// benchFlags are the flags of `patchbay bench`.
type benchFlags struct {
	plan        benchPlan
	connections int
	yes         bool
}

// NewCmdBench returns the command "bench".
func NewCmdBench(p *cmdutil.Factory, tools list.Listing[*mcp.Tool]) *cobra.Command {
	var f benchFlags
	var cmd *cobra.Command
	const short = "Call a tool many times and print the rate and latencies"
	cmd = cmdutil.TargetCommand(p, "bench TOOL [ARGUMENT…]", short, tools.Names,
		func(ctx context.Context, t *target.Target, words []string) error {
			given := cmd.Flags().Changed
			if err := f.check(given("count")); err != nil {
				return exit.UsageError(err)
			}
			if p.Shell != nil && f.connections > 1 {
				return exit.UsageError(fmt.Errorf(
					"invalid --connections %d: a shell has one connection; run \"patchbay bench\" "+
						"outside of the shell", f.connections))
			}
			if !given("warm-up") && f.plan.count > 0 {
				f.plan.warmUp = 0
			}
			if !given("duration") && f.plan.count > 0 {
				f.plan.duration = 0
			}
			p.Client.NoQuestions = true
			return cmdutil.WithServer(ctx, p, t, words, func(ctx context.Context, c *mcp.Client, words []string) error {
				return bench(ctx, p, t, c, words, &f)
			})
		})
	cmd.PreRun = func(*cobra.Command, []string) {
		p.Observe.Observed = observe.Unobserved()
	} // traces would be measured too
	flags := cmd.Flags()
	flags.IntVarP(&f.plan.workers, "concurrency", "c", 1, "make this many calls at the same time")
	flags.IntVarP(&f.plan.count, "count", "n", 0,
		"stop after this many calls, or after --duration if that is given and earlier")
	flags.DurationVarP(&f.plan.duration, "duration", "d", 10*time.Second,
		"stop after this time; no default with --count")
	flags.DurationVar(&f.plan.warmUp, "warm-up", benchWarmUp,
		"make calls that do not count for this time first; with --count the default is 0")
	flags.Float64Var(&f.plan.rate, "rate", 0, "start at most this many calls per second, evenly (default no limit)")
	flags.IntVar(&f.connections, "connections", 1, "distribute the calls over this many connections")
	flags.BoolVarP(&f.yes, "yes", "y", false, "call a tool that is not annotated as read-only, without a question")
	return cmd
}

// check returns an error for values that are not allowed. withCount means that --count was given.
func (f *benchFlags) check(withCount bool) error {
	switch plan := &f.plan; {
	case plan.workers < 1 || plan.workers > maxBenchWorkers:
		return fmt.Errorf("invalid --concurrency %d: want 1 to %d", plan.workers, maxBenchWorkers)
	case f.connections < 1 || f.connections > maxBenchConnections:
		return fmt.Errorf("invalid --connections %d: want 1 to %d", f.connections, maxBenchConnections)
	case f.connections > plan.workers:
		return fmt.Errorf("invalid --connections %d: want at most %d, the --concurrency", f.connections, plan.workers)
	case withCount && plan.count < 1:
		return fmt.Errorf("invalid --count %d: want more than 0", plan.count)
	case plan.duration <= 0:
		return fmt.Errorf("invalid --duration %v: want more than 0", plan.duration)
	case plan.warmUp < 0:
		return fmt.Errorf("invalid --warm-up %v: want 0 or more", plan.warmUp)
	case plan.rate < 0 || plan.rate > 1e6:
		return fmt.Errorf("invalid --rate %v: want 0 to 1000000 calls per second", plan.rate)
	}
	return nil
}

func bench(ctx context.Context, p *cmdutil.Factory, t *target.Target, c *mcp.Client, words []string,
	f *benchFlags) error {
	ctx = mcp.WithCallOptions(ctx, mcp.CallOptions{}) // without progress
	tool, arguments, err := call.PrepareCall(ctx, p, c, "bench", words)
	if err != nil {
		return err
	}
	if err := mayBench(ctx, p, tool, f); err != nil {
		return err
	}
	clients := []*mcp.Client{c}
	defer func() { closeAll(p, clients[1:]) }()
	for len(clients) < f.connections {
		another, err := p.Client.Connect(ctx, t)
		if err != nil {
			return fmt.Errorf("connection %d: %w", len(clients)+1, err)
		}
		clients = append(clients, another)
		if _, err := cmdutil.Collect(another.Tools(ctx)); err != nil { // calls need the schemas
			return err
		}
	}
	p.IO.Err.Status("measuring …")
	m := f.plan.run(ctx, func(ctx context.Context, worker int) error {
		return callOnce(ctx, clients[worker%len(clients)], tool.Name, arguments)
	})
	p.IO.Err.Done()
	r := newBenchReport(t.String(), tool.Name, c.Revision(), f, m)
	if p.Flags.JSON {
		p.IO.Out.Value(r)
	} else {
		showBench(p, r)
	}
	switch {
	case ctx.Err() != nil:
		p.IO.Err.Printf("patchbay: interrupted; this was measured until then")
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
func mayBench(ctx context.Context, p *cmdutil.Factory, tool *mcp.Tool, f *benchFlags) error {
	why := benchRisk(tool.Annotations)
	if why == "" || f.yes {
		return nil
	}
	text := fmt.Sprintf("the tool %q is %s, and would be called many times", term.Shorten(tool.Name,
		term.MaxNameShown), why)
	if !p.IO.MayPrompt() {
		return exit.UsageError(fmt.Errorf("%s: add --yes if that does no harm", text))
	}
	p.IO.Err.Printf("%s (%s).", term.CleanLine(text), f.plan.String())
	yes, err := p.Ask.Confirm(ctx, "Call it?", "n")
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
