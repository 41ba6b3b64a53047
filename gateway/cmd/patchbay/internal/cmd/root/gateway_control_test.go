package root

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/gateway/status"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/hosting"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/secrets"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/userdir"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// The commands that control a gateway act on the one that runs, and fail with exit code 3 without one.
func TestGatewayIsControlledThroughItsSocket(t *testing.T) {
	mcptest.NoLeaks(t)
	freshVault(t)
	file := filepath.Join(t.TempDir(), "mcp.json")
	noisy := strings.Replace(demoEntry(t), `"args":[]`, `"args":["-no-such-flag"]`, 1)
	noisy = strings.Replace(noisy, serveEnv, "UNUSED", 1)
	one := strings.TrimPrefix(strings.TrimSuffix(demoServers(t, "one"), "}}"), `{"mcpServers": {`)
	writeFile(t, file, `{"mcpServers": {"noisy": `+noisy+`, `+one+`}}`)
	for _, verb := range [][]string{{"restart", "one"}, {"stop"}, {"stop", "one"}, {"reload"}, {"logs", "one"}} {
		o := patchbay(t, "", append(append([]string{"gateway"}, verb...), "--config", file)...)
		if o.status != exit.Unreachable || !strings.Contains(o.stderr, "no gateway of this configuration is running") {
			t.Errorf("%q without a gateway: %+v", verb, o)
		}
	}
	g := startGateway(t, nil, "--config", file)
	gw := func(words ...string) outcome {
		return patchbay(t, "", append(append([]string{"gateway"}, words...), "--config", file)...)
	}
	if o := gw("restart", "one"); o.status != exit.OK || o.stdout != "Server one: ready\n" {
		t.Errorf("restart: %+v", o)
	}
	if o := gw("stop", "one", "--json"); o.status != exit.OK || !strings.Contains(o.stdout, `"state":"stopped"`) {
		t.Errorf("stop: %+v", o)
	}
	if o := gw("restart", "two"); o.status != exit.NotFound || !strings.Contains(o.stderr, `unknown server "two": must be one of noisy, one`) {
		t.Errorf("restart of an unknown server: %+v", o)
	}
	if o := gw("restart", "noisy"); o.status != exit.Unreachable {
		t.Errorf("restart of a server that does not start: %+v", o)
	}
	if o := gw("logs", "noisy"); o.status != exit.OK || !strings.Contains(o.stdout, "no-such-flag") {
		t.Errorf("logs: %+v", o)
	}
	var line status.LogLine
	o := gw("logs", "noisy", "--json", "-n", "1")
	if err := json.Unmarshal([]byte(o.stdout), &line); err != nil || line.Number < 1 || line.Instance == "" {
		t.Errorf("logs --json: %+v, %v", o, err)
	}
	writeFile(t, file, `{"mcpServers": {`+one+`}}`)
	if o := gw("reload"); o.status != exit.OK || !strings.Contains(o.stdout, "removed noisy") &&
		!strings.Contains(o.stdout, "nothing has changed") { // the gateway has seen the file
		t.Errorf("reload: %+v", o)
	}
	writeFile(t, file, `{"mcpServers": `)
	if o := gw("reload"); o.status != exit.Failure || !strings.Contains(o.stderr, "the previous configuration stays") {
		t.Errorf("reload of an invalid file: %+v", o)
	}
	if o := gw("status"); !strings.Contains(o.stdout, "Configuration: not used since ") {
		t.Errorf("status with an invalid file: %+v", o)
	}
	writeFile(t, file, `{"mcpServers": {`+one+`}}`)
	if o := gw("reload"); o.status != exit.OK {
		t.Errorf("reload of the file as it was: %+v", o)
	}
	if o := gw("status"); strings.Contains(o.stdout, "Configuration:") {
		t.Errorf("status with a valid file: %+v", o)
	}
	if o := gw("stop"); o.status != exit.OK || !strings.HasPrefix(o.stdout, "The gateway has ended") {
		t.Errorf("stop: %+v", o)
	}
	if o := g.stop(); o.status != exit.OK || !strings.Contains(o.stderr, "the configuration is valid again") {
		t.Errorf("the gateway: %+v", o)
	}
}

// The target @ is the running gateway, also for commands of every kind.
func TestTargetOfTheRunningGateway(t *testing.T) {
	mcptest.NoLeaks(t)
	freshVault(t)
	file := filepath.Join(t.TempDir(), "mcp.json")
	writeFile(t, file, demoServers(t, "one", "two"))
	o := patchbay(t, "", "tools", "@", "--config", file)
	if o.status != exit.Unreachable || !strings.Contains(o.stderr, "no gateway of this configuration is running") {
		t.Errorf("without a gateway: %+v", o)
	}
	if strings.Contains(o.stderr, "connect to") || strings.Contains(o.stderr, "disconnected") {
		t.Errorf("without a gateway: %+v", o)
	}
	startGateway(t, nil, "--config", file)
	eventually(t, "the tools of the second server are listed", func() bool {
		return strings.Contains(mustRun(t, "tools", "@", "--config", file).stdout, "two__add")
	})
	for _, revision := range []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"} {
		o = mustRun(t, "call", "@", "two__add", "a=20", "b=22", "--config", file, "--revision", revision)
		if o.stdout != "42\n" {
			t.Errorf("call with %s: %+v", revision, o)
		}
	}
	if o = patchbay(t, "", "tools", "@", "--config", file, "--header", "A: b"); o.status != exit.Usage {
		t.Errorf("with --header: %+v", o)
	}
}

