package root

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/connect"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// A target that never answers ends within --timeout in all, and the error says what is wrong.
func TestTimeoutBoundsConnecting(t *testing.T) {
	mcptest.NoLeaks(t)
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // else the end of the connection is not noticed
		<-r.Context().Done()
	}))
	defer silent.Close()
	targets := map[string][]string{"URL": {silent.URL + "/mcp"}}
	if cat, err := exec.LookPath("cat"); err == nil {
		targets["cat"] = []string{"--", cat}
	}
	const limit = 4 * time.Second // several seconds, so that a loaded machine does not take as long again
	var running sync.WaitGroup
	for name, target := range targets {
		for _, command := range []string{"tools", "ping", "call"} {
			args := append([]string{command, "--timeout", limit.String()}, target...)
			if command == "call" {
				args = append([]string{command, "--timeout", limit.String()}, "x")
				if args = append(args, target...); name == "URL" {
					args = []string{command, "--timeout", limit.String(), target[0], "x"}
				}
			}
			running.Go(func() {
				began := time.Now()
				o := patchbay(t, "", args...)
				took := time.Since(began)
				if name == "URL" && (took >= 2*limit || o.status != exit.Timeout) || took > limit+tooLate ||
					!strings.Contains(o.stderr, fmt.Sprintf("no answer of an MCP server within %v (--timeout)", limit)) &&
						o.status != exit.Unreachable && o.status != exit.NotFound {
					t.Errorf("%s %s: exit code %d after %v, %s", command, name, o.status, took, o.stderr)
				}
			})
		}
	}
	running.Wait()
}

// A list that never ends is bounded by --timeout, though a page arrives all the time.
func TestTimeoutBoundsAWholeList(t *testing.T) {
	page := 0
	url := listenHTTP(t, mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
		if req.Method == "server/discover" {
			return mcp.RawResult(`{"resultType":"complete","supportedVersions":["2026-07-28"],
				"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"}`), nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
		page++
		return &mcp.ListToolsResult{Tools: []*mcp.Tool{{Name: fmt.Sprint("t", page), InputSchema: json.RawMessage(`{"type":"object"}`)}},
			NextCursor: fmt.Sprint(page)}, nil
	}))
	var o outcome
	var took time.Duration
	limit := withLimit(600*time.Millisecond, func(limit time.Duration) bool {
		began := time.Now()
		o = patchbay(t, "", "tools", "--timeout", limit.String(), url)
		took = time.Since(began)
		return strings.Contains(o.stderr, "not complete within ") // the connection did not take all of it
	})
	if o.status != exit.Timeout || took > limit+tooLate ||
		!strings.Contains(o.stderr, fmt.Sprintf("not complete within %v (--timeout)", limit)) {
		t.Errorf("exit code %d after %v, %s", o.status, took, o.stderr)
	}
}

// What a server does not offer is an empty list.
func TestListOfWhatAServerDoesNotOffer(t *testing.T) {
	for _, revision := range []string{"2026-07-28", "2025-06-18"} {
		url := listenHTTP(t, mcp.NewServer("bare", "1", nil))
		for command, want := range map[string][2]string{
			"tools": {"tools", `{"tools":[]}`}, "prompts": {"prompts", `{"prompts":[]}`},
			"resources": {"resources", `{"resources":[]}`},
			"templates": {"resource templates", `{"resourceTemplates":[]}`},
		} {
			o := patchbay(t, "", command, url, "--revision", revision)
			if o.status != exit.OK || o.stdout != "" || o.stderr != "This server has no "+want[0]+".\n" {
				t.Errorf("%s: exit code %d, %q, %q", command, o.status, o.stdout, o.stderr)
			}
			if o := patchbay(t, "", command, "--json", url, "--revision", revision); o.status != exit.OK || o.stdout != want[1]+"\n" {
				t.Errorf("%s --json: exit code %d, %q", command, o.status, o.stdout)
			}
		}
		for _, command := range []string{"tools", "prompts"} {
			o := patchbay(t, "", command, url, "x", "--revision", revision)
			if o.status != exit.NotFound || !strings.Contains(o.stderr, `"x" (none available)`) {
				t.Errorf("%s x: exit code %d, %q", command, o.status, o.stderr)
			}
		}
	}
}

// A package runner may have to download the server, so connecting may take longer by default.
func TestPackageRunnersMayTakeLonger(t *testing.T) {
	for _, test := range []struct {
		command string
		timeout time.Duration
		want    time.Duration
	}{
		{"npx", connect.DefaultTimeout, 3 * time.Minute},
		{"/usr/bin/uvx", connect.DefaultTimeout, 3 * time.Minute},
		{"npx", 5 * time.Second, 5 * time.Second},
		{"npx", time.Hour, time.Hour},
		{"./server", connect.DefaultTimeout, connect.DefaultTimeout},
		{"", connect.DefaultTimeout, connect.DefaultTimeout},
	} {
		p := newRun(strings.NewReader(""), io.Discard, io.Discard)
		p.Flags.Timeout = test.timeout
		to := &target.Target{URL: "https://mcp.example/npx"}
		if test.command != "" {
			to = &target.Target{Command: []string{test.command, "-y"}}
		}
		if got := p.Client.StartLimit(to); got != test.want {
			t.Errorf("%q with --timeout %v: got %v, want %v", test.command, test.timeout, got, test.want)
		}
	}
}

