package conformance_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/chromedp/chromedp"
)

// A webConsole is a running `patchbay console`.
type webConsole struct {
	t      *testing.T
	cmd    *exec.Cmd
	url    string // with its token
	binary string
	out    string // the file of standard output
}

var consoleAddr = regexp.MustCompile(`127\.0\.0\.1:\d+`)

// startConsole runs `patchbay console` with the servers of a configuration until the test ends.
func startConsole(t *testing.T, configuration string, args ...string) *webConsole {
	t.Helper()
	w := &webConsole{t: t, binary: build(t, "..", "./gateway/cmd/patchbay"), out: filepath.Join(t.TempDir(), "out")}
	file := filepath.Join(t.TempDir(), "mcp.json")
	text := strings.ReplaceAll(configuration, "PATCHBAY", w.binary)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	w.cmd = exec.Command(w.binary, append([]string{"console", "--config", file, "--addr", "127.0.0.1:0"}, args...)...)
	w.cmd.Stdout = must(os.Create(w.out))(t)
	w.start()
	return w
}

// start starts the command and reads its URL.
func (w *webConsole) start() {
	w.t.Helper()
	stderr := must(w.cmd.StderrPipe())(w.t)
	if err := w.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(w.end)
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		if _, url, ok := strings.Cut(lines.Text(), "patchbay console: "); ok {
			w.url = url
			go drain(lines)
			return
		}
		w.t.Log(lines.Text())
	}
	w.t.Fatal("the console printed no URL")
}

// end interrupts the command, whose standard output must be empty.
func (w *webConsole) end() {
	_ = w.cmd.Process.Signal(syscall.SIGINT)
	if err := w.cmd.Wait(); err != nil {
		w.t.Errorf("the console exited with an error: %v", err)
	}
	if text, err := os.ReadFile(w.out); err != nil || len(text) > 0 {
		w.t.Errorf("standard output: got %q, %v, want none", text, err)
	}
}

// A watchedTab is a tab whose problems fail the test.
type watchedTab struct {
	*tab
	mu       sync.Mutex // guards the field below
	problems []string
}

// newWatchedTab opens a tab whose console errors, exceptions, rejections that nothing handles, and
// violations of the CSP fail the test.
func newWatchedTab(t *testing.T, browser context.Context) *watchedTab {
	t.Helper()
	p := watchTab(t, browser)
	t.Cleanup(func() {
		for _, text := range p.taken() {
			t.Errorf("the page reported: %s", text)
		}
	})
	return p
}

// watchTab opens a tab that collects its problems.
func watchTab(t *testing.T, browser context.Context) *watchedTab {
	t.Helper()
	p := &watchedTab{tab: newTab(t, browser)}
	messages := chromedp.Console(p.ctx)
	var wait sync.WaitGroup
	wait.Go(func() { // ends with the tab
		for m, err := range messages {
			if err != nil {
				return
			}
			isNetwork := m.Source == "network" // a test that stops the console expects failed requests
			if isProblem := m.IsException() || m.Type == "error" || m.Type == "warning"; isProblem && !isNetwork {
				p.mu.Lock()
				p.problems = append(p.problems, m.String())
				p.mu.Unlock()
			}
		}
	})
	return p
}

// taken returns the problems that were collected, and forgets them.
func (p *watchedTab) taken() (problems []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	problems, p.problems = p.problems, nil
	return problems
}

// has reports whether the page has an element.
func (p *watchedTab) has(selector string) bool {
	p.t.Helper()
	return must(chromedp.Run(p.ctx, chromedp.Evaluate[bool](fmt.Sprintf("document.querySelector(%q) !== null", selector))))(p.t)
}

