package conformance_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// A consoleState is a page of a console in a state that is worth a look.
type consoleState struct {
	name, path string
	// prepare brings the page, which is open and loaded, into the state.
	prepare func(p *watchedTab)
}

// clicks returns a preparation: a click, and the wait for an element.
func clicks(button, then string) func(*watchedTab) {
	return func(p *watchedTab) {
		p.t.Helper()
		p.click(button)
		p.waitFor(then, exists(then)+" && "+settled)
	}
}

// examines waits for the report of a new examination. The page may contain an earlier report.
func examines(p *watchedTab) {
	p.t.Helper()
	p.do("mark the page", chromedp.Evaluate[chromedp.Void](`document.body.dataset.old = ""`))
	p.click("form[action='/doctor/run'] button:not([disabled])")
	p.waitFor("the report", `!("old" in document.body.dataset) && `+exists("#report")+" && "+settled)
}

// waitsFor returns a preparation: the wait for an element.
func waitsFor(then string) func(*watchedTab) {
	return func(p *watchedTab) {
		p.t.Helper()
		p.waitFor(then, exists(then))
	}
}

// gatewayStates are the states of the console of a staffedGateway, in the order in which they are
// made.
var gatewayStates = []consoleState{
	{"overview", "/", waitsFor("#server-github.ok details.tools")},
	{"server", "/server?server=github", nil},
	{"server-configuration", "/server?server=github&tab=configuration", nil},
	{"server-instances", "/server?server=github&tab=instances", nil},
	{"server-stderr", "/server?server=crawler&tab=stderr", nil},
	{"server-login", "/server?server=github&tab=login", nil},
	{"explore", "/explore?server=github&kind=tools&name=add", func(p *watchedTab) {
		p.waitFor("the form", exists("[id='f/b']"))
		p.enter("[id='f/a']", "20")
		p.enter("[id='f/b']", "22")
		p.click("#editor [data-default]")
		p.waitFor("the result", says("#result pre", "42"))
	}},
	{"explore-invalid", "/explore?server=github&kind=tools&name=add", func(p *watchedTab) {
		p.waitFor("the form", exists("[id='f/b']"))
		p.enter("[id='f/a']", "twenty")
		p.click("#editor [data-default]")
		p.waitFor("the problem", exists("[data-key='/a'] .error"))
	}},
	{"explore-json", "/explore?server=github&kind=tools&name=add", clicks("#editor button[value=json]", "#json")},
	{"explore-question", "/explore?server=github&kind=tools&name=greet", func(p *watchedTab) {
		p.waitFor("the form", exists("[id='f/name']"))
		p.click("#editor [data-default]")
		p.waitFor("the question", exists("#questions [name='/name']"))
	}},
	{"explore-schema", "/explore?server=github&kind=tools&name=add&tab=schema", nil},
	{"explore-definition", "/explore?server=github&kind=tools&name=add&tab=definition", nil},
	{"explore-prompt", "/explore?server=github&kind=prompts&name=review", waitsFor("[id='f/code']")},
	{"explore-resources", "/explore?server=github&kind=resources", waitsFor("#items [data-row]")},
	{"explore-templates", "/explore?server=github&kind=templates", waitsFor("#items")},
	{"explore-methods", "/explore?server=github&kind=methods&name=ping", waitsFor("#json")},
	{"explore-failed", "/explore?server=crawler", waitsFor("#explore-state .notice.bad")},
	{"explore-app", "/explore?server=github&kind=tools&name=roll_dice", func(p *watchedTab) {
		p.click("#editor [data-default]")
		p.waitFor("the end of the run", exists(".app-open button")+" && "+says("#wire summary", "roll_dice"))
		p.click(".app-open button")
		p.waitFor("the result in the app", exists("#app-stage iframe")+" && "+logged("ui/notifications/tool-result"))
	}},
	{"traffic", "/traffic", waitsFor("#exchanges tr")},
	{"traffic-selected", "/traffic?q=method%3Atools%2Fcall",
		clicks("#exchanges tr:first-child a[data-primary]", "#frames pre")},
	{"traffic-compared", "/traffic?q=method%3Atools%2Fcall+text%3Aadd", func(p *watchedTab) {
		clicks("#exchanges tr:first-child a[data-primary]", "#frames pre")(p)
		clicks("#exchanges tr:last-child [data-do=x]", "#frames .diff")(p)
	}},
	{"pins", "/pins", waitsFor(".pin")},
	{"pins-approved", "/pins?status=approved", waitsFor("main table")},
	{"pins-removed", "/pins?status=removed", nil},
	{"policy", "/policy", nil},
	{"policy-test", "/policy", func(p *watchedTab) {
		p.do("select the server", chromedp.SendKeys(chromedp.CSS("#test-server"), "github"))
		p.enter("#test-tool", "deploy")
		p.enter("#args", `{"environment": "production"}`)
		clicks("#test form button", "#test .decision")(p)
	}},
	{"policy-recorded", "/policy", func(p *watchedTab) {
		p.enter("#policy", `{"rules": [{"name": "no-sums", "do": "deny", "when": "tool.name == 'add'"}]}`)
		clicks("#recorded form button", "#recorded .decision")(p)
	}},
	{"audit", "/audit", waitsFor("#records tr")},
	{"audit-call", "/audit?tool=*deploy", clicks("#records a[data-primary]", "#call article")},
	{"logs", "/logs", waitsFor("#lines li")},
	{"limits", "/limits", waitsFor("#limited-callers tbody tr")},
	{"metrics", "/metrics", waitsFor(".chart")},
	{"metrics-table", "/metrics", clicks(".chart figcaption a", "main table")},
	{"keys", "/keys", waitsFor("main table")},
	{"keys-new", "/keys", func(p *watchedTab) {
		p.enter("#name", "robot"+fmt.Sprint(len(p.t.Name())))
		clicks(".key-form button.primary", "#secret")(p)
	}},
	{"settings", "/settings", waitsFor("#edit")},
	{"settings-changes", "/settings", func(p *watchedTab) {
		p.do("edit the text", chromedp.SendKeys(chromedp.CSS("#text"), "// Edited by ann.\n"))
		clicks("form[action='/settings/check'] button", "#edit .diff")(p)
	}},
	{"doctor", "/doctor?server=crawler", examines},
	{"doctor-remote", "/doctor?server=search", examines},
	{"error", "/none", nil},
	{"keys-help", "/", func(p *watchedTab) {
		p.do("show the keys", chromedp.KeyEvent("?"))
		p.waitFor("the keys", exists("dialog[open]"))
	}},
	{"palette", "/", func(p *watchedTab) {
		p.do("open the palette", chromedp.KeyEvent("k", chromedp.KeyModifiers(controlKey)))
		p.waitFor("the palette", `document.querySelectorAll("dialog.palette[open] li").length > 3`)
	}},
}

