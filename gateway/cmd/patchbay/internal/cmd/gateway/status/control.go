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

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/gateway/run"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
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

func restartCommand(f *cmdutil.Factory) *cobra.Command {
	return &cobra.Command{Use: "restart NAME", Short: "Restart a server of the running gateway",
		DisableFlagsInUseLine: true, Args: cobra.ExactArgs(1), ValidArgsFunction: func(cmd *cobra.Command,
			args []string, typed string) ([]string, cobra.ShellCompDirective) {
			return completeRunning(f, cmd, args, typed)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return controlServer(cmd.Context(), f, args[0], "restart")
		}}
}

func stopCommand(f *cmdutil.Factory) *cobra.Command {
	return &cobra.Command{Use: "stop [NAME]", Short: "Stop the running gateway, or one of its servers",
		DisableFlagsInUseLine: true, Args: cobra.MaximumNArgs(1), ValidArgsFunction: func(cmd *cobra.Command,
			args []string, typed string) ([]string, cobra.ShellCompDirective) {
			return completeRunning(f, cmd, args, typed)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return controlServer(cmd.Context(), f, args[0], "stop")
			}
			return stopGateway(cmd.Context(), f)
		}}
}

// controlServer restarts or stops a server, and prints its state.
func controlServer(ctx context.Context, f *cmdutil.Factory, name, verb string) error {
	c, err := gatewayclient.Require(ctx, f)
	if err != nil {
		return err
	}
	var raw json.RawMessage
	if err := c.Do(ctx, http.MethodPost, gatewayclient.ServerPath(name, ":"+verb), nil, &raw); err != nil {
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
	if f.Flags.JSON {
		f.IO.Out.Value(map[string]any{"stopped": true, "pid": status.PID})
		return nil
	}
	f.IO.Out.Printf("The gateway has ended: process %d.", status.PID)
	return nil
}

func reloadCommand(f *cmdutil.Factory) *cobra.Command {
	return &cobra.Command{Use: "reload", Short: "Make the running gateway read its configuration again",
		DisableFlagsInUseLine: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := gatewayclient.Require(cmd.Context(), f)
			if err != nil {
				return err
			}
			var raw json.RawMessage
			if err := c.Do(cmd.Context(), http.MethodPost, "/reload", nil, &raw); err != nil {
				return err
			}
			if f.Flags.JSON {
				f.IO.Out.Raw(raw)
				return nil
			}
			var d host.Diff
			if err := json.Unmarshal(raw, &d); err != nil {
				return err
			}
			printReload(f, &d)
			return nil
		}}
}

// printReload prints what a reload has changed.
func printReload(f *cmdutil.Factory, d *host.Diff) {
	parts := run.DiffParts(d)
	if len(parts) == 0 {
		parts = []string{"nothing has changed"}
	}
	f.IO.Out.Printf("Reloaded the configuration: %s.", strings.Join(parts, "; "))
	if len(d.Restart) > 0 {
		f.IO.Err.Printf("%s has changed: restart the gateway to use it.", term.CleanLine(strings.Join(d.Restart, ", ")))
	}
}

func logsCommand(f *cmdutil.Factory) *cobra.Command {
	follow, last := false, 0
	cmd := &cobra.Command{Use: "logs NAME", Short: "Print the standard error of a server of the running gateway",
		DisableFlagsInUseLine: true, Args: cobra.ExactArgs(1), ValidArgsFunction: func(cmd *cobra.Command,
			args []string, typed string) ([]string, cobra.ShellCompDirective) {
			return completeRunning(f, cmd, args, typed)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if last < 1 || last > maxLogLines {
				return exit.UsageError(fmt.Errorf("invalid --last %d: want 1 to %d", last, maxLogLines))
			}
			return logs(cmd.Context(), f, args[0], last, follow)
		}}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "wait for more lines until interrupted")
	cmd.Flags().IntVarP(&last, "last", "n", defaultLogLines, "only the last `lines`")
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

// logs prints the last lines of a server, and with follow those that it writes later. With --json each is
// an object on a line of its own.
func logs(ctx context.Context, f *cmdutil.Factory, name string, last int, follow bool) error {
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
		if err := c.Do(ctx, http.MethodGet, gatewayclient.ServerPath(name, query), nil, &res); err != nil {
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
		if !follow || f.IO.Out.Err != nil {
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
func completeRunning(
	f *cmdutil.Factory, cmd *cobra.Command, args []string, typed string,
) (names []string, _ cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	c, ok, err := gatewayclient.Find(cmd.Context(), f)
	if err != nil || !ok {
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
