package conformance_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// Two browsers use one console, each with its own link: what one browser does appears in the other,
// and the end of the session of one leaves the other logged in.
func TestConsoleInTwoBrowsers(t *testing.T) {
	browser := startBrowser(t)
	patchbay := build(t, "..", "./gateway/cmd/patchbay")
	replica, screen := openTerminal(t)
	cmd := exec.Command(patchbay, "console", "--no-browser", "--addr", "127.0.0.1:0", "--config", emptyConfig(t))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = replica, replica, replica
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		if err := cmd.Wait(); err != nil {
			t.Errorf("the console exited with an error: %v\n%s", err, screen.text())
		}
	})
	link := regexp.MustCompile(`http://127\.0\.0\.1:\d+/login#t=[0-9a-f]+`)
	links := func(n int) []string {
		limit := time.After(time.Minute)
		for waiting := true; waiting; {
			next, text := screen.next(), screen.text()
			if all := link.FindAllString(text, -1); len(all) >= n && strings.Contains(text, "Press Enter") {
				return all
			}
			select {
			case <-next:
			case <-limit:
				waiting = false
			}
		}
		t.Fatalf("the console printed fewer than %d links:\n%s", n, screen.text())
		return nil
	}
	links(1)
	must(screen.keys.WriteString("\n"))(t)
	var tabs []*watchedTab
	for _, url := range links(2) {
		p := newWatchedTab(t, browser)
		p.open(url)
		p.waitFor("the stream", `document.querySelector("#server-demo.ok") !== null &&
			document.querySelector("#connection.live") !== null`)
		tabs = append(tabs, p)
	}
	tabs[0].click("#server-demo form[action='/servers/stop'] button")
	tabs[1].waitFor("the state that the other browser caused", `document.querySelector("#server-demo.idle") !== null`)
	tabs[0].click("form[action='/logout'] button")
	tabs[0].waitForText("valid for two minutes")
	tabs[1].click("#server-demo form[action='/servers/restart'] button")
	tabs[1].waitFor("the next state", `document.querySelector("#server-demo.ok") !== null`)
}

func emptyConfig(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "mcp.json")
	if err := os.WriteFile(file, []byte(`{"mcpServers": {}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// attempts is what a page tries with a console at the URL base, in the browser of a person who is
// logged in: to read it, to act, to load it as a script, an image and a frame.
const attempts = `(async (base) => {
	const said = [];
	const form = new URLSearchParams({server: "demo"});
	const tries = {
		read: () => fetch(base + "/", {credentials: "include"}).then((r) => r.text()),
		readOpaque: () => fetch(base + "/", {credentials: "include", mode: "no-cors"}).then((r) => r.text()),
		act: () => fetch(base + "/servers/stop", {method: "POST", credentials: "include", mode: "no-cors", body: form})
			.then((r) => r.text()),
		stream: () => fetch(base + "/stream?page=%2F", {credentials: "include"}).then((r) => r.text()),
	};
	for (const [name, attempt] of Object.entries(tries)) {
		const text = await attempt().catch(() => "");
		if (text) { said.push(name + ": " + text.slice(0, 80)); }
	}
	for (const [name, tag] of [["script", "script"], ["image", "img"], ["frame", "iframe"]]) {
		const e = document.createElement(tag);
		const ended = new Promise((done) => { e.onload = () => done(true); e.onerror = () => done(false); });
		e.src = base + (tag === "img" ? "/explore/data?run=1" : "/");
		document.body.append(e);
		if (await ended && tag !== "iframe") { said.push(name + " loaded"); }
	}
	return said.join("\n");
})`

// A server on another port that the person visits receives no cookie of the console.
func TestConsoleCookieStaysWithTheConsole(t *testing.T) {
	w := startConsole(t, `{"mcpServers": {}}`, "--addr", "")
	p := newWatchedTab(t, startBrowser(t))
	p.open(w.url)
	p.waitFor("the console", `document.querySelector("#connection") !== null`)
	requests := make(chan string, 100)
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		requests <- r.Host + " " + r.Header.Get("Cookie")
	}))
	t.Cleanup(other.Close)
	_, port, _ := strings.Cut(strings.TrimPrefix(other.URL, "http://"), ":")
	for _, host := range []string{"127.0.0.1:" + port, "localhost:" + port, "other.localhost:" + port} {
		p.open("http://" + host + "/")
		for got := ""; got != host+" "; { // also requests for the icon of the page before
			if got = <-requests; !strings.HasSuffix(got, " ") {
				t.Fatalf("got the host and the cookie %q, want no cookie", got)
			}
		}
	}
	p.open(strings.Split(w.url, "login")[0])
	p.waitFor("the console", `document.querySelector("#connection") !== null`)
}

// A page of another site, of another port of this machine, and of a name that its owner resolves to
// this machine can neither read the console nor act in it, although the browser of the victim is
// logged in.
func TestConsoleRefusesOtherSites(t *testing.T) {
	browser := startBrowser(t)
	w := startConsole(t, `{"mcpServers": {}}`)
	base, _, _ := strings.Cut(w.url, "/login")
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, `<!doctype html><title>Prize</title><link rel=icon href=data:>
			<form method=post action=%s/servers/stop><input name=server value=demo><button>Win</button></form>`, base)
	}))
	t.Cleanup(web.Close)
	_, port, _ := strings.Cut(strings.TrimPrefix(web.URL, "http://"), ":")
	p := watchTab(t, browser) // Chromium reports what it refuses
	p.open(w.url)
	const isRunning = `document.querySelector("#server-demo.ok") !== null`
	p.waitFor("the overview", isRunning)
	for _, site := range []string{web.URL, "http://" + reboundHost + ":" + port} {
		p.open(site)
		script := fmt.Sprintf(`%s(%q)`, attempts, base)
		if said := p.read(chromedp.Evaluate[string](script, chromedp.EvalAwaitPromise)); said != "" {
			t.Errorf("a page of %s: %s", site, said)
		}
		if reports := strings.Join(p.taken(), "\n"); !strings.Contains(reports, "frame-ancestors") {
			t.Errorf("a page of %s shows the console in a frame: %s", site, reports)
		}
		p.click("button")
		p.waitForText("cross-origin request")
		p.open(base + "/")
		p.waitFor("the server that still runs", isRunning)
	}
	_, consolePort, _ := strings.Cut(strings.TrimPrefix(base, "http://"), ":")
	for _, path := range []string{"/", "/login", "/explore"} {
		p.open("http://" + reboundHost + ":" + consolePort + path)
		p.waitForText("invalid header Host")
	}
}
