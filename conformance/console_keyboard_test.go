package conformance_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// Modifiers of key events.
const (
	controlKey = 2
	shiftKey   = 8
)

// press presses keys one after the other.
func (p *watchedTab) press(keys ...string) {
	p.t.Helper()
	for _, key := range keys {
		p.do("press "+key, chromedp.KeyEvent(key, withText))
	}
}

// withText makes a key a single event, as a keyboard does: a page that handles the key thereby
// prevents the insertion of its text. Otherwise the text would follow in an event of its own.
func withText(k *input.DispatchKeyEventParams) {
	switch {
	case k.Type == kb.KeyChar:
		k.Modifiers |= controlKey // KeyEvent leaves such an event out
	case k.Type == kb.KeyDown && k.Key == "Enter":
		k.Text = "\r"
	case k.Type == kb.KeyDown && len(k.Key) == 1:
		k.Text = k.Key
	}
}

// tabTo presses Tab until an element has the focus.
func (p *watchedTab) tabTo(selector string) {
	p.t.Helper()
	const most = 200 // elements of a page that take the focus
	script := fmt.Sprintf("document.activeElement?.matches(%q) === true", selector)
	for range most {
		p.press("\t")
		if must(chromedp.Run(p.ctx, chromedp.Evaluate[bool](script)))(p.t) {
			return
		}
	}
	p.t.Fatalf("Tab does not reach %s:\n%s", selector, p.text())
}

// TestConsoleKeyboard finds a tool, runs it, repeats and copies the run, compares two exchanges,
// opens screens and tools with the palette, and switches the keys off, without a pointer.
func TestConsoleKeyboard(t *testing.T) {
	browser := startBrowser(t)
	w := startConsole(t, `{"mcpServers": {}}`)
	p := newWatchedTab(t, browser)
	p.open(w.url)
	p.waitFor("the overview", `document.querySelector("#server-demo.ok") !== null && `+settled)
	p.press("g", "e")
	p.waitFor("Explore", `location.pathname === "/explore" && `+settled+` &&
		document.querySelectorAll("#items [data-row]").length === 10`)
	p.press("/", "a", "d", "d", "\x1b")
	p.waitFor("the filter", `[...document.querySelectorAll("#items [data-row]")].filter((r) => !r.hidden).length === 1`)
	p.press("j", "\r")
	p.waitFor("the form of add", `document.querySelector("[id='f/b']") !== null && `+settled)
	p.tabTo("[id='f/a']")
	p.press("2", "0")
	p.tabTo("[id='f/b']")
	p.press("2", "2")
	p.do("press Ctrl+Enter", chromedp.KeyEvent("\r", chromedp.KeyModifiers(controlKey)))
	p.waitFor("the result", `document.querySelector("#result pre")?.textContent === "42"`)
	p.waitFor("the end of the submission", `document.querySelector("#editor form[aria-busy]") === null`)
	p.press("\x1b", "r")
	p.waitFor("the second run", `document.querySelector("#run h3")?.textContent === "Run 2"`)
	p.press("c")
	p.waitFor("the copy", `document.querySelector("#toast")?.textContent.includes("Copied")`)

	p.press("g", "t")
	p.waitFor("Traffic", `location.pathname === "/traffic" && document.querySelector("#exchanges tr") !== null &&
		`+settled)
	p.press("j", "j", "k", "\r")
	p.waitFor("the exchange", `document.querySelector("#frames") !== null && `+settled)
	p.press("x")
	p.waitFor("the comparison", `location.search.includes("with=") && `+settled)

	palette := func() {
		t.Helper()
		p.do("press Ctrl+K", chromedp.KeyEvent("k", chromedp.KeyModifiers(controlKey)))
		p.waitFor("the palette", `document.querySelector("dialog.palette[open]") !== null`)
	}
	palette()
	p.press("r", "o", "l", "l")
	p.waitFor("the tool", `document.querySelector(".palette [aria-selected=true]")?.textContent.includes("roll_dice")`)
	p.press("\r")
	p.waitFor("the tool in Explore", `document.querySelector("#item h2")?.textContent === "roll_dice" && `+settled)
	palette()
	p.press("\x1b")
	p.waitFor("no palette", `document.querySelector("dialog[open]") === null`)

	p.press("?")
	p.waitFor("the keys", `document.querySelector("dialog[open] input[type=checkbox]:checked") !== null`)
	p.tabTo("dialog input")
	p.press(" ", "\x1b")
	p.waitFor("no keys", `document.querySelector("dialog[open]") === null`)
	p.press("g", "o", "j")
	palette() // with Ctrl it still opens
	if at := p.location(); !strings.Contains(at, "/explore") {
		t.Errorf("with keys off, g o opened %s", at)
	}
	p.press("o", "v", "e", "r", "\r")
	p.waitFor("the overview", `location.pathname === "/" && `+settled)
}

// Without scripts, forms and links run a tool and show its exchange.
func TestConsoleExploreWithoutScripts(t *testing.T) {
	browser := startBrowser(t)
	w := startConsole(t, `{"mcpServers": {}}`)
	p := newWatchedTab(t, browser)
	p.disableScripts()
	p.open(w.url)
	p.enter("#token", w.url)
	p.click("#login button")
	p.waitForText("servers ready")
	base, _, _ := strings.Cut(w.url, "/login")
	p.open(base + "/explore?server=demo&kind=tools&name=add")
	for !p.has(`[id='f/b']`) { // the console connects after the page
		p.open(base + "/explore?server=demo&kind=tools&name=add")
	}
	p.enter(`[id='f/a']`, "20")
	p.enter(`[id='f/b']`, "22")
	p.click("#editor [data-default]")
	p.waitFor("the run", `document.readyState === "complete" && document.querySelector("#run h3") !== null`)
	for !p.has("#result pre") {
		p.open(p.read(chromedp.Evaluate[string](`document.querySelector("[data-refresh]").href`)))
	}
	p.waitFor("the result", `document.querySelector("#result pre")?.textContent === "42"`)
	p.open(base + "/traffic?q=method%3Atools%2Fcall")
	p.click("#exchanges a[data-primary]")
	p.waitForText("received message")
}

// disableScripts makes pages run no scripts.
func (p *tab) disableScripts() {
	p.t.Helper()
	p.do("disable scripts", func(ctx context.Context, target *chromedp.Target) (chromedp.Void, error) {
		_, err := cdp.Call(ctx, target, emulation.SetScriptExecutionDisabled,
			emulation.SetScriptExecutionDisabledParams{Value: true})
		return chromedp.Void{}, err
	})
}