// stdioGateway connects to `gateway --stdio` in a process of its own, which works in a directory.
func stdioGateway(t *testing.T, dir, file, revision string, words ...string) (*mcp.Client, *messages) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := mcp.Command(exe, append([]string{"gateway", "--stdio", "--config", file}, words...)...)
	command.Dir = dir
	for _, name := range []string{userdir.EnvState, secrets.EnvDir, "HOME", "DBUS_SESSION_BUS_ADDRESS"} {
		command.Env = append(command.Env, name+"="+os.Getenv(name))
	}
	command.Env = append(command.Env, mainEnv+"=1", "GORACE=atexit_sleep_ms=0")
	printed := &messages{Writer: io.Discard}
	command.Stderr, command.Once = printed, true
	c, err := mcp.Connect(t.Context(), command, &mcp.ClientOptions{Revision: revision})
	if err != nil {
		t.Fatalf("connect: %v\n%s", err, printed.text)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c, printed
}

// attachedClients returns how many clients are attached to the running gateway.
func attachedClients(t *testing.T, file string) int {
	t.Helper()
	var status hosting.GatewayStatus
	o := mustRun(t, "gateway", "status", "--json", "--config", file)
	if err := json.Unmarshal([]byte(o.stdout), &status); err != nil {
		t.Fatal(err)
	}
	return status.Attached
}

// A client of `gateway --stdio` uses the servers of the running gateway. They run in its directory: a
// client in another one has others. It ends with an error when the gateway ends.
func TestStdioAttachesToTheRunningGateway(t *testing.T) {
	freshVault(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "mcp.json")
	writeFile(t, file, strings.Replace(demoServers(t, "one"), `"env":{`, `"env":{"WHERE":"${workspaceFolder}",`, 1))
	g := startGateway(t, nil, "--config", file)
	workspaces := []string{t.TempDir(), t.TempDir()}
	var printed []*messages
	for n, revision := range []string{"2025-11-25", "2026-07-28"} {
		for range 2 {
			c, p := stdioGateway(t, workspaces[n], file, revision)
			printed = append(printed, p)
			res, err := c.CallTool(t.Context(), "add", map[string]any{"a": 20, "b": 22})
			if err != nil || res.Text() != "42" {
				t.Fatalf("call: %+v, %v", res, err)
			}
		}
	}
	if n := attachedClients(t, file); n != 4 {
		t.Errorf("%d clients are attached, want 4", n)
	}
	var one struct{ Instances []struct{ PID int } }
	o := mustRun(t, "gateway", "status", "--json", "--config", file)
	var status struct{ Servers []json.RawMessage }
	if err := json.Unmarshal([]byte(o.stdout), &status); err != nil || json.Unmarshal(status.Servers[0], &one) != nil {
		t.Fatal(err)
	}
	if len(one.Instances) != 2 {
		t.Errorf("%d instances, want one for each directory", len(one.Instances))
	}
	if runtime.GOOS == "linux" {
		var found []string
		for _, i := range one.Instances {
			cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", i.PID))
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, cwd)
		}
		slices.Sort(found)
		slices.Sort(workspaces)
		if !slices.Equal(found, workspaces) {
			t.Errorf("servers run in %q, want %q", found, workspaces)
		}
	}
	own, _ := stdioGateway(t, workspaces[0], file, "", "--own")
	if _, err := mcp.Collect(own.Tools(t.Context())); err != nil {
		t.Error(err)
	}
	if n := attachedClients(t, file); n != 4 {
		t.Errorf("%d clients are attached after a client with --own, want 4", n)
	}
	g.stop()
	for _, p := range printed {
		p.wait(t, "the gateway that served this client has ended", 1)
	}
	after, _ := stdioGateway(t, workspaces[0], file, "") // serves itself
	if res, err := after.CallTool(t.Context(), "add", map[string]any{"a": 1, "b": 2}); err != nil || res.Text() != "3" {
		t.Errorf("without a gateway: %+v, %v", res, err)
	}
}

// A client of `gateway --stdio` that ends its input has the answers to its requests, and no error.
func TestAttachedClientEnds(t *testing.T) {
	mcptest.NoLeaks(t)
	freshVault(t)
	file := filepath.Join(t.TempDir(), "mcp.json")
	writeFile(t, file, demoServers(t, "one"))
	startGateway(t, nil, "--config", file)
	for range 20 {
		o := patchbay(t, `{"jsonrpc":"2.0","id":1,"method":"ping","params":{}}`+"\n", "gateway", "--stdio", "--config", file)
		if o.status != exit.OK || o.stderr != "" || !strings.Contains(o.stdout, `"result":{}`) {
			t.Fatalf("%+v", o)
		}
	}
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for begun := time.Now(); attachedClients(t, file) != 0; <-look.C {
		if time.Since(begun) > time.Minute {
			t.Fatal("clients are attached after the end of all")
		}
	}
}
