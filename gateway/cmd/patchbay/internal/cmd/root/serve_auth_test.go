package root

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/serve"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/connect"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/internal/freeport"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// An announcement is the standard output of a server. It ends with the line on how to stop it.
type announcement struct {
	mu    sync.Mutex
	text  bytes.Buffer
	ready chan struct{}
}

func (a *announcement) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.text.Write(p)
	if strings.Contains(a.text.String(), "Ctrl-C") {
		close(a.ready)
	}
	return len(p), nil
}

// startServer runs serve --auth demo. It returns the output and a function that stops it.
func startServer(t *testing.T, addr string) (output string, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out := &announcement{ready: make(chan struct{})}
	var stderr bytes.Buffer
	exited := make(chan int, 1)
	go func() {
		exited <- Run(ctx, []string{"serve", "--quiet", "--auth", "demo", "--addr", addr}, strings.NewReader(""), out, &stderr)
	}()
	select {
	case <-out.ready:
	case status := <-exited:
		t.Fatalf("serve exited with %d: %s", status, &stderr)
	}
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if status := <-exited; status != exit.OK || stderr.Len() > 0 {
				t.Errorf("serve exited with %d, want %d: %s", status, exit.OK, &stderr)
			}
		})
	}
	t.Cleanup(stop)
	return out.text.String(), stop
}

func TestPrintedCommandsWorkAndLoginSurvivesARestart(t *testing.T) {
	mcptest.NoLeaks(t)
	freshVault(t)
	cache := t.TempDir()
	for _, name := range []string{"XDG_CACHE_HOME", "HOME", "LocalAppData"} {
		t.Setenv(name, cache)
	}
	addr := freeport.Addr(t)
	output, stop := startServer(t, addr)
	ann := newUserBrowser(t)
	commands := 0
	for line := range strings.Lines(output) {
		command, _, _ := strings.Cut(strings.TrimSpace(line), "    ")
		args := strings.Fields(command)
		if len(args) < 2 || args[0] != "patchbay" || args[2] == "logout" {
			continue
		}
		commands++
		if o := withBrowser(t, ann, args[1:]...); o.status != exit.OK {
			t.Errorf("%s: got %d, %s, want %d", command, o.status, o.stderr, exit.OK)
		}
	}
	if n, _ := ann.opened(); commands != 3 || n != 2 {
		t.Errorf("%d commands were printed, want 3 and a logout, and opened %d pages, want 2: %s", commands, n, output)
	}
	stop()
	output, _ = startServer(t, addr)
	url := "http://" + addr + connect.Endpoint
	if !strings.Contains(output, url) || !strings.Contains(output, serve.DemoPassword) {
		t.Errorf("output %s, want %s and the password", output, url)
	}
	if o := patchbay(t, "", "call", url, "who_am_i"); o.status != exit.OK ||
		!strings.Contains(o.stdout, `"user":"ann"`) {
		t.Errorf("call after a restart: got %+v, want %d, ann", o, exit.OK)
	}
	if o := patchbay(t, "", "auth", "logout", url); o.status != exit.OK {
		t.Errorf("logout: got %+v, want %d", o, exit.OK)
	}
}

func TestProtectedDemoRejectsOtherHostHeaders(t *testing.T) {
	server := protected(t)
	for _, path := range []string{"/mcp", "/authorize", "/.well-known/oauth-authorization-server",
		"/.well-known/oauth-protected-resource/mcp"} {
		req, err := http.NewRequest(http.MethodGet, strings.TrimSuffix(server, connect.Endpoint)+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = "evil.example"
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != http.StatusMisdirectedRequest || err != nil ||
			res.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: got %s, %s, %v, want status 421 without CORS", path, res.Status, text, err)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}
