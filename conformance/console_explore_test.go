package conformance_test

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// TestConsoleExplore follows a new user in Explore: select a tool, enter two values, press one key, and
// read the result below the form; then answer a question of the server in its place.
func TestConsoleExplore(t *testing.T) {
	browser := startBrowser(t)
	w := startConsole(t, `{"mcpServers": {}}`)
	p := newWatchedTab(t, browser)
	p.open(w.url)
	p.waitFor("the overview", `document.querySelector("#server-demo.ok") !== null`)
	base, _, _ := strings.Cut(w.url, "/login")
	p.open(base + "/explore")
	p.waitFor("the list of tools", `document.querySelectorAll("#items [data-row]").length === 10`)
	p.enter("#filter", "add")
	p.waitFor("the filter", `[...document.querySelectorAll("#items [data-row]")].filter(r => !r.hidden).length === 1`)
	p.click("#items [data-row]:not([hidden]) a")
	p.waitFor("the form", `document.querySelector("[id='f/a']") !== null`)
	p.enter(`[id='f/a']`, "20")
	p.enter(`[id='f/b']`, "twelve")
	ctrlEnter := func() { p.do("press Ctrl+Enter", chromedp.KeyEvent("\r", chromedp.KeyModifiers(2))) }
	ctrlEnter()
	p.waitFor("the problem beside the field", `document.querySelector("[data-key='/b'] .error") !== null`)
	p.waitFor("an empty field", `(document.querySelector("[id='f/b']").value = "") === ""`)
	p.enter(`[id='f/b']`, "22")
	ctrlEnter()
	p.waitFor("the result", `document.querySelector("#result pre")?.textContent === "42"`)
	p.waitFor("the end of the run", `document.querySelector("#run .badge.ok") !== null`)
	p.waitFor("the validation", `document.querySelector("#result .badge.ok") !== null`)
	if got := p.read(chromedp.Evaluate[string](`document.querySelector("[id='f/b']").value`)); got != "22" {
		t.Errorf("after the run the field contains %q, want 22", got)
	}
	p.screenshotOn("console-explore", consoleScreens)

	p.open(base + "/explore?server=demo&kind=tools&name=greet")
	p.waitFor("the form of greet", `document.querySelector("[id='f/name']") !== null`)
	p.waitFor("the stream", `document.querySelector("#connection.live") !== null`)
	ctrlEnter()
	p.waitFor("the question", `document.querySelector("#questions [name='/name']") !== null`)
	p.screenshotOn("console-explore-question", consoleScreens)
	p.do("answer", chromedp.SendKeys(chromedp.CSS(`#questions [name='/name']`), "Ann"))
	p.click("#questions button.primary")
	p.waitFor("the greeting", `document.querySelector("#result pre")?.textContent === "Hello, Ann!"`)
}
