// Package status shows and controls the running gateway.
package status

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/gateway/pins"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/gatewayclient"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/hosting"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
)

// Commands returns the commands "gateway status", "logs", "restart", "stop" and "reload".
func Commands(f *cmdutil.Factory) []*cobra.Command {
	return []*cobra.Command{
		NewCmdLogs(f, nil),
		cmdutil.Plain(f, "status", "Show whether a gateway runs, and the condition of its servers", cobra.NoArgs,
			readStatus),
		cmdutil.WithCompletion(cmdutil.Plain(f, "restart NAME", "Restart a server of the running gateway",
			cobra.ExactArgs(1), restart), completeRunning(f)),
		cmdutil.WithCompletion(cmdutil.Plain(f, "stop [NAME]", "Stop the running gateway, or one of its servers",
			cobra.MaximumNArgs(1), stop), completeRunning(f)),
		cmdutil.Plain(f, "reload", "Make the running gateway read its configuration again", cobra.NoArgs, reload),
	}
}

func readStatus(ctx context.Context, o *cmdutil.Invocation) error {
	f := o.Factory
	c, err := gatewayclient.Require(ctx, f)
	if err != nil {
		return err
	}
	var status map[string]json.RawMessage
	var servers struct {
		Servers json.RawMessage `json:"servers"`
	}
	if err = c.Do(ctx, "GET", "/status", nil, &status); err == nil {
		err = c.Do(ctx, "GET", "/servers", nil, &servers)
	}
	if err != nil {
		return err
	}
	if n, err := quarantinedOf(ctx, f, servers.Servers); err == nil {
		status["quarantined"], _ = json.Marshal(n)
	}
	if f.Flags.JSON {
		status["servers"] = servers.Servers
		status["socket"], _ = json.Marshal(c.Socket)
		f.IO.Out.Value(status)
		return nil
	}
	return printGatewayStatus(f, c, status, servers.Servers)
}

func printGatewayStatus(f *cmdutil.Factory, c *gatewayclient.Client, status map[string]json.RawMessage,
	servers []byte) error {
	text, err := json.Marshal(status)
	var s hosting.GatewayStatus
	var all []hosting.ServerStatus
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err == nil {
		err = json.Unmarshal(servers, &all)
	}
	if err != nil {
		return err
	}
	f.IO.Out.Printf("The gateway is running: process %d, version %s, since %s (%s)", s.PID, term.CleanLine(s.Version),
		s.Started.Local().Format(time.DateTime), time.Since(s.Started).Truncate(time.Second))
	f.IO.Out.Field(0, "URL:", s.URL)
	f.IO.Out.Field(0, "Socket:", c.Socket)
	f.IO.Out.Field(0, "Profile:", s.Profile)
	f.IO.Out.Printf("Requests in progress: %d, attached clients: %d, waiting for approval: %d", s.Requests, s.Attached,
		s.Pending)
	f.IO.Out.Printf("Processes of servers: %d of at most %d", s.Processes, s.MaxProcesses)
	f.IO.Out.Field(0, "Configuration:", s.ConfigError)
	printReplicas(f, s.Replicas)
	if s.Quarantined > 0 {
		f.IO.Out.Printf("Definitions in quarantine: %d (see \"patchbay gateway pins --diff\")", s.Quarantined)
	}
	var rows [][]string
	for _, server := range all {
		what := server.Revision
		if server.Error != "" && server.State != "ready" {
			what = term.Shorten(term.CleanLine(server.Error), hosting.MaxEventShown)
		}
		if names := server.Unenforced(); len(names) > 0 {
			what += " (limits that this system does not enforce: " + term.CleanLine(strings.Join(names, ", ")) + ")"
		}
		rows = append(rows, []string{term.Shorten(term.CleanLine(server.Name), term.MaxNameShown),
			term.CleanLine(server.State),
			fmt.Sprintf("%d of %d", len(server.Instances), server.Limits.Instances), what})
	}
	f.IO.Out.Columns("SERVER STATE CONNECTIONS REVISION", rows)
	if s.Pending > 0 {
		f.IO.Err.Printf("%s for approval: see \"patchbay gateway pending\".", waits(s.Pending))
	}
	return nil
}

// printReplicas prints the processes that share a store, and the processes with another configuration.
func printReplicas(f *cmdutil.Factory, r *gateway.Replicas) {
	if r == nil {
		return
	}
	f.IO.Out.Printf("Processes of the gateway: %d, with another configuration: %d", r.Processes, len(r.Other))
	for _, o := range r.Other {
		f.IO.Out.Printf("  %s: another configuration since %s", term.Shorten(term.CleanLine(o.Name), term.MaxNameShown),
			o.Since.Local().Format(time.DateTime))
	}
}

// quarantinedOf returns the number of definitions of servers that wait for approval.
func quarantinedOf(ctx context.Context, f *cmdutil.Factory, servers []byte) (n int, err error) {
	var all []hosting.ServerStatus
	if err := json.Unmarshal(servers, &all); err != nil {
		return 0, err
	}
	_, held, err := pins.NamedPins(ctx, f, nil)
	for _, pin := range pins.QuarantinedPins(held) {
		if slices.ContainsFunc(all, func(s hosting.ServerStatus) bool { return s.Name == pin.Server }) {
			n++
		}
	}
	return n, err
}

func waits(n int) string {
	if n == 1 {
		return "1 request waits"
	}
	return fmt.Sprintf("%d requests wait", n)
}
