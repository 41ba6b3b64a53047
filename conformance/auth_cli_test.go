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
	patchbay := build(t, "..", "./cmd/patchbay")
	cmd := exec.Command(patchbay, "serve", "--auth", "demo", "--addr", "127.0.0.1:0")
	cmd.Env, cmd.Stderr = atHome(t), t.Output()
	url := startPeer(t, cmd)
	for _, name := range []string{"login_session.mjs", "login_modern.mjs"} {
		t.Run(name, func(t *testing.T) {
			p := newPerson(t)
			p.name, p.password = "ann", "demo"
			seen := playLogin(t, p, "clients/"+name, url, "reset_counter")
			equal(t, "issuer", seen.Issuer, strings.TrimSuffix(url, "/mcp"))
			equal(t, "logins", len(seen.Visits), 2)
			equal(t, "user", seen.Who.User, "ann")
			if !slices.Contains(seen.Renewed.Scopes, "demo:reset") || !seen.Rotated {
				t.Errorf("after the renewal: %+v", seen)
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
	patchbay := build(t, "..", "./cmd/patchbay")
	home := atHome(t)
	ctx := within(t, time.Minute)
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(ctx, patchbay, args...)
		cmd.Env = home
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
		return string(out)
	}
	login := exec.CommandContext(ctx, patchbay, "auth", "login", endpoint, "--no-browser")
	login.Env = home
	said := must(login.StderrPipe())(t)
	if err := login.Start(); err != nil {
		t.Fatal(err)
	}
	visitPages(ctx, t, newPerson(t), bufio.NewScanner(said))
	if err := login.Wait(); err != nil {
		t.Fatalf("auth login: %v", err)
	}
	if out := run("auth", "status", endpoint); !strings.Contains(out, "mcp:read") {
		t.Errorf("auth status: %s", out)
	}
	if out := run("call", endpoint, "who_am_i", "--no-input"); !strings.Contains(out, "mcp:read") {
		t.Errorf("call: %s", out)
	}
	run("auth", "logout", endpoint)
	cmd := exec.CommandContext(ctx, patchbay, "call", endpoint, "who_am_i", "--no-input")
	cmd.Env = home
	out, err := cmd.CombinedOutput()
	if err == nil || cmd.ProcessState.ExitCode() != 4 || !strings.Contains(string(out), "patchbay auth login "+endpoint) {
		t.Errorf("call after the logout: %v: %s", err, out)
	}
}

// visitPages visits every URL that a program prints for its user.
func visitPages(ctx context.Context, t *testing.T, p *person, lines *bufio.Scanner) {
	t.Helper()
	for lines.Scan() {
		t.Log(lines.Text())
		if page := strings.TrimSpace(lines.Text()); strings.HasPrefix(page, "http://") && strings.Contains(page, "code_challenge=") {
			if text, err := p.visit(ctx, page); err != nil || !strings.Contains(text, "You are logged in") {
				t.Errorf("the page: %v\n%s", err, text)
			}
		}
	}
}

// atHome returns an environment with empty state directories.
func atHome(t *testing.T) []string {
	t.Helper()
	home := t.TempDir()
	return append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_STATE_HOME="+home, "XDG_DATA_HOME="+home, "XDG_CACHE_HOME="+home,
		"DBUS_SESSION_BUS_ADDRESS=")
}