// TestConsoleFirstMinute follows a new user: the link logs the browser in, the overview is drawn
// and lists the tools of the demo, live and without a violation of the Content-Security-Policy.
func TestConsoleFirstMinute(t *testing.T) {
	browser := startBrowser(t)
	w := startConsole(t, `{"mcpServers": {}}`)
	out := must(exec.Command(w.binary, "tools", "--json", "--", w.binary, "serve", "--stdio", "--tasks", "memory").Output())(t)
	var listed struct {
		Tools []struct{ Name string } `json:"tools"`
	}
	if err := json.Unmarshal(out, &listed); err != nil || len(listed.Tools) == 0 {
		t.Fatalf("patchbay tools --json: %v, %s", err, out)
	}
	p := newWatchedTab(t, browser)
	p.open(w.url)
	p.waitFor("the overview", `document.querySelector("#server-demo.ok details.tools") !== null`)
	if at := p.location(); strings.Contains(at, "#") || !strings.HasSuffix(at, "/") {
		t.Errorf("after the login the browser is at %s, want / without the token", at)
	}
	p.click("#server-demo details summary")
	text := p.text()
	for _, tool := range listed.Tools {
		if !strings.Contains(text, tool.Name) {
			t.Errorf("the overview does not list %s:\n%s", tool.Name, text)
		}
	}
	p.waitFor("the stream", `document.querySelector("#connection.live") !== null`)
	p.click("#server-demo form[action='/servers/stop'] button")
	p.waitFor("the new state", `document.querySelector("#server-demo.idle") !== null`)
	if p.has("#server-demo details.tools") {
		t.Error("the overview lists the tools of a server that is stopped")
	}

	thief := newWatchedTab(t, browser)
	thief.open(w.url)
	thief.waitForText("expired or was used")
}

// The page reports that it is disconnected, keeps its content, and connects again by itself. After
// a restart of the console it asks for another login.
func TestConsoleReconnects(t *testing.T) {
	browser := startBrowser(t)
	w := startConsole(t, `{"mcpServers": {}}`)
	link := newLink(t, consoleAddr.FindString(w.url))
	p := newWatchedTab(t, browser)
	p.open(consoleAddr.ReplaceAllString(w.url, link.addr))
	p.waitFor("the stream", `document.querySelector("#connection.live") !== null`)
	link.cut()
	p.waitFor("the message", `document.querySelector("#banner.lost:not([hidden])") !== null`)
	if !p.has("#server-demo.ok") {
		t.Error("the page lost its content with the connection")
	}
	link.restore()
	p.waitFor("the stream again", `document.querySelector("#connection.live") !== null &&
		document.querySelector("#banner").hidden`)

	again := startConsole(t, `{"mcpServers": {}}`)
	link.cut()
	link.target = consoleAddr.FindString(again.url)
	link.restore()
	p.waitForText("the session has ended. open the link")
	p.open(consoleAddr.ReplaceAllString(again.url, link.addr))
	p.waitFor("the stream of the next console", `document.querySelector("#connection.live") !== null`)
}

// A link forwards connections to an address, and can be cut.
type link struct {
	t      *testing.T
	addr   string
	target string

	mu    sync.Mutex // guards the fields below
	l     net.Listener
	conns []net.Conn
}

func newLink(t *testing.T, target string) *link {
	k := &link{t: t, addr: "127.0.0.1:0", target: target}
	k.restore()
	t.Cleanup(k.cut)
	return k
}

// restore listens at the address.
func (k *link) restore() {
	l := must(net.Listen("tcp", k.addr))(k.t)
	k.mu.Lock()
	k.l, k.addr = l, l.Addr().String()
	k.mu.Unlock()
	go func() { // ends with the listener
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", k.target)
			if err != nil {
				_ = in.Close()
				continue
			}
			k.mu.Lock()
			k.conns = append(k.conns, in, out)
			k.mu.Unlock()
			go func() { _, _ = io.Copy(in, out); _ = in.Close() }()
			go func() { _, _ = io.Copy(out, in); _ = out.Close() }()
		}
	}()
}

