package gateway_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

const (
	adminBase   = "http://localhost/admin/v1"
	adminConfig = `{"mcpServers": {"fs": {"command": "fs"}}}`
)

// sendInProcess sends a request without a body, and returns the status and the body.
func sendInProcess(t *testing.T, c *http.Client, method, path string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, adminBase+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

func TestAdminClientNamesItsPrincipal(t *testing.T) {
	mcptest.NoLeaks(t)
	a := newAdmin(t, adminConfig, nil)
	for name, p := range map[string]*mcp.Principal{"ann": {Subject: "ann", Issuer: "https://idp.example"}, "": nil} {
		for path, want := range map[string]int{"/servers/fs:restart": http.StatusOK,
			"/servers/none:stop": http.StatusNotFound} {
			a.mu.Lock()
			a.records = nil
			a.mu.Unlock()
			status, text := sendInProcess(t, a.gateway.AdminClient(p), http.MethodPost, path)
			if status != want {
				t.Errorf("%s by %q: got %d, %s, want %d", path, name, status, text, want)
			}
			a.mu.Lock()
			caller, count := "", 0
			for i := range a.records {
				if r := &a.records[i]; r.Event == event.Admin {
					count++
					if r.Caller != nil {
						caller = r.Caller.Principal.Subject
					}
				}
			}
			a.mu.Unlock()
			if caller != name || count == 0 {
				t.Errorf("%s by %q: got %d records of the caller %q", path, name, count, caller)
			}
		}
	}
}

// Nobody but the local user adds command lines and addresses to the configuration.
func TestAdminClientOfPrincipalAddsNoCommandLines(t *testing.T) {
	mcptest.NoLeaks(t)
	writes := 0
	a := newAdmin(t, adminConfig, func(_ *host.Options, o *gateway.AdminOptions) {
		o.SetConfig = func(_ context.Context, c *gateway.ConfigChange) (*gateway.ConfigResult, error) {
			if !c.DryRun {
				writes++
			}
			return &gateway.ConfigResult{Commands: [][]string{{"https://evil.example", "(webhook)"}}}, nil
		}
	})
	for i, p := range []*mcp.Principal{{Subject: "ann"}, nil} {
		body := strings.NewReader(`{"text": "{}", "version": "1"}`)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, adminBase+"/config", body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		res, err := a.gateway.AdminClient(p).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(res.Body)
		res.Body.Close()
		isRefused := res.StatusCode == http.StatusForbidden && bytes.Contains(text, []byte("only the user of"))
		if err != nil || isRefused != (p != nil) || writes != i {
			t.Errorf("principal %v: got %d, %s, %v, %d writes", p, res.StatusCode, text, err, writes)
		}
	}
}

// A stream ends when its body is closed, its request is cancelled, or the gateway shuts down.
func TestAdminClientStreams(t *testing.T) {
	mcptest.NoLeaks(t)
	for name, end := range map[string]func(cancel context.CancelFunc, res *http.Response, g *gateway.Gateway){
		"close":    func(_ context.CancelFunc, res *http.Response, _ *gateway.Gateway) { _ = res.Body.Close() },
		"cancel":   func(cancel context.CancelFunc, _ *http.Response, _ *gateway.Gateway) { cancel() },
		"shutdown": func(_ context.CancelFunc, _ *http.Response, g *gateway.Gateway) { _ = g.Shutdown(t.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			a := newAdmin(t, adminConfig, nil)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, adminBase+"/events?types=server", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			res, err := a.gateway.AdminClient(nil).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			if status, _ := sendInProcess(t, a.gateway.AdminClient(nil), http.MethodPost, "/servers/fs:restart"); status !=
				http.StatusOK {
				t.Fatalf("restart: got %d", status)
			}
			lines := bufio.NewScanner(res.Body)
			for lines.Scan() && !strings.HasPrefix(lines.Text(), "data: ") {
			}
			if !strings.Contains(lines.Text(), `"server":"fs"`) {
				t.Errorf("got %q, want an event of fs", lines.Text())
			}
			end(cancel, res, a.gateway)
			for lines.Scan() { // until the end
			}
		})
	}
}

func TestAdminClientRefusesOtherHosts(t *testing.T) {
	a := newAdmin(t, adminConfig, nil)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://evil.example/admin/v1/status", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := a.gateway.AdminClient(nil).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusForbidden {
		t.Errorf("got %d, want 403", res.StatusCode)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = a.gateway.AdminClient(nil).Do(req.WithContext(ctx))
	if err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of the context: got %v", err)
	}
}

// A panic of a handler is a response and a line of the log. It must not end the process.
func TestAdminClientSurvivesAPanic(t *testing.T) {
	mcptest.NoLeaks(t)
	for name, prepare := range map[string]func(*host.Options, *gateway.AdminOptions){
		"handler": func(_ *host.Options, o *gateway.AdminOptions) {
			o.Config = func(context.Context) ([]gateway.ConfigFile, error) { panic("out of paper") }
		},
		"record": func(o *host.Options, _ *gateway.AdminOptions) { o.Recorder = panicking{} },
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			logger := slog.New(slog.NewTextHandler(&log, nil))
			a := newAdminWith(t, adminConfig, prepare, gateway.Options{Logger: logger})
			method, path := http.MethodGet, "/config"
			if name == "record" {
				method, path = http.MethodPost, "/grants/none:revoke"
			}
			for range 2 {
				status, text := sendInProcess(t, a.gateway.AdminClient(nil), method, path)
				if status != http.StatusInternalServerError || !strings.Contains(text, `"code":"internal"`) {
					t.Errorf("got %d, %s, want 500", status, text)
				}
			}
			if text := log.String(); !strings.Contains(text, "out of paper") || !strings.Contains(text, path) {
				t.Errorf("log %q, want the panic and the path", text)
			}
		})
	}
}

// A panicking Recorder panics for each record of an action of an operator.
type panicking struct{}

func (panicking) Record(r *event.Record) error {
	if r.Event == event.Admin {
		panic("out of paper")
	}
	return nil
}
