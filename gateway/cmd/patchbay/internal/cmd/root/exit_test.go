package root

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/secrets"
	"github.com/patchbay-mcp/patchbay/gateway/internal/freeport"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// newStaticServer returns the URL of a web server with the same response to all requests.
func newStaticServer(t *testing.T, status int, contentType, body string) string {
	t.Helper()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(web.Close)
	return web.URL
}

// refusedURL returns a URL that refuses connections.
func refusedURL(t *testing.T) string {
	t.Helper()
	return "http://" + freeport.Addr(t)
}

func TestExitCodes(t *testing.T) {
	mcptest.NoLeaks(t)
	odd := listenHTTP(t, newOddServer())
	// withToolsResponse returns the URL of a server that responds to tools/list with a text.
	withToolsResponse := func(answer string) string {
		web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var m struct {
				ID     json.RawMessage
				Method string
			}
			_ = json.NewDecoder(r.Body).Decode(&m)
			w.Header().Set("Content-Type", "application/json")
			text := answer
			if m.Method == "server/discover" {
				text = `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","supportedVersions":["2026-07-28"],` +
					`"capabilities":{},"ttlMs":0,"cacheScope":"private"}}`
			}
			_, _ = io.WriteString(w, strings.Replace(text, `"id":1`, `"id":`+string(m.ID), 1))
		}))
		t.Cleanup(web.Close)
		return web.URL
	}
	for _, test := range []struct {
		name   string
		args   []string
		status int
	}{
		{"success", []string{"tools", odd}, exit.OK},
		{"connection refused", []string{"tools", refusedURL(t)}, exit.Unreachable},
		{"no such host", []string{"tools", "http://no-such-host.invalid/"}, exit.Unreachable},
		{"no such command", []string{"tools", "--", "./no-such-command"}, exit.Unreachable},
		{"command that exits", []string{"tools", "--", "go", "version"}, exit.Unreachable},
		{"web page", []string{"tools", newStaticServer(t, 200, "text/html", "<html>")}, exit.Unreachable},
		{"not found", []string{"tools", newStaticServer(t, 404, "text/plain", "no")}, exit.Unreachable},
		{"internal server error", []string{"tools", newStaticServer(t, 500, "text/plain", "no")}, exit.Unreachable},
		{"unauthorized", []string{"tools", newStaticServer(t, 401, "text/plain", "no")}, exit.Auth},
		{"forbidden", []string{"tools", newStaticServer(t, 403, "application/json", `{"error":"no"}`)}, exit.Auth},
		{"tool fails", []string{"call", odd, "fail"}, exit.Tool},
		{"no such tool", []string{"call", odd, "nope"}, exit.NotFound},
		{"no such prompt", []string{"get", odd, "nope"}, exit.NotFound},
		// Requirement: RES-12
		{"no such resource", []string{"read", odd, "x://nope"}, exit.NotFound},
		// Requirement: RES-12
		{"no such resource in 2025-03-26", []string{"read", "--revision", "2025-03-26", odd, "x://nope"}, exit.NotFound},
		{"no such method", []string{"rpc", odd, "nope"}, exit.NotFound},
		{"JSON-RPC error", []string{"call", odd, "refuse"}, exit.Failure},
		{"timeout", []string{"call", "--timeout", "200ms", odd, "wait"}, exit.Timeout},
		{"invalid list", []string{"tools",
			withToolsResponse(`{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","tools":5}}`)}, exit.Protocol},
		{"unknown result type", []string{"tools",
			withToolsResponse(`{"jsonrpc":"2.0","id":1,"result":{"resultType":"odd","tools":[]}}`)}, exit.Protocol},
		{"duplicate keys", []string{"tools", withToolsResponse(`{"jsonrpc":"2.0","id":1,"result":{"a":1,"a":2}}`)},
			exit.Protocol},
		{"no common revision", []string{"tools", newStaticServer(t, 400, "application/json",
			`{"jsonrpc":"2.0","id":null,"error":{"code":-32022,"message":"no",`+
				`"data":{"supported":["2031-01-01"],"requested":"2026-07-28"}}}`)}, exit.Protocol},
		{"no configuration file", []string{"tools", "--config", "/no/such/file", "x"}, exit.Usage},
		{"unknown flag", []string{"tools", "--no-such"}, exit.Usage},
		{"unknown verb", []string{"no-such"}, exit.Usage},
		{"no arguments", nil, exit.Usage},
		{"task without a verb", []string{"task"}, exit.Usage},
		{"skills without a verb", []string{"skills"}, exit.Usage},
		{"auth without a verb", []string{"auth"}, exit.Usage},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := patchbay(t, "", test.args...)
			if o.status != test.status || (o.status != exit.OK) != (o.stderr != "") {
				t.Errorf("exit code %d, want %d: %s", o.status, test.status, o.stderr)
			}
			if test.status == exit.OK || test.status == exit.Tool {
				return
			}
			var got struct{ Error exit.Report }
			o = patchbay(t, "", append([]string{"--json"}, test.args...)...)
			if err := json.Unmarshal([]byte(o.stdout), &got); err != nil || strings.Count(o.stdout, "\n") != 1 {
				t.Fatalf("standard output %q, want one line of JSON: %v", o.stdout, err)
			}
			if got.Error.Exit != test.status || got.Error.Kind != exit.Kinds[test.status] || got.Error.Message == "" {
				t.Errorf("error %+v, want exit %d, kind %s and a message", got.Error, test.status,
					exit.Kinds[test.status])
			}
			if !strings.Contains(patchbay(t, "", "help", "exit-codes").stdout, got.Error.Kind) {
				t.Errorf("help exit-codes does not contain %q", got.Error.Kind)
			}
		})
	}
}