// cut ends all connections, and refuses new connections.
func (k *link) cut() {
	k.mu.Lock()
	defer k.mu.Unlock()
	_ = k.l.Close()
	for _, c := range k.conns {
		_ = c.Close()
	}
	k.conns = nil
}

// Keys of the console open screens, move between rows and show the help.
func TestConsoleKeys(t *testing.T) {
	browser := startBrowser(t)
	w := startConsole(t, `{"mcpServers": {"a": {"command": "true"}, "b": {"command": "true"}}}`)
	p := newWatchedTab(t, browser)
	p.open(w.url)
	p.waitFor("the overview", `document.querySelectorAll("[data-row]").length === 3 &&
		document.querySelector("[data-keys-help]:not([hidden])") !== null`) // keys.js has run
	focused := func() string {
		return p.read(chromedp.Evaluate[string](`document.activeElement.id`))
	}
	var got []string
	for _, key := range []string{"j", "j", "j", "j", "k"} {
		p.do("press "+key, chromedp.KeyEvent(key))
		got = append(got, focused())
	}
	if want := []string{"server-a", "server-b", "server-demo", "server-demo", "server-b"}; !slices.Equal(got, want) {
		t.Errorf("j and k selected %q, want %q", got, want)
	}
	p.do("show the help", chromedp.KeyEvent("?"))
	p.waitFor("the help", `document.querySelector("dialog[open]") !== null`)
	p.do("close the help", chromedp.KeyEvent("\x1b"))
	p.waitFor("no help", `document.querySelector("dialog[open]") === null`)
	p.do("pause", chromedp.KeyEvent("."))
	p.waitFor("paused", `document.querySelector("#connection.paused") !== null`)
	p.do("go on", chromedp.KeyEvent("."))
	p.waitFor("live", `document.querySelector("#connection.live") !== null`)
}

// Names and messages of servers with markup and hidden characters are shown as text.
func TestConsoleHostileNames(t *testing.T) {
	browser := startBrowser(t)
	const name = `<img src=x onerror=document.title='owned'>\u202e\u200b`
	w := startConsole(t, `{"mcpServers": {"`+name+`": {"command": "sh",
		"args": ["-c", "printf '<script>alert(1)</script>\\342\\200\\256' >&2; exit 3"]}}}`)
	p := newWatchedTab(t, browser)
	p.open(w.url)
	p.waitFor("the overview", `document.querySelector("#server-demo.ok details.tools") !== null`)
	p.click(".server.idle form[action='/servers/restart'] button")
	p.waitFor("the error", `document.querySelector(".problem") !== null`)
	text := p.text()
	for _, want := range []string{`<img src=x onerror=document.title='owned'>\u{202e}\u{200b}`, "<script>alert(1)</script>"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks the text %s:\n%s", want, text)
		}
	}
	if p.has("main img") || p.has("main script") || strings.ContainsAny(text, "\u202e\u200b") {
		t.Errorf("the page contains markup or hidden characters of a server:\n%s", text)
	}
}

// Without scripts, a person pastes the link, uses forms, and refreshes the page.
func TestConsoleWithoutScripts(t *testing.T) {
	browser := startBrowser(t)
	w := startConsole(t, `{"mcpServers": {}}`)
	p := newWatchedTab(t, browser)
	p.disableScripts()
	p.open(w.url)
	p.enter("#token", w.url)
	p.click("#login button")
	p.waitForText("servers ready")
	p.click("#server-demo form[action='/servers/stop'] button")
	p.waitFor("the new state", `document.querySelector("#server-demo.idle") !== null`)
	p.click("#server-demo form[action='/servers/restart'] button")
	p.waitFor("the next state", `document.querySelector("#server-demo.ok") !== null`)
	for !strings.Contains(p.text(), "roll_dice") { // the console lists the tools after the page
		p.click("[data-refresh]")
	}
	if p.read(chromedp.Evaluate[string](`String(document.querySelector("#connection").hidden)`)) != "true" {
		t.Error("the page runs scripts")
	}
}
