package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

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

// serverPath returns the path of a server in the admin API.
func serverPath(name, rest string) string { return "/servers/" + url.PathEscape(name) + rest }

func restartCommand(f *factory) *cobra.Command {
	return &cobra.Command{Use: "restart NAME", Short: "Restart a server of the running gateway",
		DisableFlagsInUseLine: true, Args: cobra.ExactArgs(1), ValidArgsFunction: func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			return completeRunning(f, cmd, args, typed)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return controlServer(cmd.Context(), f, args[0], "restart")
		}}
}

func stopCommand(f *factory) *cobra.Command {
	return &cobra.Command{Use: "stop [NAME]", Short: "Stop the running gateway, or one of its servers",
		DisableFlagsInUseLine: true, Args: cobra.MaximumNArgs(1), ValidArgsFunction: func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
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
func controlServer(ctx context.Context, f *factory, name, verb string) error {
	c, err := requireGateway(ctx, f)
	if err != nil {
		return err
	}
	var raw json.RawMessage
	if err := c.do(ctx, http.MethodPost, serverPath(name, ":"+verb), nil, &raw); err != nil {
		return err
	}
	if f.Flags.json {
		f.IO.Out.raw(raw)
		return nil
	}
	var s serverStatus
	if err := json.Unmarshal(raw, &s); err != nil {
		return err
	}
	f.IO.Out.printf("Server %s: %s", shorten(cleanLine(s.Name), maxNameShown), cleanLine(s.State))
	return nil
}

// stopGateway ends the gateway, and waits until it has ended.
func stopGateway(ctx context.Context, f *factory) error {
	c, err := requireGateway(ctx, f)
	if err != nil {
		return err
	}
	var status gatewayStatus
	if err = c.do(ctx, http.MethodGet, "/status", nil, &status); err == nil {
		err = c.do(ctx, http.MethodPost, "/stop", nil, nil)
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	look := time.NewTicker(stopPoll)
	defer look.Stop()
	said := false
	for begun := time.Now(); !c.hasEnded(ctx); {
		if !said && time.Since(begun) > stopNotice {
			f.IO.Err.printf("The gateway, process %d, is ending: requests in progress have 10 seconds.", status.PID)
			said = true
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return &coded{exitTimeout,
				fmt.Errorf("the gateway, process %d, has not ended within %v", status.PID, stopTimeout)}
		}
	}
	if f.Flags.json {
		f.IO.Out.value(map[string]any{"stopped": true, "pid": status.PID})
		return nil
	}
	f.IO.Out.printf("The gateway has ended: process %d.", status.PID)
	return nil
}

// hasEnded reports whether the gateway has ended, with its servers. Its socket is closed before.
func (c *adminClient) hasEnded(ctx context.Context) bool {
	conn, err := dialGateway(ctx, c.socket)
	if err == nil {
		_ = conn.Close()
	}
	if !isNoGateway(err) {
		return false
	}
	lock, err := lockSocket(c.socket)
	if err == nil {
		_ = lock.Close() // nothing was written
	}
	return !errors.Is(err, errGatewayRuns)
}

func reloadCommand(f *factory) *cobra.Command {
	return &cobra.Command{Use: "reload", Short: "Make the running gateway read its configuration again",
		DisableFlagsInUseLine: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := requireGateway(cmd.Context(), f)
			if err != nil {
				return err
			}
			var raw json.RawMessage
			if err := c.do(cmd.Context(), http.MethodPost, "/reload", nil, &raw); err != nil {
				return err
			}
			if f.Flags.json {
				f.IO.Out.raw(raw)
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
func printReload(f *factory, d *host.Diff) {
	parts := diffParts(d)
	if len(parts) == 0 {
		parts = []string{"nothing has changed"}
	}
	f.IO.Out.printf("Reloaded the configuration: %s.", strings.Join(parts, "; "))
	if len(d.Restart) > 0 {
		f.IO.Err.printf("%s has changed: restart the gateway to use it.", cleanLine(strings.Join(d.Restart, ", ")))
	}
}

func logsCommand(f *factory) *cobra.Command {
	follow, last := false, 0
	cmd := &cobra.Command{Use: "logs NAME", Short: "Print the standard error of a server of the running gateway",
		DisableFlagsInUseLine: true, Args: cobra.ExactArgs(1), ValidArgsFunction: func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			return completeRunning(f, cmd, args, typed)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if last < 1 || last > maxLogLines {
				return usage(fmt.Errorf("invalid --last %d: want 1 to %d", last, maxLogLines))
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

// A logLine is a line of a server.
type logLine struct {
	Number   uint64    `json:"number"`
	Time     time.Time `json:"time"`
	Instance string    `json:"instance"`
	Text     string    `json:"text"`
}

// logs prints the last lines of a server, and with follow those that it writes later. With --json each is
// an object on a line of its own.
func logs(ctx context.Context, f *factory, name string, last int, follow bool) error {
	c, err := requireGateway(ctx, f)
	if err != nil {
		return err
	}
	look := time.NewTicker(logPoll)
	defer look.Stop()
	after := uint64(0)
	for {
		var res struct {
			Lines []logLine `json:"lines"`
		}
		query := "/stderr?limit=" + strconv.Itoa(last) + "&after=" + strconv.FormatUint(after, 10)
		if err := c.do(ctx, http.MethodGet, serverPath(name, query), nil, &res); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return err
		}
		for _, l := range res.Lines {
			if f.Flags.json {
				f.IO.Out.value(l)
			} else {
				f.IO.Out.printf("%s  %s", l.Time.Local().Format(time.DateTime), cleanLine(l.Text))
			}
			after = l.Number
		}
		if !follow || f.IO.Out.err != nil {
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
	f *factory, cmd *cobra.Command, args []string, typed string,
) (names []string, _ cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	c, ok, err := findRunning(cmd.Context(), f)
	if err != nil || !ok {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var all struct {
		Servers []serverStatus `json:"servers"`
	}
	if c.do(cmd.Context(), http.MethodGet, "/servers", nil, &all) == nil {
		for _, s := range all.Servers {
			if strings.HasPrefix(s.Name, typed) {
				names = append(names, cleanLine(s.Name))
			}
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

var errNoGateway = errors.New("no gateway of this configuration is running: start it with \"patchbay gateway\"; one " +
	"with another file needs its --config here too")
