package main

import (
	"bufio"
	"context"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// forwards calls tools of the demo server, one of them with a question to the user.
func forwards(t *testing.T, transport mcp.Transport, revision string) {
	t.Helper()
	asked := 0
	c, err := mcp.Connect(t.Context(), transport, &mcp.ClientOptions{Revision: revision,
		Elicit: func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
			asked++
			return &mcp.ElicitResult{Action: mcp.ElicitDecline}, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var names []string
	for tool, err := range c.Tools(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, tool.Name)
	}
	if !slices.Contains(names, "add") {
		t.Fatalf("tools: got %q, want add", names)
	}
	res, err := c.CallTool(t.Context(), "add", map[string]any{"a": 1, "b": 2})
	if err != nil || res.IsError {
		t.Errorf("add: got %+v, %v", res, err)
	}
	if _, err := c.CallTool(t.Context(), "greet", nil); err != nil && revision >= "2025-06-18" {
		t.Errorf("greet: %v", err)
	}
	if want := revision >= "2025-06-18"; (asked > 0) != want {
		t.Errorf("asked %d times, want a question: %t", asked, want)
	}
}

// bridge starts the bridge and returns the URL that it prints.
func bridge(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command(built, append([]string{"bridge", "--insecure-no-auth"}, args...)...)
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil && err != io.EOF {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

func TestBridgeServesCommandOverHTTP(t *testing.T) {
	for _, upstream := range []string{"2025-11-25", mcptest.Modern} {
		url := bridge(t, "--http", ":0", "--revision", upstream, "--", built, "serve", "--stdio", "--tasks", "memory")
		for _, revision := range mcptest.Revisions() {
			t.Run(revision+" to "+upstream, func(t *testing.T) {
				forwards(t, mcphttp.NewTransport(url, nil), revision)
			})
		}
	}
}

func TestBridgeServesURLOnStdio(t *testing.T) {
	url := bridge(t, "--http", ":0", "--", built, "serve", "--stdio", "--tasks", "memory")
	for _, revision := range mcptest.Revisions() {
		t.Run(revision, func(t *testing.T) { forwards(t, mcp.Command(built, "bridge", url), revision) })
	}
}

func TestBridgeRefusesAddressesOfTheNetwork(t *testing.T) {
	for _, addr := range []string{"0.0.0.0:0", "[::]:0", "192.0.2.1:80", "example.com:80", "8080"} {
		out, err := exec.Command(built, "bridge", "--http", addr, "--", built, "serve", "--stdio").CombinedOutput()
		if err == nil || !strings.Contains(string(out), "must be host:port with a loopback address") {
			t.Errorf("--http %s: got %v, %s", addr, err, out)
		}
	}
}
