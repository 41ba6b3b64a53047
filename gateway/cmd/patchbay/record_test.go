package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// demoSession uses the demo server and returns what its client receives.
func demoSession(t *testing.T, transport mcp.Transport, revision string) string {
	t.Helper()
	var seen strings.Builder
	show := func(what string, v any, err error) {
		b, _ := json.Marshal(v)
		fmt.Fprintf(&seen, "%s: %s", what, b)
		var e *mcp.Error
		if errors.As(err, &e) {
			fmt.Fprintf(&seen, " %d %s %s", e.Code, e.Message, e.Data)
		} else if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		seen.WriteByte('\n')
	}
	c, err := mcp.Connect(t.Context(), transport, &mcp.ClientOptions{Revision: revision,
		Elicit: func(_ context.Context, q *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
			show("question", q.Message, nil)
			return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: []byte(`{"name":"Ann"}`)}, nil
		},
		Sample: func(_ context.Context, q *mcp.CreateMessageParams) (*mcp.CreateMessageResult, error) {
			show("sample", q, nil)
			return nil, errors.New("no model")
		}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	show("server", c.ServerInfo(), nil)
	for tool, err := range c.Tools(t.Context()) {
		show("tool", tool, err)
	}
	for r, err := range c.ResourceTemplates(t.Context()) {
		show("template", r, err)
	}
	for r, err := range c.Resources(t.Context()) {
		show("resource", r, err)
	}
	ctx := mcp.WithCallOptions(t.Context(), mcp.CallOptions{Progress: func(u mcp.ProgressUpdate) {
		show("progress", u, nil)
	}})
	call := func(name string, args map[string]any) {
		res, err := c.CallTool(ctx, name, args)
		show(name, res, err)
	}
	call("add", map[string]any{"a": 1, "b": 2})
	call("count", map[string]any{"steps": 3})
	call("increment", nil)
	call("absent", nil)
	if revision >= "2025-06-18" {
		call("greet", nil)
	}
	read, err := c.ReadResource(ctx, "demo://counter")
	show("read", read, err)
	return seen.String()
}

// startLocal starts a command that serves HTTP and returns the URL that it prints.
func startLocal(t *testing.T, args ...string) string {
	t.Helper()
	line, err := start(t, args...).stdout.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// A client uses the demo server through record. Clients of every revision that is not newer, on stdio and
// over HTTP, see the mock server as they see the demo server.
func TestMockServesWhatWasRecorded(t *testing.T) {
	server := []string{"--", built, "serve", "--stdio", "--tasks", "memory"}
	for _, upstream := range []string{"2024-11-05", "2025-11-25", mcptest.Modern} {
		file := filepath.Join(t.TempDir(), "a.jsonl")
		args := append([]string{"record", file, "--revision", upstream}, server...)
		recorded := demoSession(t, mcp.Command(built, args...), upstream)
		if info, err := os.Stat(file); err != nil || info.Size() < 1000 {
			t.Fatalf("got %v, %v, want a recording", info, err)
		}
		for _, revision := range mcptest.Revisions() {
			t.Run(revision+" of "+upstream, func(t *testing.T) {
				onStdio := demoSession(t, mcp.Command(built, "mock", file), revision)
				want := demoSession(t, mcp.Command(built, server[2:]...), revision)
				if revision != upstream { // only 2025-11-25 has it
					want = strings.ReplaceAll(want, `,"execution":{"taskSupport":"optional"}`, "")
				}
				if upstream >= revision && onStdio != want {
					t.Error(cmp.Diff(want, onStdio))
				}
				if revision == upstream && onStdio != recorded {
					t.Error(cmp.Diff(recorded, onStdio))
				}
				url := startLocal(t, "mock", file, "--insecure-no-auth", "--http", ":0")
				if overHTTP := demoSession(t, mcphttp.NewTransport(url, nil), revision); overHTTP != onStdio {
					t.Errorf("over HTTP: %s", cmp.Diff(onStdio, overHTTP))
				}
			})
		}
	}
}

func TestRecordServesHTTPClientsOfServerAtURL(t *testing.T) {
	server := bridge(t, "--http", ":0", "--", built, "serve", "--stdio", "--tasks", "memory")
	file := filepath.Join(t.TempDir(), "a.jsonl")
	url := startLocal(t, "record", file, server+"?key=secret", "--insecure-no-auth", "--http", ":0", "--header", "Authorization:Bearer secret")
	for _, revision := range mcptest.Revisions() {
		forwards(t, mcphttp.NewTransport(url, nil), revision)
	}
	text, err := os.ReadFile(file)
	if err != nil || strings.Contains(string(text), "secret") || strings.Count(string(text), `"method":"tools/call"`) < 5 ||
		!strings.Contains(string(text), `"status":200`) || !strings.Contains(string(text), `"Authorization":["[hidden]"]`) {
		t.Errorf("got %s, %v, want the calls and no secrets", text, err)
	}
}

func TestMockRefusesInvalidFilesAndAddresses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.jsonl")
	if err := os.WriteFile(file, []byte("hello\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"line 1: not a recording":       {"mock", file},
		"no such file":                  {"mock", file + "x"},
		"accepts 1 arg(s), received 0":  {"mock"},
		"a loopback address":            {"mock", file, "--http", "0.0.0.0:0"},
		"exists and is not a recording": {"record", file, "--", built, "serve", "--stdio"},
		"missing FILE":                  {"record", "--", built},
		"missing TARGET":                {"record", file},
		"--trace is not for record":     {"record", file, "--trace", "x", "--", built},
	} {
		out, err := exec.Command(built, args...).CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(string(out), want) {
			t.Errorf("%q: got %v, %s, want exit code 2 and %s", args, err, out, want)
		}
	}
}
