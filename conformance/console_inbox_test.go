package conformance_test

import (
	"context"
	"fmt"
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
