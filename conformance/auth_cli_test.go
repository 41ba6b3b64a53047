package conformance_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestOfficialClientsLogInToDemo logs in to the demo server with the official clients.
func TestOfficialClientsLogInToDemo(t *testing.T) {
	needNode(t)
	patchbay := build(t, "..", "./gateway/cmd/patchbay")
	cmd := exec.Command(patchbay, "serve", "--auth", "demo", "--addr", "127.0.0.1:0")
	cmd.Env, cmd.Stderr = isolatedEnv(t), t.Output()
	url := startPeer(t, cmd)
	for _, name := range []string{"login_session.mjs", "login_modern.mjs"} {
		t.Run(name, func(t *testing.T) {
			p := newLoginUser(t)
			p.name, p.password = "ann", "demo"
			got := runLogin(t, p, "clients/"+name, url, "reset_counter")
			equal(t, "issuer", got.Issuer, strings.TrimSuffix(url, "/mcp"))
			equal(t, "logins", len(got.Visits), 2)
			equal(t, "user", got.Who.User, "ann")
			if !slices.Contains(got.Renewed.Scopes, "demo:reset") || !got.Rotated {
				t.Errorf("after the refresh: got %+v, want the scope demo:reset and rotated tokens", got)
			}
		})
	}
}

// TestCommandLogsIn logs in with the command line to a server that the official TypeScript SDK
// protects.
func TestCommandLogsIn(t *testing.T) {
	server := exec.Command(needNode(t), "peers/typescript/server.mjs")
	server.Stderr = t.Output()
	endpoint := startPeer(t, server)
	patchbay := build(t, "..", "./gateway/cmd/patchbay")
	env := isolatedEnv(t)
	ctx := within(t, time.Minute)
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(ctx, patchbay, args...)
		cmd.Env = env
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
		return string(out)
	}
	login := exec.CommandContext(ctx, patchbay, "auth", "login", endpoint, "--no-browser")
	login.Env = env
	output := must(login.StderrPipe())(t)
	if err := login.Start(); err != nil {
		t.Fatal(err)
	}
	visitPages(ctx, t, newLoginUser(t), bufio.NewScanner(output))
	if err := login.Wait(); err != nil {
		t.Fatalf("auth login: %v", err)
	}
	if out := run("auth", "status", endpoint); !strings.Contains(out, "mcp:read") {
		t.Errorf("auth status: got %s, want the scope mcp:read", out)
	}
	if out := run("call", endpoint, "who_am_i", "--no-input"); !strings.Contains(out, "mcp:read") {
		t.Errorf("call: got %s, want the scope mcp:read", out)
	}
	run("auth", "logout", endpoint)
	cmd := exec.CommandContext(ctx, patchbay, "call", endpoint, "who_am_i", "--no-input")
	cmd.Env = env
	out, err := cmd.CombinedOutput()
	if err == nil || cmd.ProcessState.ExitCode() != 4 ||
		!strings.Contains(string(out), "patchbay auth login "+endpoint) {
		t.Errorf("call after the logout: %v: %s, want exit code 4 and the login command", err, out)
	}
}

// visitPages visits every URL that a program prints for its user.
func visitPages(ctx context.Context, t *testing.T, p *loginUser, lines *bufio.Scanner) {
	t.Helper()
	for lines.Scan() {
		t.Log(lines.Text())
		if page := strings.TrimSpace(lines.Text()); strings.HasPrefix(page, "http://") &&
			strings.Contains(page, "code_challenge=") {
			if text, err := p.visit(ctx, page); err != nil || !strings.Contains(text, "You are logged in") {
				t.Errorf("page %s: %v, want You are logged in\n%s", page, err, text)
			}
		}
	}
}

// isolatedEnv returns an environment with empty state directories and no keyring.
func isolatedEnv(t *testing.T) []string {
	t.Helper()
	home := t.TempDir()
	env := append(os.Environ(), "DBUS_SESSION_BUS_ADDRESS=")
	for _, name := range []string{"HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"} {
		env = append(env, name+"="+home)
	}
	return env
}