// visitConsole calls see in the states of the console of a command that a gateway does not have.
func visitConsole(t *testing.T, browser context.Context, see func(p *watchedTab, name string)) {
	t.Helper()
	w := startConsole(t, consoleServers, "--checks", filepath.Join(t.TempDir(), "calls.json"))
	link := newLink(t, consoleAddr.FindString(w.url))
	w.url = consoleAddr.ReplaceAllString(w.url, link.addr)
	p := newWatchedTab(t, browser)
	base, _, _ := strings.Cut(w.url, "/login")
	p.open(base + "/")
	p.waitForText("valid for two minutes")
	see(p, "login")
	p.open(w.url)
	p.waitFor("the overview", exists("#server-demo.ok details.tools"))
	see(p, "overview")
	for _, path := range []string{"/inbox", "/pins", "/traffic", "/logs", "/settings", "/doctor?server=demo"} {
		p.open(base + path)
		p.waitFor(path, settled)
		see(p, strings.Trim(strings.NewReplacer("?server=demo", "", "/", "").Replace(path), "-")+"-unused")
	}
	runATool(p, base)
	clicks("#result a[href^='/explore/save']", "main form [data-default]")(p)
	see(p, "explore-save")
	p.open(base + "/")
	p.waitFor("the overview again", exists("#server-demo details.tools")+" && "+settled)
	p.click("#server-demo details summary")
	link.cut()
	p.waitFor("the message", exists("#banner.lost:not([hidden])"))
	see(p, "disconnected")
	link.restore()
}

// visitGateway calls see in each state of the console of a gateway, and in each further screen of
// the navigation.
func visitGateway(t *testing.T, browser context.Context, see func(p *watchedTab, name string)) {
	t.Helper()
	g := startStaffedGateway(t)
	p := newWatchedTab(t, browser)
	p.open(g.base + "/")
	p.waitForText("enter a key")
	see(p, "login-key")
	g.enterConsole(p, "ann")
	g.fillScreens(p)
	for _, s := range gatewayStates {
		p.open(g.base + s.path)
		p.waitFor(s.name, settled)
		if s.prepare != nil {
			s.prepare(p)
		}
		p.waitFor("no messages", `document.querySelector("#toast").childElementCount === 0`)
		see(p, s.name)
	}
	p.open(g.base + "/inbox")
	p.waitFor("the question of the run", exists("#questions form")+" && "+settled)
	see(p, "inbox-question")
	p.click("#questions button[value=decline]")
	p.waitFor("no question", "!("+exists("#questions form")+")")
	call := make(chan error, 1)
	go func() {
		_, err := g.connect("ci").CallTool(t.Context(), "github__increment", nil)
		call <- err
	}()
	p.open(g.base + "/inbox")
	p.waitFor("the request", exists(".approval")+" && "+settled)
	see(p, "inbox")
	p.click(".approval a[href*='always=']")
	p.waitFor("the confirmation", exists(".approval button[value=always]")+" && "+settled)
	see(p, "inbox-always")
	p.click(".approval button[value=always]")
	if err := <-call; err != nil {
		t.Errorf("the approved call: %v", err)
	}
	// The form opens the Inbox again.
	p.waitFor("the decision", `location.pathname === "/inbox" && `+exists("#inbox-decided tr td")+" && "+settled)
	see(p, "inbox-decided")
	const links = `[...document.querySelectorAll("nav[aria-label='Screens'] a")].map((a) => a.pathname).join("\n")`
	for _, path := range strings.Fields(p.read(chromedp.Evaluate[string](links))) {
		if path != "/inbox" && !slices.ContainsFunc(gatewayStates, func(s consoleState) bool {
			at, _, _ := strings.Cut(s.path, "?")
			return at == path
		}) {
			p.open(g.base + path)
			p.waitFor(path, settled)
			see(p, strings.Trim(path, "/"))
		}
	}
}

// fillScreens makes callers use the gateway, starts each server, and changes a definition.
func (g *staffedGateway) fillScreens(p *watchedTab) {
	g.t.Helper()
	g.useTools(g.connect("ci"))
	g.changeDefinition()
	for server, state := range map[string]string{"files": isChanged, "crawler": exists("#server-crawler .problem"),
		"search": exists("#server-search .problem")} {
		p.click("#server-" + server + " form[action='/servers/restart'] button")
		p.waitFor("the state of "+server, state)
	}
}
