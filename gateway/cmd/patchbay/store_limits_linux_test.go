package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// A heldServer counts the calls that run until the test releases them.
type heldServer struct {
	url       string
	now, most atomic.Int32
	held      atomic.Int32 // calls of the tool hold
	release   chan struct{}
}

func serveHeld(t *testing.T) *heldServer {
	t.Helper()
	h := &heldServer{release: make(chan struct{})}
	s := mcp.NewServer("held", "1", nil)
	for _, name := range []string{"rated", "alone", "free"} {
		mcp.AddTool(s, &mcp.Tool{Name: name}, func(context.Context, struct{}) (string, error) { return name, nil })
	}
	mcp.AddTool(s, &mcp.Tool{Name: "hold"}, func(ctx context.Context, _ struct{}) (string, error) {
		h.held.Add(1)
		for n := h.now.Add(1); ; {
			most := h.most.Load()
			if n <= most || h.most.CompareAndSwap(most, n) {
				break
			}
		}
		defer h.now.Add(-1)
		select {
		case <-h.release:
		case <-ctx.Done():
		}
		return "held", ctx.Err()
	})
	handler := mcphttp.NewHandler(s, nil)
	server := httptest.NewServer(handler)
	t.Cleanup(func() {
		_ = handler.Shutdown(context.Background())
		server.Close()
	})
	h.url = server.URL
	return h
}

// admitted sends calls at once and returns how many were admitted.
func (c *fleetClient) admitted(t *testing.T, tool string, calls int) int {
	t.Helper()
	var n atomic.Int32
	var work sync.WaitGroup
	for range calls {
		work.Go(func() {
			res, err := c.CallTool(t.Context(), tool, nil)
			if err != nil {
				t.Error(err)
			} else if !res.IsError {
				n.Add(1)
			}
		})
	}
	work.Wait()
	return int(n.Load())
}

// awaitGateways waits until each of n gateways has counted all of them, which the renewal of its entry in Redis does.
func awaitGateways(t *testing.T, store string, n int) {
	t.Helper()
	var first map[string]string
	eventually(t, func() error {
		now, err := gatewaysOf(store)
		if err != nil || len(now) != n {
			first = nil
			return fmt.Errorf("the store contains the gateways %v, %v, want %d", now, err, n)
		}
		if first == nil {
			first = now
		}
		for name, expiry := range now {
			if first[name] == expiry {
				return fmt.Errorf("gateway %s has not counted the others", name)
			}
		}
		return nil
	})
}

// gatewaysOf returns when the entries of gateways expire.
func gatewaysOf(store string) (expiry map[string]string, err error) {
	conn, err := net.Dial("tcp", strings.TrimPrefix(store, "redis://"))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if _, err := fmt.Fprint(conn, "ZRANGE patchbay:processes 0 -1 WITHSCORES\r\n"); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(conn)
	read := func() string {
		lines.Scan()
		return lines.Text()
	}
	n, err := strconv.Atoi(strings.TrimPrefix(read(), "*"))
	expiry = map[string]string{}
	for ; n > 0; n -= 2 {
		read() // the length
		name := read()
		read()
		expiry[name] = read()
	}
	return expiry, errors.Join(err, lines.Err())
}

// Three processes admit together what their limits allow: a rate, a budget, and the calls that run at a server.
// When one is killed, the others get its share; without Redis, each admits its own.
//
// Requirement: HOST-06
func TestGatewaysWithAStoreShareLimits(t *testing.T) {
	freshState(t)
	redis, store := startRedis(t)
	server := serveHeld(t)
	file := filepath.Join(t.TempDir(), "mcp.json")
	config := fmt.Sprintf(`{"mcpServers": {"held": {"url": %q}}, "patchbay": {"store": [%q],
		"limits": {"callsPerDay": 64}, "servers": {"held": {"concurrency": 6, "queueTimeout": "2m", "maxTimeout": "5m",
		"timeout": "5m", "toolRates": {"rated": "9/h", "alone": "6/h"}}}}}`, server.url, store)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	f := startFleet(t, "gateway", "--config", file)
	var created struct{ Key string }
	out := mustRun(t, "gateway", "keys", "new", "ann", "--all-servers", "--json", "--config", file)
	if err := json.Unmarshal([]byte(out), &created); err != nil {
		t.Fatal(err)
	}
	c := f.client(t, "2026-07-28", http.Header{"Authorization": {"Bearer " + created.Key}})
	used := c.admitted(t, "rated", 30)
	if used != 9 {
		t.Errorf("%d calls were admitted, want 9", used)
	}

	awaitGateways(t, store, 3)
	var work sync.WaitGroup
	for range 12 {
		work.Go(func() { _, _ = c.CallTool(t.Context(), "hold", nil) }) // a process that is killed loses its calls
	}
	running := func() error {
		if n := server.now.Load(); n != 6 {
			return fmt.Errorf("%d calls run, want 6", n)
		}
		return nil
	}
	eventually(t, running)
	f.processes[0].kill()
	eventually(t, func() error {
		if n := server.now.Load(); n != 4 {
			return fmt.Errorf("%d calls run after a process was killed, want 4", n)
		}
		return nil
	})
	eventually(t, running)
	if n := server.most.Load(); n != 6 {
		t.Errorf("%d calls ran at once, want 6", n)
	}
	close(server.release)
	work.Wait()
	used += int(server.held.Load()) // without the calls that waited in the killed process

	redis.kill()
	eventually(t, func() error { return f.hasStore(1, "unavailable") })
	alone := 0
	for range 30 { // one by one: the proxy looks for a process that listens
		alone += c.admitted(t, "alone", 1)
	}
	if alone != 6 { // 3 at each of two processes
		t.Errorf("%d calls were admitted without Redis, want 6", alone)
	}
	used += alone
	redis.again()
	eventually(t, func() error { return f.hasStore(1, "available") })
	awaitGateways(t, store, 2)
	for range 64 {
		used += c.admitted(t, "free", 1)
	}
	if used > 64 || used < 62 { // the killed process held at most 2 calls
		t.Errorf("%d calls were admitted in all, want 62 to 64", used)
	}
}
