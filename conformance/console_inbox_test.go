package conformance_test

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
)

// inboxServers contains a server whose calls need an approval, except those of its tool greet.
const inboxServers = `{"mcpServers": {"db": {"command": "PATCHBAY", "args": ["serve", "--stdio", "--tasks", "memory"]}},
	"patchbay": {"approve": ["console"], "policy": {"rules": [
		{"name": "changes", "on": ["call"], "do": "ask", "when": "tool.name != 'greet'", "reason": "changes data"}]}}}`

// shareLogin makes another browser use the login of a browser.
func (p *watchedTab) shareLogin(other *watchedTab) {
	p.t.Helper()
	set := network.SetCookiesParams{}
	p.do("read the cookies", func(ctx context.Context, target *chromedp.Target) (chromedp.Void, error) {
		all, err := cdp.Call(ctx, target, network.GetCookies, network.GetCookiesParams{})
		if err != nil {
			return chromedp.Void{}, err
		}
		for _, c := range all.Cookies {
			set.Cookies = append(set.Cookies, &network.CookieParam{Name: c.Name, Value: c.Value, Domain: c.Domain,
				Path: c.Path, HTTPOnly: c.HTTPOnly, SameSite: c.SameSite})
		}
		return chromedp.Void{}, nil
	})
	other.do("set the cookies", func(ctx context.Context, target *chromedp.Target) (chromedp.Void, error) {
		_, err := cdp.Call(ctx, target, network.SetCookies, set)
		return chromedp.Void{}, err
	})
}

// TestConsoleInbox decides about calls in two browsers, by keyboard: the call continues, the other
// browser sees the decision, a late decision is refused, and questions are answered.
func TestConsoleInbox(t *testing.T) {
	browser := startBrowser(t)
	w := startConsole(t, inboxServers)
	base, _, _ := strings.Cut(w.url, "/login")
	caller, ann, bob := newWatchedTab(t, browser), newWatchedTab(t, browser), newWatchedTab(t, browser)
	caller.open(w.url)
	caller.waitFor("the overview", `document.querySelector("#server-db") !== null`)
	for _, other := range []*watchedTab{ann, bob} {
		caller.shareLogin(other)
		other.open(base + "/")
		other.waitFor("the stream", `document.querySelector("#connection.live") !== null`)
	}
	call := func(tool string) {
		t.Helper()
		caller.open(base + "/explore?server=db&kind=tools&name=" + tool)
		caller.waitFor("the form", `document.querySelector("form[data-run]") !== null`)
		caller.waitFor("the stream", `document.querySelector("#connection.live") !== null`)
		caller.do("press Ctrl+Enter", chromedp.KeyEvent("\r", chromedp.KeyModifiers(2)))
	}
	press := func(p *watchedTab, keys ...string) {
		t.Helper()
		for _, key := range keys {
			p.do("press "+key, chromedp.KeyEvent(key))
		}
	}
	const card, noCard = `document.querySelector(".approval") !== null`, `document.querySelector(".approval") === null`

	call("roll_dice")
	ann.waitFor("the count", `document.title.startsWith("(1) ") &&
		document.querySelector("#news").textContent.includes("roll_dice")`)
	press(ann, "g", "i")
	press(bob, "g", "i")
	bob.waitFor("the request", card)
	ann.waitFor("the request", card)
	ann.screenshotOn("console-inbox", consoleScreens)
	press(ann, "j", "a", "d") // keys without a modifier decide nothing
	ann.waitFor("the focus", `document.activeElement.matches(".approval")`)
	ann.do("press Shift+A", chromedp.KeyEvent("A", chromedp.KeyModifiers(8)))
	caller.waitFor("the result", `document.querySelector("#run .badge.ok") !== null`)
	bob.waitFor("the decision of the other browser", noCard+` &&
		document.querySelector("#inbox-decided .badge.ok") !== null && !document.title.startsWith("(")`)

	call("roll_dice")
	bob.waitFor("the next request", card)
	ann.waitFor("the next request", card)
	press(bob, ".") // the page is out of date
	bob.waitFor("the pause", `document.querySelector("#connection.paused") !== null`)
	press(ann, "j")
	ann.do("press Shift+D", chromedp.KeyEvent("D", chromedp.KeyModifiers(8)))
	caller.waitFor("the refusal", `document.querySelector("#run .badge.bad") !== null`)
	bob.click(".approval [data-approve]")
	bob.waitForText("too late: denied by")

	call("greet")
	ann.waitFor("the question", `document.querySelector("#questions [name='/name']") !== null`)
	ann.screenshotOn("console-inbox-question", consoleScreens)
	ann.do("answer", chromedp.SendKeys(chromedp.CSS(`#questions [name='/name']`), "Ann"))
	ann.do("press Ctrl+Enter", chromedp.KeyEvent("\r", chromedp.KeyModifiers(2)))
	caller.waitFor("the greeting", `document.querySelector("#result pre")?.textContent === "Hello, Ann!"`)
	ann.waitForText("nothing waits")
}

