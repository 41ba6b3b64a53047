package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/internal/freeport"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// Processes report a process with another configuration, whose secrets they do not compare. A reload at a process
// is a reload of all processes.
func TestGatewaysWithAStoreCompareConfigurations(t *testing.T) {
	freshState(t)
	_, store := startRedis(t)
	demo := freeport.Addr(t)
	serveAt(t, demo, "--tasks", "memory")
	var seen atomic.Pointer[string] // the secret of the last request
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: demo})
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if secret := r.Header.Get("X-File"); r.Method == http.MethodPost {
			seen.Store(&secret)
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(upstream.Close)
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	secret := write("secret", "first")
	config := func(variable, literal string) string {
		return fmt.Sprintf(`{"mcpServers": {"demo": {"url": "%s/mcp", "headers": {
			"Authorization": "Bearer ${%s:-x}", "X-Key": %q, "X-File": "${file:%s}"}}},
			"patchbay": {"store": [%q]}}`, upstream.URL, variable, literal, secret, store)
	}
	file := write("mcp.json", config("TOKEN", "hunter2"))
	f := startFleet(t, "gateway", "--config", file)
	addr, ops := freeport.Addr(t), freeport.Addr(t)
	start(t, "gateway", "--config", write("other.json", config("OLD_TOKEN", "hunter3")), "--addr", addr, "--ops", ops)
	report := func(at string, want ...string) {
		t.Helper()
		eventually(t, func() error {
			body, err := getURL("http://" + at)
			for _, part := range want {
				if err == nil && !strings.Contains(body, part) {
					err = fmt.Errorf("%s is %s, want %s", at, body, part)
				}
			}
			return err
		})
	}
	for _, at := range f.ops {
		report(at+"/readyz?verbose", `"processes":4,"otherConfiguration":[{"name":"`, ` `+addr+`","started":"`)
		report(at+"/metrics", `patchbay_gateway_processes{`, `patchbay_configuration="other"} 1`)
	}
	out := mustRun(t, "gateway", "status", "--config", file)
	if !strings.Contains(out, "Processes of the gateway: 4, with another configuration: 1\n") ||
		!strings.Contains(out, addr+": another configuration since 20") {
		t.Errorf("the status is %s", out)
	}
	report(ops+"/readyz?verbose", `"otherConfiguration"`)
	write("other.json", config("TOKEN", "hunter3"))
	report(ops+"/readyz?verbose", `"replicas":{"processes":4}`)
	write("other.json", strings.Replace(config("TOKEN", "hunter3"), `"url"`, `"disabled": true, "url"`, 1))
	report(ops+"/readyz?verbose", `"otherConfiguration"`)
	write("other.json", config("TOKEN", "hunter3"))
	for _, at := range append(f.ops, ops) {
		report(at+"/readyz?verbose", `"replicas":{"processes":4}`)
	}
	var created struct{ Key string }
	if err := json.Unmarshal([]byte(mustRun(t, "gateway", "keys", "new", "ann", "--all-servers", "--json", "--config",
		file)), &created); err != nil {
		t.Fatal(err)
	}
	c := f.client(t, "2026-07-28", http.Header{"Authorization": {"Bearer " + created.Key}})
	use := func(want string) error { // at each process
		for range f.processes {
			if _, err := mcp.CallTool[int](t.Context(), c.Client, "increment", map[string]any{}); err != nil {
				return err
			}
			if got := *seen.Load(); got != want {
				return fmt.Errorf("a process used the secret %q, want %q", got, want)
			}
		}
		return nil
	}
	eventually(t, func() error { return use("first") })
	write("secret", "second")
	if err := use("first"); err != nil {
		t.Errorf("before the reload: %v", err)
	}
	mustRun(t, "gateway", "reload", "--config", file)
	eventually(t, func() error { return use("second") })
}
