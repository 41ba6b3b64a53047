package status

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/follow"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/gatewayclient"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/hosting"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/host"
)

const (
	// logPoll is how often new lines of a server are asked for.
	logPoll = 500 * time.Millisecond
	// stopTimeout is longer than a gateway takes to end, and stopPoll how often that is looked at.
	stopTimeout = 30 * time.Second
	stopPoll    = 50 * time.Millisecond
	// stopNotice is how long nothing is said about a gateway that is ending.
	stopNotice = time.Second
)

func restart(ctx context.Context, o *cmdutil.Invocation) error {
	return controlServer(ctx, o, "restart")
}

func stop(ctx context.Context, o *cmdutil.Invocation) error {
	if len(o.Words) > 0 {
		return controlServer(ctx, o, "stop")
	}
	return stopGateway(ctx, o.Factory)
}

// controlServer restarts or stops a server, and prints its state.
func controlServer(ctx context.Context, o *cmdutil.Invocation, verb string) error {
	f := o.Factory
	c, err := gatewayclient.Require(ctx, f)
	if err != nil {
		return err
	}
	var raw json.RawMessage
	if err := c.Do(ctx, http.MethodPost, gatewayclient.ServerPath(o.Words[0], ":"+verb), nil, &raw); err != nil {
		return err
	}
	if f.Flags.JSON {
		f.IO.Out.Raw(raw)
		return nil
	}
	var s hosting.ServerStatus
	if err := json.Unmarshal(raw, &s); err != nil {
		return err
	}
	f.IO.Out.Printf("Server %s: %s", term.Shorten(term.CleanLine(s.Name), term.MaxNameShown), term.CleanLine(s.State))
	return nil
}

// stopGateway ends the gateway, and waits until it has ended.
func stopGateway(ctx context.Context, f *cmdutil.Factory) error {
	c, err := gatewayclient.Require(ctx, f)
	if err != nil {
		return err
	}
	var status hosting.GatewayStatus
	if err = c.Do(ctx, http.MethodGet, "/status", nil, &status); err == nil {
		err = c.Do(ctx, http.MethodPost, "/stop", nil, nil)
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	look := time.NewTicker(stopPoll)
	defer look.Stop()
	said := false
	for begun := time.Now(); !c.HasEnded(ctx); {
		if !said && time.Since(begun) > stopNotice {
			f.IO.Err.Printf("The gateway, process %d, is ending: requests in progress have 10 seconds.", status.PID)
			said = true
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return &exit.Error{Code: exit.Timeout,
				Err: fmt.Errorf("the gateway, process %d, has not ended within %v", status.PID, stopTimeout)}
		}
	}
	if f.PrintedJSON(map[string]any{"stopped": true, "pid": status.PID}) {
		return nil
	}
	f.IO.Out.Printf("The gateway has ended: process %d.", status.PID)
	return nil
}

func reload(ctx context.Context, o *cmdutil.Invocation) error {
	c, err := gatewayclient.Require(ctx, o.Factory)
	if err != nil {
		return err
	}
	var raw json.RawMessage
	if err := c.Do(ctx, http.MethodPost, "/reload", nil, &raw); err != nil {
		return err
	}
	if o.Flags.JSON {
		o.IO.Out.Raw(raw)
		return nil
	}
	var d host.Diff
	if err := json.Unmarshal(raw, &d); err != nil {
		return err
	}
	printReload(o.Factory, &d)
	return nil
}

// printReload prints what a reload has changed.
func printReload(f *cmdutil.Factory, d *host.Diff) {
	parts := follow.DiffParts(d)
	if len(parts) == 0 {
		parts = []string{"nothing has changed"}
	}
	f.IO.Out.Printf("Reloaded the configuration: %s.", strings.Join(parts, "; "))
	if len(d.Restart) > 0 {
		f.IO.Err.Printf("%s has changed: restart the gateway to use it.", term.CleanLine(strings.Join(d.Restart, ", ")))
	}
}

// LogsOptions are the flags of "gateway logs".
type LogsOptions struct {
	cmdutil.Invocation
	Follow bool
	Last   int // lines
}

// NewCmdLogs returns the command "gateway logs".
func NewCmdLogs(f *cmdutil.Factory, run cmdutil.Run[*LogsOptions]) *cobra.Command {
	o := &LogsOptions{}
	cmd := cmdutil.Command(f, "logs NAME", "Print the standard error of a server of the running gateway",
		cobra.ExactArgs(1), o, cmdutil.Or(run, logs))
	cmd.ValidArgsFunction = completeRunning(f)
	cmd.Flags().BoolVarP(&o.Follow, "follow", "f", false, "wait for more lines until interrupted")
	cmd.Flags().IntVarP(&o.Last, "last", "n", defaultLogLines, "only the last `lines`")
	return cmd
}

const (
	defaultLogLines = 100
	maxLogLines     = 1000 // of one response of the gateway
)

// A LogLine is a line of a server.
type LogLine struct {
	Number   uint64    `json:"number"`
	Time     time.Time `json:"time"`
	Instance string    `json:"instance"`
	Text     string    `json:"text"`
}

// logs prints the last lines of a server, and with follow those that it writes later. With --json
// each is an object on a line of its own.
func logs(ctx context.Context, o *LogsOptions) error {
	f, last := o.Factory, o.Last
	if last < 1 || last > maxLogLines {
		return exit.UsageError(fmt.Errorf("invalid --last %d: want 1 to %d", last, maxLogLines))
	}
	c, err := gatewayclient.Require(ctx, f)
	if err != nil {
		return err
	}
	look := time.NewTicker(logPoll)
	defer look.Stop()
	after := uint64(0)
	for {
		var res struct {
			Lines []LogLine `json:"lines"`
		}
		query := "/stderr?limit=" + strconv.Itoa(last) + "&after=" + strconv.FormatUint(after, 10)
		if err := c.Do(ctx, http.MethodGet, gatewayclient.ServerPath(o.Words[0], query), nil, &res); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return err
		}
		for _, l := range res.Lines {
			if f.Flags.JSON {
				f.IO.Out.Value(l)
			} else {
				f.IO.Out.Printf("%s  %s", l.Time.Local().Format(time.DateTime), term.CleanLine(l.Text))
			}
			after = l.Number
		}
		if !o.Follow || f.IO.Out.Err != nil {
			return nil
		}
		last = maxLogLines // from now on no line is left out
		select {
		case <-look.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// completeRunning completes the names of the servers of the running gateway.
func completeRunning(f *cmdutil.Factory) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) (names []string, _ cobra.ShellCompDirective) {
		c, ok, err := gatewayclient.Find(cmd.Context(), f)
		if err != nil || !ok || len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var all struct {
			Servers []hosting.ServerStatus `json:"servers"`
		}
		if c.Do(cmd.Context(), http.MethodGet, "/servers", nil, &all) == nil {
			for _, s := range all.Servers {
				if strings.HasPrefix(s.Name, typed) {
					names = append(names, term.CleanLine(s.Name))
				}
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