// A waitingCall is a call by `patchbay call`, which waits for an approval.
type waitingCall struct {
	t    *testing.T
	done chan error
	out  bytes.Buffer
}

// call calls the tool add with a key.
func (w *remoteConsole) call(key, a, b string) *waitingCall {
	w.t.Helper()
	c := &waitingCall{t: w.t, done: make(chan error, 1)}
	cmd := exec.Command(w.binary, "call", "--no-input", "--header", "Authorization: Bearer "+key, w.endpoint, "add",
		"a="+a, "b="+b)
	cmd.Stdout, cmd.Stderr = &c.out, &c.out
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = cmd.Process.Kill() }) // fails if it ended
	go func() { c.done <- cmd.Wait() }()           // ends with the process
	return c
}

// want checks the end of the call, whose output must contain a text.
func (c *waitingCall) want(succeeds bool, text string) {
	c.t.Helper()
	err := <-c.done
	if out := c.out.String(); (err == nil) != succeeds || !strings.Contains(out, text) {
		c.t.Errorf("the call ended with %v and %q, want success %t and %q", err, out, succeeds, text)
	}
}

// TestConsoleInboxOfAGateway decides about calls of another program in two browsers: the call gets
// its result or the denial, the other browser cannot decide again, a viewer sees no arguments, and
// the audit log names the person.
func TestConsoleInboxOfAGateway(t *testing.T) {
	browser := startBrowser(t)
	w := newRemoteConsole(t)
	w.run(fmt.Sprintf(`{"mcpServers": {"db": {"command": %q, "args": ["serve", "--stdio", "--tasks", "memory"]}},
		"patchbay": {"approve": ["console"], "audit": {"args": "shape"}, "console": {"publicURL": %q},
		"policy": {"rules": [{"name": "sums", "on": ["call"], "do": "ask", "reason": "adds up"}]}}}`, w.binary, w.base),
		"--addr", "127.0.0.1:0", "--console="+w.listen)
	tabs := map[string]*watchedTab{}
	for name, role := range map[string]string{"ann": "operator", "eve": "operator", "vera": "viewer"} {
		tabs[name] = newWatchedTab(t, browser)
		w.logIn(tabs[name], w.key(name, "--console", role))
		tabs[name].waitFor("the stream of "+name, `document.querySelector("#connection.live") !== null`)
		tabs[name].open(w.base + "/inbox")
		tabs[name].waitForText("nothing waits")
	}
	ann, eve, vera, bob := tabs["ann"], tabs["eve"], tabs["vera"], w.key("bob")
	const card = `document.querySelector(".approval") !== null`

	call := w.call(bob, "20", "22")
	for name, p := range tabs {
		p.waitFor("the request for "+name, card)
		text := strings.ToLower(p.text())
		for _, want := range []string{"db add", "bob", "patchbay", "not verified", "sums", "adds up", "left",
			"definition"} {
			if !strings.Contains(text, want) {
				t.Errorf("the page of %s lacks %q:\n%s", name, want, text)
			}
		}
		for _, only := range []string{`"a": 20`, "approve once"} {
			if strings.Contains(text, only) != (p != vera) {
				t.Errorf("the page of %s contains %q: %t", name, only, p == vera)
			}
		}
	}
	eve.do("pause", chromedp.KeyEvent(".")) // the page is out of date
	eve.waitFor("the pause", `document.querySelector("#connection.paused") !== null`)
	ann.click(".approval [data-approve]")
	call.want(true, "42")
	eve.click(".approval [data-deny]")
	eve.waitForText("too late: approved once by ann")
	eve.open(w.base + "/inbox")
	eve.waitFor("the decision", `document.querySelector("#inbox-decided .badge.ok") !== null`)

	call = w.call(bob, "1", "2")
	ann.waitFor("the next request", card)
	eve.waitFor("the next request", card)
	eve.click(".approval [data-deny]")
	call.want(false, "has not approved")
	ann.waitFor("the decision of eve", `document.querySelector("#inbox-decided .badge.bad") !== null &&
		document.querySelector(".approval") === null`)

	out := string(must(exec.Command(w.binary, "gateway", "audit", "query", "--config", w.file, "--json").Output())(t))
	for _, want := range []string{`"action":"approve"`, `"approver":"ann patchbay:key"`, `"action":"deny"`,
		`"approver":"eve patchbay:key"`} {
		if !strings.Contains(out, want) {
			t.Errorf("the audit log lacks %s:\n%s", want, out)
		}
	}
}