// A server whose startTimeout is longer may take longer to connect, unless --timeout is set.
func TestStartTimeoutOfTheConfigurationApplies(t *testing.T) {
	for _, test := range []struct {
		command, startTimeout string
		timeout, want         time.Duration
	}{
		{"npx", "10m", connect.DefaultTimeout, 10 * time.Minute},
		{"npx", "90s", connect.DefaultTimeout, 3 * time.Minute},
		{"./server", "90s", connect.DefaultTimeout, 90 * time.Second},
		{"./server", "10s", connect.DefaultTimeout, connect.DefaultTimeout},
		{"./server", "10m", 5 * time.Second, 5 * time.Second},
		{"./server", "2000000h", connect.DefaultTimeout, 24 * time.Hour},
	} {
		file, err := config.Parse(fmt.Appendf(nil, `{"mcpServers": {"a": {"command": %q}}, "patchbay": {"servers":
			{"a": {"startTimeout": %q}}}}`, test.command, test.startTimeout))
		if err != nil {
			t.Fatal(err)
		}
		server, err := file.Server("a")
		if err != nil {
			t.Fatal(err)
		}
		p := newRun(strings.NewReader(""), io.Discard, io.Discard)
		p.Flags.Timeout = test.timeout
		opts := &mcp.ClientOptions{Timeout: test.timeout, Revision: mcptest.Modern}
		got := p.Client.LimitStart(target.ExpandedTarget(server, "mcp.json"), opts)
		if got != test.want || opts.Timeout != test.want || opts.ProbeTimeout != test.want {
			t.Errorf("%s with startTimeout %s and --timeout %v: got %v, %v and %v, want %v", test.command,
				test.startTimeout, test.timeout, got, opts.Timeout, opts.ProbeTimeout, test.want)
		}
	}
	path := t.TempDir() + "/mcp.json"
	writeFile(t, path, `{"mcpServers": {"a": {"command": "true"}},
		"patchbay": {"servers": {"a": {"startTimeout": "7m"}}}}`)
	o := patchbay(t, "", "doctor", "--json", "--config", path, "a")
	if !strings.Contains(o.stdout, "wait up to 7m0s") {
		t.Errorf("doctor: got %s %s, want the limit of the configuration", o.stdout, o.stderr)
	}
}

// If a server exits at its start, the error names first the variables that the output of the server mentions.
func TestFailedStartNamesVariablesThatTheOutputMentions(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("needs a shell")
	}
	t.Setenv("NODE_OPTIONS", "--s3cret")
	t.Setenv("ACME_TOKEN", "s3cret")
	t.Setenv("ACME", "s3cret")
	t.Setenv("ACME_REGION", "")
	for _, command := range []string{"tools", "probe"} {
		o := patchbay(t, "", command, "--", "sh", "-c", "echo 'set ACME_TOKEN and ACME_REGION' >&2; exit 3")
		if o.status == exit.OK || !strings.Contains(o.stderr, "did not inherit ACME_TOKEN, NODE_OPTIONS") ||
			!strings.Contains(o.stderr, "(--env)") || strings.Contains(o.stderr, "s3cret") {
			t.Errorf("%s: exit code %d, %s", command, o.status, o.stderr)
		}
	}
}

// A server that a package runner does not start in time: the terminal says what is waited for, and
// the error names the variables that the runner may lack behind a company's proxy.
func TestSilentPackageRunner(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("needs a shell script")
	}
	npx := filepath.Join(t.TempDir(), "npx")
	if err := os.WriteFile(npx, []byte("#!/bin/sh\nwhile read -r line; do :; done\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("NODE_OPTIONS", "--s3cret")
	for _, command := range []string{"tools", "probe"} {
		var o outcome
		limit := withLimit(300*time.Millisecond, func(limit time.Duration) bool {
			o = atTerminal(t, "", nil, command, "--timeout", limit.String(), "--", npx, "-y", "server")
			return strings.Contains(o.stderr, "waiting") // after half of the limit
		})
		if o.status != exit.Timeout || !strings.Contains(o.stderr, "may still be downloaded: waiting\" upTo=") ||
			!strings.Contains(o.stderr, fmt.Sprintf("no answer of an MCP server within %v (--timeout)", limit)) ||
			!strings.Contains(o.stderr, "did not inherit NODE_OPTIONS") || strings.Contains(o.stderr, "s3cret") {
			t.Errorf("%s: exit code %d, %q", command, o.status, o.stderr)
		}
	}
}
