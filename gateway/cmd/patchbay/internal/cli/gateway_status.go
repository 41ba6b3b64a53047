package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// controlCommands returns the commands of `patchbay gateway` about the running gateway.
func controlCommands(f *factory) []*cobra.Command {
	return []*cobra.Command{gatewayStatusCommand(f), logsCommand(f), restartCommand(f), stopCommand(f),
		reloadCommand(f)}
}

// A gatewayStatus is the condition of a gateway, as far as it is printed.
type gatewayStatus struct {
	Version  string    `json:"version"`
	PID      int       `json:"pid"`
	Started  time.Time `json:"started"`
	URL      string    `json:"url"`
	Profile  string    `json:"profile"`
	Pending  int       `json:"pending"`
	Attached int       `json:"attached"`
	Requests int       `json:"requests"`

	Processes    int    `json:"processes"`
	MaxProcesses int    `json:"maxProcesses"`
	ConfigError  string `json:"configError"`
	Quarantined  int    `json:"quarantined"`
}

// A serverStatus is the condition of a server, as far as it is printed.
type serverStatus struct {
	Name         string `json:"name"`
	State        string `json:"state"`
	Revision     string `json:"revision"`
	Requests     int    `json:"requests"`
	Error        string `json:"error"`
	RetryAfterMs int64  `json:"retryAfterMs"`
	Instances    []struct {
		Unenforced []string `json:"unenforced"`
	} `json:"instances"`
	Limits struct {
		Instances int `json:"instances"`
	} `json:"limits"`
}

// unenforced returns the limits that the system does not enforce for at least one process, sorted.
func (s *serverStatus) unenforced() (names []string) {
	for _, i := range s.Instances {
		names = append(names, i.Unenforced...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func gatewayStatusCommand(f *factory) *cobra.Command {
	return &cobra.Command{Use: "status", Short: "Show whether a gateway runs, and the condition of its servers",
		DisableFlagsInUseLine: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return readStatus(cmd.Context(), f) }}
}

func readStatus(ctx context.Context, f *factory) error {
	c, err := requireGateway(ctx, f)
	if err != nil {
		return err
	}
	var status map[string]json.RawMessage
	var servers struct {
		Servers json.RawMessage `json:"servers"`
	}
	if err = c.do(ctx, "GET", "/status", nil, &status); err == nil {
		err = c.do(ctx, "GET", "/servers", nil, &servers)
	}
	if err != nil {
		return err
	}
	if n, err := quarantinedOf(ctx, f, servers.Servers); err == nil {
		status["quarantined"], _ = json.Marshal(n)
	}
	if f.Flags.json {
		status["servers"] = servers.Servers
		status["socket"], _ = json.Marshal(c.socket)
		f.IO.Out.value(status)
		return nil
	}
	return printGatewayStatus(f, c, status, servers.Servers)
}

func printGatewayStatus(f *factory, c *adminClient, status map[string]json.RawMessage, servers []byte) error {
	text, err := json.Marshal(status)
	var s gatewayStatus
	var all []serverStatus
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err == nil {
		err = json.Unmarshal(servers, &all)
	}
	if err != nil {
		return err
	}
	f.IO.Out.printf("The gateway is running: process %d, version %s, since %s (%s)", s.PID, cleanLine(s.Version),
		s.Started.Local().Format(time.DateTime), time.Since(s.Started).Truncate(time.Second))
	f.IO.Out.field(0, "URL:", s.URL)
	f.IO.Out.field(0, "Socket:", c.socket)
	f.IO.Out.field(0, "Profile:", s.Profile)
	f.IO.Out.printf("Requests in progress: %d, attached clients: %d, waiting for approval: %d", s.Requests, s.Attached,
		s.Pending)
	f.IO.Out.printf("Processes of servers: %d of at most %d", s.Processes, s.MaxProcesses)
	f.IO.Out.field(0, "Configuration:", s.ConfigError)
	if s.Quarantined > 0 {
		f.IO.Out.printf("Definitions in quarantine: %d (see \"patchbay gateway pins --diff\")", s.Quarantined)
	}
	var rows [][]string
	for _, server := range all {
		what := server.Revision
		if server.Error != "" && server.State != "ready" {
			what = shorten(cleanLine(server.Error), maxEventShown)
		}
		if names := server.unenforced(); len(names) > 0 {
			what += " (limits that this system does not enforce: " + cleanLine(strings.Join(names, ", ")) + ")"
		}
		rows = append(rows, []string{shorten(cleanLine(server.Name), maxNameShown), cleanLine(server.State),
			fmt.Sprintf("%d of %d", len(server.Instances), server.Limits.Instances), what})
	}
	f.IO.Out.columns("SERVER STATE CONNECTIONS REVISION", rows)
	if s.Pending > 0 {
		f.IO.Err.printf("%s for approval: see \"patchbay gateway pending\".", waits(s.Pending))
	}
	return nil
}

// quarantinedOf returns the number of definitions of servers that wait for approval.
func quarantinedOf(ctx context.Context, f *factory, servers []byte) (n int, err error) {
	var all []serverStatus
	if err := json.Unmarshal(servers, &all); err != nil {
		return 0, err
	}
	_, pins, err := namedPins(ctx, f, nil)
	for _, pin := range quarantinedPins(pins) {
		if slices.ContainsFunc(all, func(s serverStatus) bool { return s.Name == pin.Server }) {
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
