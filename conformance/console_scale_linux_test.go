package conformance_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

const (
	crowdTools     = 1000
	crowdExchanges = 10_000
	// hangs is the time in milliseconds after which a page hangs. The test prints the real figures,
	// beside those of a page with the same rows and no console.
	hangs = 30_000
)

// TestConsoleScale lists and filters 1,000 tools, shows 10,000 exchanges with 160 MB of messages,
// and compares the memory of the console with the bounds of what it holds.
func TestConsoleScale(t *testing.T) {
	browser := startBrowser(t)
	crowd := build(t, ".", "./crowd")
	w := startConsole(t, `{"mcpServers": {"crowd": {"command": `+strconv.Quote(crowd)+`}}}`, "crowd")
	p := newWatchedTab(t, browser)
	p.open(w.url)
	const rows = `document.querySelectorAll("#items [data-row]").length`
	p.waitFor("the tools", rows+` === `+fmt.Sprint(crowdTools))
	base, _, _ := strings.Cut(w.url, "/login")

	p.open(base + "/explore?server=crowd&kind=tools")
	p.waitFor("the tools again", rows+` === `+fmt.Sprint(crowdTools)+" && "+settled)
	listed, parts := p.loaded(), p.read(chromedp.Evaluate[string](loadParts))
	filtered := p.painted(`const f = document.getElementById("filter"); f.value = "0042";
		f.dispatchEvent(new Event("input", {bubbles: true}))`)
	p.waitFor("the filter", `[...document.querySelectorAll("#items [data-row]")].filter((r) => !r.hidden).length === 1`)
	p.open(staticRows(t, "tool_0001 The tool 1 of many", crowdTools))
	static := p.loaded()
	t.Logf("%d tools: listed in %.0f ms (%s), filtered in %.0f ms; a static page with the rows: %.0f ms, so listing "+
		"takes %.1f times as long", crowdTools, listed, parts, filtered, static, listed/static)

	before := w.memory()
	p.open(base + "/explore?server=crowd&kind=tools&name=flood")
	p.waitFor("the form", `document.querySelector("[id='f/size']") !== null && `+settled)
	p.enter("[id='f/count']", fmt.Sprint(crowdExchanges))
	p.enter("[id='f/size']", "16000")
	p.click("#editor [data-default]")
	p.waitFor("the end of the run", `document.querySelector("#run .badge.ok") !== null`)
	p.open(base + "/traffic?q=method%3Anotifications%2Fexample")
	const newest = `Number(document.querySelector("#exchanges tr")?.id.slice(1))`
	p.waitFor("the exchanges", newest+" >= "+fmt.Sprint(crowdExchanges))
	during := w.memory()
	p.open(base + "/traffic?q=method%3Anotifications%2Fexample")
	p.waitFor("the exchanges again", `document.querySelectorAll("#exchanges tr").length >= 200 && `+settled)
	shown := p.loaded()
	p.open(base + "/traffic?q=text%3Anowhere")
	p.waitFor("no exchange", settled)
	searched := p.loaded()
	t.Logf("%d exchanges: shown in %.0f ms, all frames searched in %.0f ms; memory of the console: %d MiB before, "+
		"%d MiB after", crowdExchanges, shown, searched, before>>20, during>>20)
	for what, ms := range map[string]float64{"list": listed, "filter": filtered, "show": shown, "search": searched} {
		if ms > hangs {
			t.Errorf("%s took %.0f ms: the page hangs", what, ms)
		}
	}
	// 64 MiB of frames, as much that the collector lets grow before it runs, and what it has not
	// returned yet.
	if most := int64(4 * 64 << 20); during-before > most {
		t.Errorf("the memory of the console grew by %d bytes, more than %d", during-before, most)
	}
}

// loadParts states the parts of the time of loading a page.
const loadParts = `(([t]) => [["server", t.requestStart, t.responseStart], ["transfer", t.responseStart, t.responseEnd],
	["parsing", t.responseEnd, t.domInteractive], ["scripts", t.domInteractive, t.domContentLoadedEventEnd],
	["rest", t.domContentLoadedEventEnd, t.loadEventEnd]]
	.map(([name, a, b]) => name + " " + Math.round(b - a)).join(", ") + " ms; " +
	Math.round(t.decodedBodySize / 1024) + " KiB")(performance.getEntriesByType("navigation"))`

// loaded returns the milliseconds from the navigation to the end of the loading of the page, with
// its rows.
func (p *watchedTab) loaded() float64 {
	p.t.Helper()
	const script = `performance.getEntriesByType("navigation")[0].loadEventEnd`
	p.waitFor("the end of the loading", script+" > 0")
	return must(chromedp.Run(p.ctx, chromedp.Evaluate[float64](script)))(p.t)
}

// painted returns the milliseconds from the start of a script to the second frame that follows it.
func (p *watchedTab) painted(script string) float64 {
	p.t.Helper()
	script = `(async () => { const began = performance.now(); ` + script + `
		await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
		return performance.now() - began; })()`
	return must(chromedp.Run(p.ctx, chromedp.Evaluate[float64](script, chromedp.EvalAwaitPromise)))(p.t)
}

// staticRows returns the URL of a page with rows of a text and nothing else.
func staticRows(t *testing.T, text string, rows int) string {
	page := "<!doctype html><title>Rows</title><link rel=icon href=data:><ul>" +
		strings.Repeat("<li><a href=/x>"+text+"</a>", rows)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(page))
	}))
	t.Cleanup(web.Close)
	return web.URL
}

var resident = regexp.MustCompile(`VmRSS:\s+(\d+) kB`)

// memory returns the resident bytes of the console.
func (w *webConsole) memory() int64 {
	w.t.Helper()
	text := must(os.ReadFile(fmt.Sprintf("/proc/%d/status", w.cmd.Process.Pid)))(w.t)
	found := resident.FindSubmatch(text)
	if found == nil {
		w.t.Fatalf("no VmRSS in %s", text)
	}
	return must(strconv.ParseInt(string(found[1]), 10, 64))(w.t) << 10
}