func TestInterruptEndsEveryWait(t *testing.T) {
	mcptest.NoLeaks(t)
	url := listenHTTP(t, newOddServer())
	stalled := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
	}))
	defer stalled.Close()
	for name, test := range map[string]struct {
		args []string
		when string // on standard error
		rest string // of the message
	}{
		"a call": {[]string{"call", "-v", url, "wait"}, "→ tools/call",
			"; the server may have run tools/call"},
		"connecting":        {[]string{"tools", "-v", stalled.URL}, "→ server/discover", ""},
		"listening":         {[]string{"listen", url}, "listening", ""},
		"reading arguments": {[]string{"call", "-v", url, "echo", "-"}, "tools/list result", ""},
		"a question": {[]string{"call", url, "form"}, "text:",
			"; the server may have run tools/call"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			stdin, keyboard := io.Pipe()
			defer keyboard.Close()
			var stdout bytes.Buffer
			p := newRun(stdin, &stdout, io.Discard)
			p.IO.Interactive = true
			stderr := &trigger{when: test.when, then: cancel}
			p.IO.Err.W = stderr
			if status := runCommandLine(ctx, p, test.args); status != exit.Interrupted {
				t.Errorf("exit code %d, want %d", status, exit.Interrupted)
			}
			if want := "patchbay: interrupted" + test.rest + "\n"; !strings.Contains(stderr.text(), want) {
				t.Errorf("standard error %q, want %q", stderr.text(), want)
			}
		})
	}
}

// A trigger calls a function when a text has been written.
type trigger struct {
	when string
	then func()

	mu   sync.Mutex // guards the field below: a connection that was given up ends in the background
	seen string
}

func (w *trigger) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen += string(p)
	if strings.Contains(w.seen, w.when) {
		w.then()
	}
	return len(p), nil
}

func (w *trigger) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.seen
}

func TestOutputErrorFailsTheCommand(t *testing.T) {
	url := listenHTTP(t, newServer("demo"))
	for _, args := range [][]string{{"tools", url}, {"tools", "--json", url},
		{"call", url, "add", "a=1", "b=2"}, {"version"}} {
		var stderr bytes.Buffer
		if status := Run(t.Context(), args, strings.NewReader(""), fullDisk{}, &stderr); status != exit.Failure ||
			!strings.Contains(stderr.String(), "disk") {
			t.Errorf("%q: got %d, %s, want %d and the error", args, status, &stderr, exit.Failure)
		}
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("the disk is full") }

func TestHelpHasEveryTopic(t *testing.T) {
	for args, want := range map[string]string{
		"help":            "Usage",
		"--help":          "Usage",
		"help exit-codes": "auth_required",
		"help json":       "resource_updated",
		"help config":     "mcpServers",
		"help answers":    "elicitation",
		"help auth":       secrets.EnvDir,
		"help auth login": "--client-secret-file",
		"help arguments":  "key:=json",
		"call --help":     "Examples",
		"version":         "patchbay ",
		"--version":       "patchbay ",
		"completion bash": "patchbay",
		"version --json":  `"revisions":["2026-07-28"`,
	} {
		o := patchbay(t, "", strings.Fields(args)...)
		if o.status != exit.OK || o.stderr != "" {
			t.Errorf("%s: got %d, %s, want %d", args, o.status, o.stderr, exit.OK)
		}
		if !strings.Contains(o.stdout, want) {
			t.Errorf("%s: stdout does not contain %q: %s", args, want, o.stdout)
		}
	}
	root := rootCommand(newRun(strings.NewReader(""), io.Discard, io.Discard))
	for _, verb := range root.Commands() {
		if verb.Runnable() && verb.Name() != "help" && verb.Example == "" {
			t.Errorf("%s has no example", verb.Name())
		}
	}
	for _, args := range []string{"call", "tools", "help arguments", "help json", "help config", "help answers",
		"help exit-codes"} {
		for line := range strings.Lines(patchbay(t, "", append(strings.Fields(args), "--help")...).stdout) {
			if n := len([]rune(line)); n > 140 {
				t.Errorf("%s: a line has %d characters, want at most 140: %s", args, n, line)
			}
		}
	}
}

func TestExitCodeOfDeniedRequests(t *testing.T) {
	gateway := mcp.NewServer("gateway", "1.0.0", nil)
	run := func(_ context.Context, in struct{ Code string }) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{IsError: true, Meta: map[string]any{exit.MetaGatewayError: map[string]any{"code": in.Code}}}, nil
	}
	mcp.AddTool(gateway, &mcp.Tool{Name: "run"}, run)
	mcp.AddPrompt(gateway, &mcp.Prompt{Name: "denied"}, func(context.Context, struct{}) (string, error) {
		e := mcp.Errorf(exit.CodeGateway, "denied by rule x")
		e.Data = json.RawMessage(`{"code":"denied"}`)
		return "", e
	})
	url := listenHTTP(t, gateway)
	for _, test := range []struct {
		args   []string
		status int
	}{
		{[]string{"call", url, "run", "Code=denied"}, exit.Denied},
		{[]string{"call", url, "run", "Code=timeout"}, exit.Tool},
		{[]string{"get", url, "denied"}, exit.Denied},
		{[]string{"get", "--json", url, "denied"}, exit.Denied},
	} {
		if o := patchbay(t, "", test.args...); o.status != test.status {
			t.Errorf("%q: exit code %d, want %d: %s", test.args, o.status, test.status, o.stderr)
		}
	}
}
