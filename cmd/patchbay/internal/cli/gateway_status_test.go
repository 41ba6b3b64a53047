package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The status of a gateway is that of the one that runs with the same configuration, until it ends.
func TestGatewayStatusIsThatOfTheRunningGateway(t *testing.T) {
	freshVault(t)
	file := filepath.Join(t.TempDir(), "mcp.json")
	writeFile(t, file, demoServers(t, "one", "two"))
	o := patchbay(t, "", "gateway", "status", "--config", file)
	if o.status != exitUnreachable || !strings.Contains(o.stderr, "no gateway of this configuration is running") {
		t.Errorf("without a gateway: %+v", o)
	}
	g := startGateway(t, nil, "--config", file)
	o = mustRun(t, "gateway", "status", "--config", file)
	for _, want := range []string{"The gateway is running: process ", g.url, ".sock", "one\toff\t0 connections"} {
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
	if o = patchbay(t, "", "gateway", "status", "--config", other, "--json"); o.status != exitUnreachable {
		t.Errorf("another configuration: %+v", o)
	}
	second := startGateway(t, nil, "--config", file)
	if o = second.stop(); !strings.Contains(o.stderr, "a gateway of this configuration is running already") {
		t.Errorf("second gateway: %+v", o)
	}
	mustRun(t, "gateway", "status", "--config", file)
	g.stop()
	if o = patchbay(t, "", "gateway", "status", "--config", file); o.status != exitUnreachable {
		t.Errorf("after the end: %+v", o)
	}
}

// The failure of a start is not shown any more when the server is ready.
func TestStatusOfAServerThatIsReadyAgain(t *testing.T) {
	freshVault(t)
	t.Setenv(envStateDir, t.TempDir())
	file := filepath.Join(t.TempDir(), "mcp.json")
	writeFile(t, file, `{"mcpServers": {"one": `+seenEntry(t, filepath.Join(t.TempDir(), "seen"), `"TOKEN": "${secret:late}", `)+`}}`)
	startGateway(t, nil, "--config", file)
	if o := patchbay(t, "", "gateway", "restart", "one", "--config", file); o.status == exitOK {
		t.Fatalf("restart without the secret: %+v", o)
	}
	if o := mustRun(t, "gateway", "status", "--config", file, "--json"); !strings.Contains(o.stdout, "is not set") {
		t.Errorf("status without the secret: %s", o.stdout)
	}
	if o := patchbay(t, "s3cret-value\n", "gateway", "secret", "set", "late", "--config", file); o.status != exitOK {
		t.Fatalf("secret set: %+v", o)
	}
	mustRun(t, "gateway", "restart", "one", "--config", file)
	if o := mustRun(t, "gateway", "status", "--config", file, "--json"); strings.Contains(o.stdout, "is not set") ||
		!strings.Contains(o.stdout, `"ready"`) {
		t.Errorf("status of the ready server: %s", o.stdout)
	}
}
