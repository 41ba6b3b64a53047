package conformance_test

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// TestConsoleTraffic selects a range of time in the lanes with the pointer, and sends a recorded
// call again, which the console shows first because the tool may write.
func TestConsoleTraffic(t *testing.T) {
	browser := startBrowser(t)
	w := startConsole(t, `{"mcpServers": {}}`)
	p := newWatchedTab(t, browser)
	p.open(w.url)
	p.waitFor("the overview", `document.querySelector("#server-demo.ok") !== null`)
	base, _, _ := strings.Cut(w.url, "/login")
	p.open(base + "/explore?server=demo&tool=add")
	p.waitFor("the form", `document.querySelector("[id='f/a']") !== null`)
	p.enter(`[id='f/a']`, "20")
	p.enter(`[id='f/b']`, "22")
	p.click("#editor button.primary")
	p.waitFor("the result", `document.querySelector("#result pre")?.textContent === "42"`)
	p.open(base + "/traffic")
	p.waitFor("the lanes", `document.querySelectorAll("#lanes .span").length > 0`)
	p.screenshotOn("console-traffic", consoleScreens)
	p.do("drag", chromedp.Evaluate[chromedp.Void](`(() => {
		const chart = document.querySelector("#lanes svg"), box = chart.getBoundingClientRect();
		const send = (type, part) => chart.dispatchEvent(new PointerEvent(type,
			{ bubbles: true, button: 0, clientX: box.left + part * box.width, clientY: box.top + 10 }));
		send("pointerdown", 0.25);
		send("pointermove", 0.5);
		send("pointerup", 1);
	})()`))
	p.waitFor("the range in the filter", `/^from:\S+ to:\S+Z$/.test(document.querySelector("#q").value) &&
		document.querySelector("#lanes figcaption a").textContent === "Whole time"`)

	p.open(base + "/traffic?q=method:tools/call+hop:upstream")
	p.click("#exchanges [data-primary]")
	p.waitFor("the frames", `document.querySelector("form[action='/explore/replay']") !== null`)
	p.click("form[action='/explore/replay'] button")
	p.waitFor("Explore", `location.pathname === "/explore"`)
	p.waitFor("the run or the question", `document.querySelector("#result pre")?.textContent === "42" ||
		document.querySelector("#json")?.value.includes("20")`)
}
