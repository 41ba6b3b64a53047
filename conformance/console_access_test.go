package conformance_test

import (
	"os"
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
	{"phone", 360, 800, "light", phone}, {"dark phone", 360, 800, "dark", phone},
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
	for _, s := range accessScreens {
		p.showOn(s)
		if p.read(chromedp.Evaluate[string]("typeof axe")) == "undefined" { // a page may load again by itself
			p.do("load axe-core", chromedp.Evaluate[chromedp.Void](axe+"\n;undefined"))
		}
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

// TestConsoleAccess examines each state of the screens, light and dark, on a wide screen, on a
// phone and at 400 %.
func TestConsoleAccess(t *testing.T) {
	axe, browser := needAxe(t), startBrowser(t)
	see := func(p *watchedTab, name string) {
		t.Helper()
		p.hasNoBarriers(name, axe)
	}
	visitConsole(t, browser, see)
	visitGateway(t, browser, see)
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
