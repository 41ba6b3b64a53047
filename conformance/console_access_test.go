package conformance_test

import (
	"os"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// needAxe returns the text of axe-core, which finds barriers in a page.
func needAxe(t *testing.T) string {
	t.Helper()
	needNode(t)
	return string(must(os.ReadFile("node_modules/axe-core/axe.min.js"))(t))
}

// accessScreens are the sizes and themes in which each page must be usable.
var accessScreens = []screen{
	{"wide screen", 1280, 800, "light", nil}, {"dark wide screen", 1280, 800, "dark", nil},
	{"phone", 390, 844, "light", phone}, {"dark phone", 390, 844, "dark", phone},
	{"wide screen at 400 %", 320, 256, "light", nil},
}

// findBarriers returns the serious and critical findings of axe-core, each with its elements. Its
// argument contains options of axe-core.
const findBarriers = `((options) => axe.run(document, {resultTypes: ["violations"], preload: false, iframes: false,
	...options}).then(({violations}) => violations
		.filter(({impact}) => impact === "serious" || impact === "critical")
		.map((v) => v.id + " (" + v.impact + "): " + v.help + "\n" + v.nodes.slice(0, 5).map(({html, failureSummary}) =>
			"  " + html.slice(0, 300) + "\n  " + failureSummary.replaceAll("\n", "\n    ")).join("\n")).join("\n")))`

// A dark page differs from the same page in its colours only.
const (
	allRules   = `({rules: {"target-size": {enabled: true}}})`
	colorRules = `({runOnly: ["color-contrast", "link-in-text-block"]})`
)

// hasNoBarriers examines the present state of a page in each size and theme.
func (p *watchedTab) hasNoBarriers(name, axe string) {
	p.t.Helper()
	p.do("load axe-core", chromedp.Evaluate[chromedp.Void](axe+"\n;undefined"))
	for _, s := range accessScreens {
		p.showOn(s)
		rules := allRules
		if s.scheme == "dark" {
			rules = colorRules
		}
		if found := p.read(chromedp.Evaluate[string](findBarriers+rules, chromedp.EvalAwaitPromise)); found != "" {
			p.t.Errorf("%s on a %s: %s", name, s.name, found)
		}
		if p.scrollsSideways() {
			p.t.Errorf("%s scrolls horizontally on a %s", name, s.name)
		}
	}
	p.do("restore the viewport", chromedp.EmulateReset())
}

// TestConsoleAccess examines each screen of the navigation, the page that its first row opens, and
// the pages outside the navigation. A new screen is examined without a change of this test.
func TestConsoleAccess(t *testing.T) {
	axe, browser := needAxe(t), startBrowser(t)
	w := startConsole(t, consoleServers)
	p := newWatchedTab(t, browser)
	base, _, _ := strings.Cut(w.url, "/login")
	p.open(base + "/")
	p.waitForText("valid for two minutes")
	p.hasNoBarriers("the login page", axe)
	p.open(w.url)
	p.waitFor("the overview", `document.querySelector("#server-demo.ok details.tools") !== null`)
	p.click("#server-crawler form[action='/servers/restart'] button")
	p.waitFor("the failed server", `document.querySelector("#server-crawler .problem") !== null`)
	const links = `[...document.querySelectorAll("nav[aria-label='Screens'] a")].map((a) => a.href).join("\n")`
	screens := strings.Fields(p.read(chromedp.Evaluate[string](links)))
	if len(screens) < 3 {
		t.Fatalf("got the screens %q, want those of the navigation", screens)
	}
	runATool(p, base)
	for _, at := range screens {
		p.open(at)
		name := "the screen " + strings.TrimPrefix(at, base)
		p.waitFor(name, settled)
		p.hasNoBarriers(name, axe)
		const first = `document.querySelector("main [data-row] a[data-primary]")?.href ?? ""`
		if row := p.read(chromedp.Evaluate[string](first)); row != "" {
			p.open(row)
			p.waitFor("the first row of "+name, settled)
			p.hasNoBarriers("the first row of "+name+" at "+strings.TrimPrefix(row, base), axe)
		}
	}
	p.open(base + "/doctor?server=crawler")
	p.click("form[action='/doctor/run'] button")
	p.waitForText("copy report")
	p.hasNoBarriers("the doctor", axe)
	p.open(base + "/none")
	p.waitForText("there is no page")
	p.hasNoBarriers("the page of an error", axe)
	p.do("show the keys", chromedp.KeyEvent("?"))
	p.waitFor("the keys", `document.querySelector("dialog[open]") !== null`)
	p.hasNoBarriers("the keys", axe)
	p.do("close the keys", chromedp.KeyEvent("\x1b"))
	p.do("open the palette", chromedp.KeyEvent("k", chromedp.KeyModifiers(controlKey)))
	p.waitFor("the palette", `document.querySelectorAll("dialog.palette[open] li").length > 3`)
	p.hasNoBarriers("the palette", axe)
}

// settled reports whether a page and its stream are loaded. A page without a stream shows no
// connection.
const settled = `document.readyState === "complete" &&
	(!("live" in document.body.dataset) || document.querySelector("#connection.live") !== null)`

// runATool leaves a result in Explore, and exchanges in Traffic.
func runATool(p *watchedTab, base string) {
	p.t.Helper()
	p.open(base + "/explore?server=demo&kind=tools&name=add")
	p.waitFor("the form of add", `document.querySelector("[id='f/b']") !== null && `+settled)
	p.enter(`[id='f/a']`, "20")
	p.enter(`[id='f/b']`, "22")
	p.click("#editor [data-default]")
	p.waitFor("the result", `document.querySelector("#result pre")?.textContent === "42"`)
}