// TestConsoleInboxTask shows the question of a task in the Inbox, and answers it from the list of tasks; the task
// continues.
func TestConsoleInboxTask(t *testing.T) {
	browser := startBrowser(t)
	w := startConsole(t, `{"mcpServers": {}}`)
	base, _, _ := strings.Cut(w.url, "/login")
	caller, ann := newWatchedTab(t, browser), newWatchedTab(t, browser)
	caller.open(w.url)
	caller.waitFor("the overview", `document.querySelector("#server-demo.ok details.tools") !== null`)
	caller.shareLogin(ann)
	ann.open(base + "/inbox")
	ann.waitForText("nothing waits")
	caller.open(base + "/explore?server=demo&kind=tools&name=publish")
	caller.waitFor("the form", `document.querySelector("[id='f/title']") !== null`)
	caller.waitFor("the stream", `document.querySelector("#connection.live") !== null`)
	caller.do("enter the title", chromedp.SendKeys(chromedp.CSS(`[id='f/title']`), "News"))
	caller.click("[name='at-task']")
	caller.do("press Ctrl+Enter", chromedp.KeyEvent("\r", chromedp.KeyModifiers(2)))
	const asked = `document.querySelector("#questions form") !== null`
	ann.waitFor("the question of the task", asked)
	caller.waitFor("the question in the run", asked)
	caller.waitForText("input_required")
	ann.waitForText("of publish")
	ann.screenshotOn("console-inbox-task", consoleScreens)
	ann.open(base + "/tasks")
	const answer = `#tasks form[action="/explore/task"] button`
	ann.waitFor("the button", `document.querySelector('`+answer+`') !== null`)
	ann.screenshotOn("console-tasks-answer", consoleScreens)
	ann.click(answer)
	ann.waitFor("the question in the same run", asked)
	if got := ann.location(); !strings.Contains(got, "run=1") {
		t.Errorf("the button opens %s, want the run that waits for the task", got)
	}
	ann.do("confirm", chromedp.Evaluate[chromedp.Void](
		`{ document.querySelector("#questions [name='/publish']").value = "true"; }`))
	ann.click("#questions button[value=accept][data-default]")
	caller.waitFor("the result", `document.querySelector("#run .badge.ok") !== null`)
	caller.waitFor("the answered question", `document.querySelector("#questions .answered") !== null`)
	ann.open(base + "/inbox")
	ann.waitForText("nothing waits")
}

