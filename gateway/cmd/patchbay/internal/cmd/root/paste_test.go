package root

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/login"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// A remoteUser reads standard error, logs in with a browser on another machine, and pastes URLs.
type remoteUser struct {
	*userBrowser
	stdin  *io.PipeWriter
	before func(last string) []string // lines to paste before the last URL
	after  bool                       // whether to paste the last URL

	mu   sync.Mutex
	seen strings.Builder
	page string
}

func (u *remoteUser) Write(b []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.seen.Write(b)
	for line := range strings.Lines(u.seen.String()) {
		if line = strings.TrimSpace(line); u.page == "" && strings.Contains(line, "/authorize?") {
			u.page = line
			u.visits.Go(func() { u.t.Log(u.visit(line)) })
		}
	}
	return len(b), nil
}

func (u *remoteUser) text() string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.seen.String()
}

// paste writes the lines of the user.
func (u *remoteUser) paste(last string) {
	u.visits.Go(func() {
		lines := u.before(last)
		if u.after {
			lines = append(lines, last+"#fragment")
		}
		for _, line := range lines {
			if _, err := io.WriteString(u.stdin, line+"\n"); err != nil {
				return // the program reads no more
			}
		}
		u.stdin.Close()
	})
}

// logInRemotely runs a command for a user whose browser is on another machine.
func logInRemotely(t *testing.T, before func(last string) []string, after bool, prepare func(*cmdutil.Factory),
	args ...string) (status int, stdout string, stderr string) {
	t.Helper()
	r, w := io.Pipe()
	var out bytes.Buffer
	p := newRun(r, &out, io.Discard)
	u := &remoteUser{userBrowser: newUserBrowser(t), stdin: w, before: before, after: after}
	u.keep = u.paste
	p.IO.Err.W = u
	p.Ask.Open = func(context.Context, string) error { t.Error("a browser was opened"); return nil }
	prepare(p)
	status = runCommandLine(t.Context(), p, args)
	r.Close()
	u.visits.Wait()
	return status, out.String(), u.text()
}

func nothing(string) []string { return nil }

func TestLoginAcceptsThePastedURL(t *testing.T) {
	mcptest.NoLeaks(t)
	atTerminal := func(p *cmdutil.Factory) { p.IO.Interactive, p.Login.Headless = true, true }
	for name, test := range map[string]struct {
		prepare func(p *cmdutil.Factory)
		args    []string
	}{
		"pipe":        {func(p *cmdutil.Factory) {}, []string{"auth", "login", "--no-browser"}},
		"terminal":    {func(p *cmdutil.Factory) { p.IO.Interactive = true }, []string{"auth", "login", "--no-browser"}},
		"SSH session": {atTerminal, []string{"auth", "login"}},
		"a call":      {atTerminal, []string{"ping"}},
		"no browser found": {func(p *cmdutil.Factory) {
			p.IO.Interactive, p.Login.Headless = true, false
			p.Ask.Open = func(context.Context, string) error { return errors.New("not found") }
		}, []string{"auth", "login"}},
	} {
		t.Run(name, func(t *testing.T) {
			freshVault(t)
			status, _, stderr := logInRemotely(t, nothing, true, test.prepare, append(test.args, protected(t))...)
			if status != exit.OK || !strings.Contains(stderr, "paste the URL of that page here") {
				t.Errorf("exit code %d, %s", status, stderr)
			}
		})
	}
}

// Each wrong line says what is wrong, without a code in it, and the next one is read.
func TestWrongPastesAreExplained(t *testing.T) {
	mcptest.NoLeaks(t)
	freshVault(t)
	server := protected(t)
	wrong := func(last string) []string {
		u, err := url.Parse(last)
		if err != nil {
			t.Error(err)
		}
		q := u.Query()
		q.Set("state", "other")
		otherState := "http://" + u.Host + u.Path + "?" + q.Encode()
		return []string{server + "/authorize?x", "no URL s3cret", otherState,
			strings.Replace(last, "/callback", "/callback/", 1)}
	}
	run := func(p *cmdutil.Factory) { p.IO.Interactive = true }
	status, stdout, stderr := logInRemotely(t, wrong, true, run, "auth", "login", "--no-browser", server)
	if status != exit.OK || !strings.Contains(stdout, "logged in   yes") {
		t.Fatalf("exit code %d, %s", status, stderr)
	}
	for _, want := range []string{"must begin with http://127.0.0.1:", "its state is not that of this login",
		`/callback/": must begin`} {
		if !strings.Contains(stderr, want) {
			t.Errorf("standard error lacks %q: %s", want, stderr)
		}
	}
	if strings.Contains(stderr, "code=") {
		t.Errorf("standard error has the code: %s", stderr)
	}
	tooMany := func(string) []string { return strings.Split(strings.Repeat("wrong,", login.MaxPastes-1)+"wrong", ",") }
	status, _, stderr = logInRemotely(t, tooMany, true, run, "auth", "login", "--no-browser", server)
	if status != exit.Auth || !strings.Contains(stderr, "no line of 5 was its last URL: invalid URL \"wrong\"") {
		t.Errorf("after too many lines: exit code %d, %s", status, stderr)
	}
	one := func(string) []string { return []string{"wrong"} }
	status, _, stderr = logInRemotely(t, one, false, func(*cmdutil.Factory) {}, "auth", "login", "--no-browser", server)
	if status != exit.Auth || !strings.Contains(stderr, "the login did not end: invalid URL \"wrong\"") {
		t.Errorf("after one line: exit code %d, %s", status, stderr)
	}
	long := func(string) []string { return []string{strings.Repeat("x", 2*term.MaxLine)} }
	if status, _, stderr = logInRemotely(t, long, false, func(*cmdutil.Factory) {}, "auth", "login", "--no-browser",
		server); status != exit.Usage {
		t.Errorf("after a long line: exit code %d, %s", status, stderr)
	}
}

func TestHeadlessMachinesAreDetected(t *testing.T) {
	for _, test := range []struct {
		system, environment string
		want                bool
	}{
		{"linux", "", true}, {"linux", "DISPLAY", false}, {"linux", "WAYLAND_DISPLAY", false},
		{"linux", "WSL_DISTRO_NAME", false}, {"linux", "SSH_TTY WSL_DISTRO_NAME", true},
		{"linux", "SSH_CONNECTION DISPLAY", false}, {"linux", "SSH_CONNECTION BROWSER", false},
		{"freebsd", "", true}, {"darwin", "", false}, {"darwin", "SSH_CONNECTION", true},
		{"windows", "", false}, {"windows", "SSH_TTY", true},
	} {
		set := strings.Fields(test.environment)
		getenv := func(name string) string {
			for _, s := range set {
				if s == name {
					return "set"
				}
			}
			return ""
		}
		if got := login.IsHeadless(test.system, getenv); got != test.want {
			t.Errorf("%s with %q: got %t, want %t", test.system, test.environment, got, test.want)
		}
	}
}
