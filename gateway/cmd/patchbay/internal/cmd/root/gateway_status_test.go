package root

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/userdir"
)

// The status of a gateway is that of the one that runs with the same configuration, until it ends.
func TestGatewayStatusIsThatOfTheRunningGateway(t *testing.T) {
	freshVault(t)
	file := filepath.Join(t.TempDir(), "mcp.json")
	writeFile(t, file, demoServers(t, "one", "two"))
	o := patchbay(t, "", "gateway", "status", "--config", file)
	if o.status != exit.Unreachable || !strings.Contains(o.stderr, "no gateway of this configuration is running") {
		t.Errorf("without a gateway: %+v", o)
	}
	g := startGateway(t, nil, "--config", file)
	o = mustRun(t, "gateway", "status", "--config", file)
	for _, want := range []string{"The gateway is running: process ", g.url, ".sock", "one\toff\t0 of 16"} {
		if !strings.Contains(o.stdout, want) {
			t.Errorf("status %q, want %q in it", o.stdout, want)
		}
	}
	var status struct {
		PID     int
		URL     string
		Servers []struct{ Name, State string }
	}
	o = mustRun(t, "gateway", "status", "--config", file, "--json")
	if err := json.Unmarshal([]byte(o.stdout), &status); err != nil {
		t.Fatal(err)
	}
	if status.PID != os.Getpid() || status.URL != g.url || len(status.Servers) != 2 || status.Servers[1].Name != "two" {
		t.Errorf("status %+v", status)
	}
	other := filepath.Join(t.TempDir(), "mcp.json")
	writeFile(t, other, demoServers(t, "one"))
	if o = patchbay(t, "", "gateway", "status", "--config", other, "--json"); o.status != exit.Unreachable {
		t.Errorf("another configuration: %+v", o)
	}
	second := startGateway(t, nil, "--config", file)
	if o = second.stop(); !strings.Contains(o.stderr, "a gateway of this configuration is running already") {
		t.Errorf("second gateway: %+v", o)
	}
	mustRun(t, "gateway", "status", "--config", file)
	g.stop()
	if o = patchbay(t, "", "gateway", "status", "--config", file); o.status != exit.Unreachable {
		t.Errorf("after the end: %+v", o)
	}
}

// The failure of a start is not shown any more when the server is ready.
func TestStatusOfAServerThatIsReadyAgain(t *testing.T) {
	freshVault(t)
	t.Setenv(userdir.EnvState, t.TempDir())
	file := filepath.Join(t.TempDir(), "mcp.json")
	writeFile(t, file, `{"mcpServers": {"one": `+seenEntry(t, filepath.Join(t.TempDir(), "seen"), `"TOKEN": "${secret:late}", `)+`}}`)
	startGateway(t, nil, "--config", file)
	if o := patchbay(t, "", "gateway", "restart", "one", "--config", file); o.status == exit.OK {
		t.Fatalf("restart without the secret: %+v", o)
	}
	if o := mustRun(t, "gateway", "status", "--config", file, "--json"); !strings.Contains(o.stdout, "is not set") {
		t.Errorf("status without the secret: %s", o.stdout)
	}
	if o := patchbay(t, "s3cret-value\n", "gateway", "secret", "set", "late", "--config", file); o.status != exit.OK {
		t.Fatalf("secret set: %+v", o)
	}
	mustRun(t, "gateway", "restart", "one", "--config", file)
	if o := mustRun(t, "gateway", "status", "--config", file, "--json"); strings.Contains(o.stdout, "is not set") ||
		!strings.Contains(o.stdout, `"ready"`) {
		t.Errorf("status of the ready server: %s", o.stdout)
	}
}

// The status names the limits that the system does not enforce.
func TestStatusShowsLimitsThatAreNotEnforced(t *testing.T) {
	freshVault(t)
	t.Setenv(userdir.EnvState, t.TempDir())
	entry := seenEntry(t, filepath.Join(t.TempDir(), "seen"), "")
	missing := unenforcedLimits(t, entry)
	slices.Sort(missing)
	file := filepath.Join(t.TempDir(), "mcp.json")
	writeFile(t, file, `{"mcpServers": {"one": `+entry+`},
		"patchbay": {"servers": {"one": {"limits": {"cpu": 4, "processes": 500, "bestEffort": true}}}}}`)
	g := startGateway(t, nil, "--config", file)
	c := gatewayClient(t, g, "", false)
	if res, err := c.CallTool(t.Context(), "add", map[string]any{"a": 1, "b": 2}); err != nil || res.Text() != "3" {
		t.Fatal(res, err)
	}
	o := mustRun(t, "gateway", "status", "--config", file)
	shown := "limits that this system does not enforce: " + strings.Join(missing, ", ") + ")\n"
	if len(missing) == 0 {
		shown = "one\tready\t1 of 16\t2026-07-28\n"
	}
	if !strings.Contains(o.stdout, shown) || !strings.Contains(o.stdout, "Processes of servers: 1 of at most 100\n") {
		t.Errorf("status %q, want %q in it, and the number of processes", o.stdout, shown)
	}
	var status struct {
		Servers []struct {
			Instances []struct{ Unenforced []string }
		}
	}
	o = mustRun(t, "gateway", "status", "--config", file, "--json")
	if err := json.Unmarshal([]byte(o.stdout), &status); err != nil || len(status.Servers) != 1 ||
		len(status.Servers[0].Instances) != 1 {
		t.Fatal(o.stdout, err)
	}
	got := status.Servers[0].Instances[0].Unenforced
	if slices.Sort(got); !slices.Equal(got, missing) {
		t.Errorf("unenforced %q, want %q", got, missing)
	}
	c.Close()
	g.stop()
}

// unenforcedLimits returns the limits that the error of a server without bestEffort names.
func unenforcedLimits(t *testing.T, entry string) []string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "mcp.json")
	writeFile(t, file, `{"mcpServers": {"one": `+entry+`},
		"patchbay": {"servers": {"one": {"limits": {"cpu": 4, "processes": 500}}}}}`)
	o := patchbay(t, "", "call", target.HostName, "add", "a=1", "b=2", "--config", file)
	_, text, found := strings.Cut(o.stderr, "this system cannot enforce the limits: ")
	if !found {
		if o.status != exit.OK {
			t.Fatalf("a server with limits: %+v", o)
		}
		return nil
	}
	names, _, _ := strings.Cut(text, ": ")
	return strings.Split(names, ", ")
}
