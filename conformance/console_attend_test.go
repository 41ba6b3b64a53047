package conformance_test

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// The focus moves from the form of a request to the question that the request causes, every screen shows the
// question, and a link leads to the question, also without scripts.
func TestConsoleQuestionIsShownEverywhere(t *testing.T) {
	axe, browser := needAxe(t), startBrowser(t)
	w := startConsole(t, `{"mcpServers": {}}`)
	base, _, _ := strings.Cut(w.url, "/login")
	p, plain := newWatchedTab(t, browser), newWatchedTab(t, browser)
	p.open(w.url)
	p.waitFor("the overview", `document.querySelector("#server-demo.ok") !== null`)
	p.open(base + "/explore?server=demo&tool=greet")
	p.waitFor("the form of greet", `document.querySelector("[id='f/name']") !== null && `+settled)
	if p.has("#alert:not([hidden])") {
		t.Error("the page asks for an answer although no server asked a question")
	}
	p.do("press Ctrl+Enter", chromedp.KeyEvent("\r", chromedp.KeyModifiers(controlKey)))
	p.waitFor("the focus on the question", `document.activeElement.matches("#questions .question") &&
		document.activeElement.getBoundingClientRect().top < innerHeight / 2`)

	p.open(base + "/metrics")
	p.waitFor("the alert", `document.querySelector("#alert a.primary")?.checkVisibility() && `+settled)
	p.hasNoBarriers("an alert", axe)
	p.shareLogin(plain)
	plain.disableScripts()
	plain.open(base + "/metrics")
	plain.click("#alert a.primary")
	plain.waitForText("asks a question")
	p.tabTo("#alert a.primary")
	p.press("\r")
	p.waitFor("the question", `location.pathname === "/explore" && location.hash.startsWith("#question-") &&
		document.querySelector(location.hash) !== null && `+settled)
	p.tabTo("#questions [name='/name']")
	p.press("A", "n", "n")
	p.do("press Ctrl+Enter", chromedp.KeyEvent("\r", chromedp.KeyModifiers(controlKey)))
	p.waitFor("the greeting", `document.querySelector("#result pre")?.textContent === "Hello, Ann!"`)
	p.waitFor("no alert", `document.querySelector("#alert").hidden`)
}

// Below a tool, a person opens the messages and standard error of the server with the keyboard, sees a call live,
// edits it and sends it again. The panel stays open on the next page.
func TestConsoleMessagesBesideTool(t *testing.T) {
	axe, browser := needAxe(t), startBrowser(t)
	w := startConsole(t, `{"mcpServers": {"noisy": {"command": "sh",
		"args": ["-c", "echo ready to serve >&2; exec PATCHBAY serve --stdio"]}}}`)
	base, _, _ := strings.Cut(w.url, "/login")
	p := newWatchedTab(t, browser)
	p.open(w.url)
	p.waitFor("the overview", `document.querySelector("#server-noisy") !== null`)
	p.open(base + "/explore?server=noisy&tool=add")
	p.waitFor("the form of add", `document.querySelector("[id='f/b']") !== null && `+settled)
	p.tabTo("#wire > summary")
	p.press("\r")
	p.waitFor("standard error", `[...document.querySelectorAll("#wire[open] pre")].some((e) =>
		e.checkVisibility() && e.textContent.includes("ready to serve"))`)
	p.enter(`[id='f/a']`, "20")
	p.enter(`[id='f/b']`, "22")
	p.do("press Ctrl+Enter", chromedp.KeyEvent("\r", chromedp.KeyModifiers(controlKey)))
	p.waitFor("the call", `document.querySelector("#wire li .data + .data")?.textContent === "tools/call add" &&
		document.querySelector("#wire li .badge.ok") !== null`)
	p.waitFor("the result in view", `document.querySelector("#result pre")?.getBoundingClientRect().top < innerHeight`)
	p.tabTo("#wire li summary")
	p.press("\r")
	p.waitFor("the messages", `document.querySelector("#wire li pre")?.textContent.includes('"method": "tools/call"')`)
	p.hasNoBarriers("messages beside a tool", axe)
	p.tabTo("#wire li [name='edit']")
	p.press("\r")
	p.waitFor("the editor", `document.querySelector("#json")?.value.includes("22") && `+settled)
	if !p.has("#wire[open]") {
		t.Error("the panel is closed on the next page")
	}
	p.enter("#json", `{"a": 20, "b": 23}`)
	p.do("press Ctrl+Enter", chromedp.KeyEvent("\r", chromedp.KeyModifiers(controlKey)))
	p.waitFor("the next result", `document.querySelector("#result pre")?.textContent === "43"`)
}