// TestConsoleInboxSampling shows the answer of a program to a sampling request, and sends it after a
// click.
func TestConsoleInboxSampling(t *testing.T) {
	browser := startBrowser(t)
	w := startConsole(t, `{"mcpServers": {}}`, "--sample-with", "echo A short story.")
	base, _, _ := strings.Cut(w.url, "/login")
	p := newWatchedTab(t, browser)
	p.open(w.url)
	p.waitFor("the overview", `document.querySelector("#server-demo.ok details.tools") !== null`)
	p.open(base + "/explore?server=demo&kind=tools&name=summarize")
	p.waitFor("the stream", `document.querySelector("#connection.live") !== null`)
	p.do("enter the text", chromedp.SendKeys(chromedp.CSS(`[id='f/text']`), "A long story"))
	p.do("press Ctrl+Enter", chromedp.KeyEvent("\r", chromedp.KeyModifiers(2)))
	p.waitFor("the question", `document.querySelector("#questions button[value=draft]") !== null`)
	p.open(base + "/inbox")
	p.waitFor("the stream", `document.querySelector("#connection.live") !== null`)
	if !p.has("#inbox-elsewhere[hidden]") {
		t.Error("the question of the run is listed as a question of another caller")
	}
	p.click("#questions button[value=draft]")
	p.waitFor("the answer", `document.querySelector("#questions button[value=send]") !== null`)
	p.waitForText("A short story.")
	p.screenshotOn("console-inbox-sampling", consoleScreens)
	p.click("#questions button[value=send]")
	p.waitForText("nothing waits")
	p.open(base + "/explore?server=demo&kind=tools&name=summarize")
	p.waitFor("the result", `document.querySelector("#result")?.textContent.includes("A short story.")`)
}

// TestConsoleServer opens each part of the page of a server, and the log.
func TestConsoleServer(t *testing.T) {
	browser := startBrowser(t)
	w := startConsole(t, `{"mcpServers": {"noisy": {"command": "sh", "env": {"TOKEN": "s3cret-value"},
		"args": ["-c", "echo \"starting with $TOKEN\" >&2; exec PATCHBAY serve --stdio --tasks memory"]}},
		"patchbay": {"servers": {"noisy": {"timeout": "30s"}}}}`)
	base, _, _ := strings.Cut(w.url, "/login")
	p := newWatchedTab(t, browser)
	p.open(w.url)
	p.waitFor("the overview", `document.querySelector("#server-noisy") !== null`)
	p.open(base + "/server?server=noisy")
	p.waitFor("the stream", `document.querySelector("#connection.live") !== null`)
	p.click("#server-head form[action='/servers/restart'] button")
	p.waitFor("the state", `document.querySelector("#server-head .badge.ok") !== null`)
	p.screenshotOn("console-server", consoleScreens)
	for tab, want := range map[string]string{"configuration": "30s", "instances": "2026-07-28",
		"stderr": "starting with", "login": "log in"} {
		p.open(base + "/server?server=noisy&tab=" + tab)
		p.waitForText(want)
		p.screenshotOn("console-server-"+tab, consoleScreens)
		if text := p.text(); strings.Contains(text, "s3cret") {
			t.Errorf("%s contains a secret:\n%s", tab, text)
		}
	}
	p.open(base + "/logs?server=noisy")
	p.waitForText("starting with")
	p.screenshotOn("console-logs", consoleScreens)
	p.enter("#q", "nothing like this")
	p.do("press Enter", chromedp.KeyEvent("\r"))
	p.waitFor("the filter", fmt.Sprintf("document.querySelectorAll(%q).length === 0", "#lines li"))
}
