package root

import (
	"bytes"
	"context"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/serve"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/connect"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/demo"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// bridged returns a client of the bridge on stdio. end closes it and returns the outcome of the bridge.
func bridged(t *testing.T, revision string, args ...string) (c *mcp.Client, end func() outcome) {
	t.Helper()
	files := make([]*os.File, 4)
	for i := 0; i < len(files); i += 2 {
		var err error
		if files[i], files[i+1], err = os.Pipe(); err != nil {
			t.Fatal(err)
		}
	}
	stdin, toBridge, fromBridge, stdout := files[0], files[1], files[2], files[3]
	var stderr bytes.Buffer
	ended := make(chan int, 1)
	go func() {
		status := Run(context.Background(), append([]string{"bridge"}, args...), stdin, stdout, &stderr)
		stdin.Close()
		stdout.Close()
		ended <- status
	}()
	c, err := mcp.Connect(t.Context(), mcp.NewConnTransport(mcp.NewStreamConn(fromBridge, toBridge, nil)),
		&mcp.ClientOptions{Revision: revision})
	if err != nil {
		toBridge.Close()
		t.Fatalf("connect to the bridge: %v; exit code %d, %s", err, <-ended, stderr.String())
	}
	return c, func() outcome {
		t.Helper()
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		toBridge.Close()
		o := outcome{status: <-ended}
		o.stderr = stderr.String()
		return o
	}
}

// A client on stdio, at any revision, uses a protected server with the login of the vault.
func TestBridgeUsesTheLogin(t *testing.T) {
	mcptest.NoLeaks(t)
	freshVault(t)
	server, ann := protected(t), newUserBrowser(t)
	login := "patchbay auth login " + server
	o := patchbay(t, "", "bridge", server)
	if o.status != exit.Auth || o.stdout != "" || !strings.Contains(o.stderr, login) {
		t.Errorf("without a login: got %+v, want %d, the login command, and no output", o, exit.Auth)
	}
	if o := withBrowser(t, ann, "auth", "login", server); o.status != exit.OK {
		t.Fatalf("got %d, %s, want %d", o.status, o.stderr, exit.OK)
	}
	for _, upstream := range mcptest.Revisions() {
		for _, revision := range mcptest.Revisions() {
			t.Run(revision+" to "+upstream, func(t *testing.T) {
				c, end := bridged(t, revision, server, "--revision", upstream)
				res, err := c.CallTool(t.Context(), "who_am_i", nil)
				if err != nil || res.IsError || !strings.Contains(res.Text(), `"user":"ann"`) {
					t.Errorf("who_am_i: got %+v, %v, want ann", res, err)
				}
				if o := end(); o.status != exit.OK || o.stderr != "" {
					t.Errorf("end: got %+v, want %d", o, exit.OK)
				}
			})
		}
	}
}

// A scope that the login lacks is an error with the login command. A bridge uses a later login.
func TestBridgeAsksForMissingScopes(t *testing.T) {
	mcptest.NoLeaks(t)
	freshVault(t)
	server, ann := protected(t), newUserBrowser(t)
	if o := withBrowser(t, ann, "auth", "login", server); o.status != exit.OK {
		t.Fatalf("got %d, %s, want %d", o.status, o.stderr, exit.OK)
	}
	c, end := bridged(t, "", server)
	_, err := c.CallTool(t.Context(), demo.ToolReset, nil)
	login := "patchbay auth login " + server + " --scope " + serve.ScopeUse + " --scope " + serve.ScopeReset
	if err == nil || !strings.Contains(err.Error(), "lacks the scopes "+serve.ScopeReset) ||
		!strings.Contains(err.Error(), ": "+login+" (code") {
		t.Errorf("got %v, want the missing scope and the login command", err)
	}
	if o := withBrowser(t, ann, "auth", "login", server, "--scope", serve.ScopeReset); o.status != exit.OK {
		t.Fatalf("second login: got %d, %s, want %d", o.status, o.stderr, exit.OK)
	}
	if res, err := c.CallTool(t.Context(), demo.ToolReset, nil); err != nil || res.IsError {
		t.Errorf("after the second login: got %+v, %v, want a result", res, err)
	}
	if o := end(); o.status != exit.OK || strings.Count(o.stderr, login) != 1 {
		t.Errorf("end: got %+v, want the login command once", o)
	}
}

func TestBridgeRefusesAnswersOfItsOwn(t *testing.T) {
	for _, flag := range []string{"--root=.", "--answers=a.json"} {
		o := patchbay(t, "", "bridge", "http://127.0.0.1:1/mcp", flag)
		if o.status != exit.Usage || !strings.Contains(o.stderr, "do not apply to bridge") {
			t.Errorf("%s: got %+v, want %d", flag, o, exit.Usage)
		}
	}
}

// The client decides how long a request may take, and the bridge has no shorter limit unless the user sets one.
func TestBridgeTimeout(t *testing.T) {
	for flag, want := range map[time.Duration]time.Duration{connect.DefaultTimeout: time.Hour, time.Second: time.Second} {
		p := newRun(strings.NewReader(""), io.Discard, io.Discard)
		p.Client.Bridging, p.Flags.Timeout = true, flag
		opts, err := p.Client.ClientOptions(t.Context())
		if err != nil || opts.Timeout != want || opts.ProbeTimeout >= connect.DefaultTimeout {
			t.Errorf("--timeout %v: got %+v, %v, want the timeout %v", flag, opts, err, want)
		}
	}
}
