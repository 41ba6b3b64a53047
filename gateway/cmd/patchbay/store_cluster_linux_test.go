package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/internal/freeport"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// clusterFile writes the configuration of a gateway with a server that runs once.
func clusterFile(t *testing.T, settings string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "mcp.json")
	text := fmt.Sprintf(`{"mcpServers": {"demo": {"command": %q, "args": ["serve", "--stdio"]}},
		"patchbay": {"servers": {"demo": {"share": "cluster"}}, %s}}`, built, settings)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A clusterGateway is a gateway of a cluster, with a client of its own.
type clusterGateway struct {
	*process
	addr string
}

func startCluster(t *testing.T, store string, n int) (all []*clusterGateway) {
	t.Helper()
	for range n {
		file := clusterFile(t, fmt.Sprintf(`"store": [%q], "cluster": {"listen": %q}`, store, freeport.Addr(t)))
		g := &clusterGateway{addr: freeport.Addr(t)}
		g.process = start(t, "gateway", "--config", file, "--addr", g.addr, "--insecure-no-auth")
		all = append(all, g)
	}
	for _, g := range all {
		eventually(t, func() error { return dial(g.addr) })
	}
	return all
}

// increment calls the server through a gateway, and returns how often the instance was called.
func (g *clusterGateway) increment(t *testing.T) (int, error) {
	t.Helper()
	c, err := mcp.Connect(t.Context(), mcphttp.NewTransport("http://"+g.addr+endpoint, nil), nil)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	return mcp.CallTool[int](t.Context(), c, "increment", map[string]any{})
}

func (g *clusterGateway) want(t *testing.T, want int) {
	t.Helper()
	eventually(t, func() error {
		got, err := g.increment(t)
		if err == nil && got != want {
			t.Fatalf("got call %d of the instance, want %d", got, want)
		}
		return err
	})
}

// Three gateways use one instance. When its gateway shuts down, is killed, or is stopped for longer than a lease, the
// server starts at another gateway, and the gateway that was stopped uses the new instance.
func TestServerOfSeveralGatewaysRunsOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for the end of leases")
	}
	freshState(t)
	_, store := startRedis(t)
	all := startCluster(t, store, 4)
	for n := range 6 {
		all[n%3].want(t, n+1)
	}
	all[0].checkExit(0, all[0].signal(syscall.SIGTERM), 30*time.Second)
	all[1].want(t, 1)
	all[2].want(t, 2)
	all[1].kill()
	all[2].want(t, 1)
	all[3].want(t, 2)
	all[2].signal(syscall.SIGSTOP)
	all[3].want(t, 1)
	all[2].signal(syscall.SIGCONT)
	all[2].want(t, 2)
	all[3].want(t, 3)
}

// A gateway that ends finishes the call of another gateway, before the server starts there.
func TestGatewayFinishesTheCallsOfOthers(t *testing.T) {
	freshState(t)
	_, store := startRedis(t)
	all := startCluster(t, store, 2)
	all[0].want(t, 1)
	all[1].want(t, 2)
	c, err := mcp.Connect(t.Context(), mcphttp.NewTransport("http://"+all[1].addr+endpoint, nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	end := sync.OnceFunc(func() { // while the call runs
		if err := all[0].Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
	})
	ctx := mcp.WithCallOptions(t.Context(), mcp.CallOptions{Progress: func(mcp.ProgressUpdate) { end() }})
	got, err := mcp.CallTool[string](ctx, c, "count", map[string]any{"steps": 20})
	if err != nil || got != "counted to 20" {
		t.Errorf("got %q and error %v, want the result of the call", got, err)
	}
	all[0].checkExit(0, time.Now(), 30*time.Second)
	all[1].want(t, 1)
}

// The address for other gateways requires a store in Redis.
func TestClusterRequiresSettings(t *testing.T) {
	freshState(t)
	for settings, want := range map[string]string{
		fmt.Sprintf(`"cluster": {"listen": %q}`, freeport.Addr(t)): `requires a store in Redis`,
		`"cluster": {"listen": "0.0.0.0:1"}`:                       `want host:port, such as "gateway-1:1"`,
	} {
		_, stderr, status := run(t, "gateway", "--config", clusterFile(t, settings), "--addr", freeport.Addr(t))
		if status == 0 || !strings.Contains(stderr, want) {
			t.Errorf("%s: got status %d, %s", settings, status, stderr)
		}
	}
}
