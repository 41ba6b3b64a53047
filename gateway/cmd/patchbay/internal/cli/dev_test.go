package cli

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// checkRestart tests that a client stays connected while a change in dir replaces the server process.
func checkRestart(t *testing.T, c *mcp.Client, dir string, restarted <-chan struct{}) {
	t.Helper()
	count := func() string {
		r, err := c.CallTool(t.Context(), "increment", nil)
		if err != nil {
			return err.Error()
		}
		return r.Text()
	}
	before := count() + count()
	writeFile(t, filepath.Join(dir, "main.go"), "package main")
	<-restarted
	if after := count(); before != "12" || after != "1" { // a new process counts from zero
		t.Errorf("%s: counted %s, and %s after a restart, want 12, 1", c.Revision(), before, after)
	}
}

// A client on standard input and output stays connected while the server process is replaced.
func TestDevRestartsAProcess(t *testing.T) {
	mcptest.NoLeaks(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, revision := range []string{"2026-07-28", "2025-11-25"} {
		dir := t.TempDir()
		stdin, toProgram := io.Pipe()
		fromProgram, stdout := io.Pipe()
		restarted := make(chan struct{})
		stderr := &trigger{when: "restart: main.go changed", then: sync.OnceFunc(func() { close(restarted) })}
		status := make(chan int)
		go func() {
			args := []string{"dev", "--cwd", dir, "--env", serveEnv + "=1", "--", self}
			status <- Run(context.Background(), args, stdin, stdout, stderr)
		}()
		c, err := mcp.Connect(t.Context(), mcp.NewConnTransport(mcp.NewStreamConn(fromProgram, toProgram, nil)),
			&mcp.ClientOptions{Revision: revision})
		if err != nil {
			t.Fatalf("%v: %s", err, stderr.text())
		}
		checkRestart(t, c, dir, restarted)
		_ = c.Close()
		_ = toProgram.Close()
		if got := <-status; got != exitOK || !strings.Contains(stderr.text(), "dev: → tools/call increment") {
			t.Errorf("%s: exit code %d, %s", revision, got, stderr.text())
		}
		_ = stdout.Close()
	}
}

// Clients over HTTP stay connected as well.
func TestDevServesHTTP(t *testing.T) {
	mcptest.NoLeaks(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for revision, asJSON := range map[string]string{"2026-07-28": "--json=false", "2025-11-25": "--json"} {
		dir := t.TempDir()
		ctx, stop := context.WithCancel(t.Context())
		serving, restarted := make(chan struct{}), make(chan struct{})
		stdout := &trigger{when: "/mcp", then: sync.OnceFunc(func() { close(serving) })}
		stderr := &trigger{when: "restart: main.go changed", then: sync.OnceFunc(func() { close(restarted) })}
		status := make(chan int)
		go func() {
			args := []string{"dev", asJSON, "--insecure-no-auth", "--http", "127.0.0.1:0", "--cwd", dir, "--env", serveEnv + "=1", "--", self}
			status <- Run(ctx, args, strings.NewReader(""), stdout, stderr)
		}()
		<-serving
		address := strings.TrimSpace(stdout.text())
		if asJSON == "--json" {
			var printed struct{ URL string }
			if err := json.Unmarshal([]byte(address), &printed); err != nil {
				t.Errorf("%s: got %s, %v, want JSON", revision, address, err)
			}
			address = printed.URL
		}
		transport := mcphttp.NewTransport(address, nil)
		c, err := mcp.Connect(t.Context(), transport, &mcp.ClientOptions{Revision: revision})
		if err != nil {
			t.Fatalf("%v: %s", err, stderr.text())
		}
		checkRestart(t, c, dir, restarted)
		_ = c.Close()
		stop()
		if got := <-status; got != exitOK && got != exitInterrupted {
			t.Errorf("%s: exit code %d, %s", revision, got, stderr.text())
		}
	}
	for _, addr := range []string{"0.0.0.0:0", "example.com:80", "x"} {
		if o := patchbay(t, "", "dev", "--http", addr, "--", "go"); o.status != exitUsage {
			t.Errorf("--http %s: exit code %d, want %d", addr, o.status, exitUsage)
		}
	}
}

func TestDevChecksItsArguments(t *testing.T) {
	for _, args := range [][]string{{"dev"}, {"dev", "--"}, {"dev", "x", "--", "go"}, {"dev", "go", "run", "."},
		{"dev", "--ignore", "[", "--", "go"}, {"dev", "--header", "a:b", "--", "go"}} {
		if o := patchbay(t, "", args...); o.status != exitUsage {
			t.Errorf("%q: exit code %d, %s, want %d", args, o.status, o.stderr, exitUsage)
		}
	}
}
