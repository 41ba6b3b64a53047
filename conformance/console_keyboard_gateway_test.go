package conformance_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// A keyboardUser uses pages with keys only, with or without scripts.
type keyboardUser struct {
	*watchedTab
	scripts bool
}

// isLoaded reports whether a page is loaded, with or without scripts.
const isLoaded = `document.readyState === "complete"`

// follow presses keys that open a page, and waits for the page.
func (k *keyboardUser) follow(keys ...string) {
	k.t.Helper()
	k.do("mark the page", chromedp.Evaluate[chromedp.Void](`window.isOld = true`))
	k.press(keys...)
	ready := isLoaded
	if k.scripts {
		ready = settled
	}
	k.waitFor("the next page", `window.isOld === undefined && `+ready)
}

// goTo opens a screen, whose key is shown beside its name.
func (k *keyboardUser) goTo(key string) {
	k.t.Helper()
	if k.scripts {
		k.follow("g" + key) // at once: g waits for a moment only
		return
	}
	k.tabTo("nav [data-key=" + key + "]")
	k.follow("\r")
}

// submit sends the form of the button. Forms that scripts send do not open a page.
func (k *keyboardUser) submit(button string) {
	k.t.Helper()
	k.tabTo(button)
	if k.scripts {
		k.press("\r")
		return
	}
	k.follow("\r")
}

// fill tabs to a field and types a text.
func (k *keyboardUser) fill(field, text string) {
	k.t.Helper()
	k.tabTo(field)
	k.press(text)
}

// sees waits until the page fulfills a condition. Without scripts it refreshes the page.
func (k *keyboardUser) sees(what, condition string) {
	k.t.Helper()
	if k.scripts {
		k.waitFor(what, condition+" && "+settled)
		return
	}
	const most = 200 // refreshes of a page
	for range most {
		if must(chromedp.Run(k.ctx, chromedp.Evaluate[bool](condition)))(k.t) {
			return
		}
		k.tabTo("[data-refresh]")
		k.follow("\r")
	}
	k.t.Fatalf("no %s after %d refreshes at %s\n%s", what, most, k.location(), k.text())
}

// exists returns a condition for sees.
func exists(selector string) string {
	return fmt.Sprintf("document.querySelector(%q) !== null", selector)
}

// says returns a condition for sees: the text of an element contains another text.
func says(selector, text string) string {
	return fmt.Sprintf(`document.querySelector(%q)?.textContent.includes(%q) === true`, selector, text)
}

// TestConsoleKeyboardInGateway uses each screen of a gateway without a pointer, with scripts and
// without.
func TestConsoleKeyboardInGateway(t *testing.T) {
	browser := startBrowser(t)
	for _, scripts := range []bool{true, false} {
		t.Run(fmt.Sprintf("scripts=%t", scripts), func(t *testing.T) {
			g := startStaffedGateway(t)
			k := &keyboardUser{newWatchedTab(t, browser), scripts}
			if !scripts {
				k.disableScripts()
			}
			k.open(g.base + "/")
			k.fill("#token", g.keys["ann"])
			k.follow("\r")
			caller := g.connect("ci")
			g.useTools(caller)
			for _, part := range []struct {
				name string
				use  func(*keyboardUser, *staffedGateway)
			}{
				{"overview", useOverview}, {"pins", usePins}, {"policy", usePolicy}, {"audit", useAudit},
				{"keys", useKeys}, {"limits and metrics", useFigures}, {"doctor", useDoctor}, {"inbox", useInbox},
				{"logs", useLogs}, {"settings", useSettings},
			} {
				part.use(k, g)
				if t.Failed() {
					t.Fatalf("the failure is in %s", part.name)
				}
			}
		})
	}
}

// useOverview stops and starts a server, and opens each part of its page.
func useOverview(k *keyboardUser, _ *staffedGateway) {
	k.goTo("o")
	k.sees("the server", exists("#server-github.ok"))
	k.submit("#server-github form[action='/servers/stop'] button")
	k.sees("the stopped server", exists("#server-github.idle"))
	k.submit("#server-github form[action='/servers/restart'] button")
	k.sees("the started server", exists("#server-github.ok"))
	k.tabTo("#server-github [data-primary]")
	k.follow("\r")
	for _, tab := range []string{"configuration", "instances", "stderr", "login"} {
		k.tabTo("a[href*='tab=" + tab + "']")
		k.follow("\r")
		if !k.has("a[aria-current][href*='tab=" + tab + "']") {
			k.t.Errorf("the page does not show %s:\n%s", tab, k.text())
		}
	}
}

// isChanged reports whether the server files lists fewer tools than before its change.
const isChanged = `document.querySelector("#server-files .facts div:nth-child(2) dd")?.textContent === "9"`

// usePins approves a changed definition.
func usePins(k *keyboardUser, g *staffedGateway) {
	g.changeDefinition()
	k.goTo("o")
	k.submit("#server-files form[action='/servers/restart'] button")
	k.sees("the server with the change", isChanged)
	k.goTo("p")
	k.sees("the change", exists(".pin"))
	if !strings.Contains(k.text(), "<U+200B>") {
		k.t.Errorf("the page does not show the hidden character:\n%s", k.text())
	}
	k.submit(".pin form[action='/pins/approve'] button")
	k.sees("the approval", says("#waiting", "Nothing waits"))
}

// usePolicy explains a decision.
func usePolicy(k *keyboardUser, _ *staffedGateway) {
	k.goTo("y")
	k.fill("#test-server", "github")
	k.fill("#test-tool", "increment")
	k.submit("#test form button")
	k.sees("the decision", says("#test .decision", "changes"))
}

// useAudit filters the records and opens the record of a call.
func useAudit(k *keyboardUser, _ *staffedGateway) {
	k.goTo("a")
	k.sees("the records", exists("#records tr"))
	if k.scripts {
		k.press("/", "*deploy")
	} else {
		k.fill("#tool", "*deploy")
	}
	k.follow("\r")
	if text := k.text(); !strings.Contains(text, "deploys") || strings.Contains(text, "who_am_i") {
		k.t.Errorf("the filter shows other records than those of deploy:\n%s", text)
	}
	if k.scripts {
		k.press("j")
		k.follow("\r")
	} else {
		k.tabTo("#records a[data-primary]")
		k.follow("\r")
	}
	if !k.has("#call article") {
		k.t.Errorf("the page shows no record:\n%s", k.text())
	}
}

// useKeys creates and revokes a key.
func useKeys(k *keyboardUser, _ *staffedGateway) {
	k.goTo("k")
	k.fill("#name", "robot")
	k.follow("\r")
	if !strings.Contains(k.text(), "patchbay_") {
		k.t.Errorf("the page shows no secret:\n%s", k.text())
	}
	k.tabTo("main a.primary")
	k.follow("\r")
	k.tabTo("details.confirm:has([value=robot]) summary")
	k.press("\r")
	k.tabTo("details.confirm:has([value=robot]) button")
	k.follow("\r")
	if k.has("details.confirm:has([value=robot])") {
		k.t.Errorf("the key is not revoked:\n%s", k.text())
	}
}

// useFigures opens Limits, and a chart of Metrics as a table.
func useFigures(k *keyboardUser, _ *staffedGateway) {
	k.goTo("w")
	k.sees("the caller", says("#limited-callers", "ci"))
	k.goTo("m")
	k.tabTo(".chart figcaption a")
	k.follow("\r")
	if !k.has("main table") {
		k.t.Errorf("the page shows no table:\n%s", k.text())
	}
}

// useDoctor examines a server twice.
func useDoctor(k *keyboardUser, _ *staffedGateway) {
	k.goTo("o")
	k.tabTo("#server-crawler a[href^='/doctor']")
	k.follow("\r")
	for range 2 {
		k.tabTo("form[action='/doctor/run'] button")
		k.follow("\r")
		k.sees("the cause", says("#examination", "CRAWL_TOKEN is not set")+" && "+exists("#report"))
	}
	if k.scripts {
		k.press("c")
		k.waitFor("the copy", says("#toast", "Copied"))
	}
}

// useInbox approves a call and denies another call.
func useInbox(k *keyboardUser, g *staffedGateway) {
	caller := g.connect("ann")
	for _, approves := range []bool{true, false} {
		ended := make(chan error, 1)
		go func() {
			res, err := caller.CallTool(k.t.Context(), "github__increment", nil)
			if err == nil && res.IsError {
				err = errors.New("an error of the tool")
			}
			ended <- err
		}()
		k.goTo("i")
		k.sees("the request", exists(".approval"))
		switch {
		case k.scripts && approves:
			k.press("j")
			k.do("press Shift+A", chromedp.KeyEvent("A", chromedp.KeyModifiers(shiftKey)))
		case k.scripts:
			k.press("j")
			k.do("press Shift+D", chromedp.KeyEvent("D", chromedp.KeyModifiers(shiftKey)))
		case approves:
			k.submit(".approval [data-approve]")
		default:
			k.submit(".approval [data-deny]")
		}
		if err := <-ended; (err == nil) != approves {
			k.t.Errorf("approved %t, but the call returned the error %v", approves, err)
		}
		k.sees("nothing that waits", says("#inbox-empty", "Nothing waits"))
	}
}

// useLogs filters the lines that servers print.
func useLogs(k *keyboardUser, _ *staffedGateway) {
	k.goTo("l")
	k.fill("#q", "CRAWL_TOKEN")
	k.follow("\r")
	if !k.has("#lines li") {
		k.t.Errorf("the filter shows no line:\n%s", k.text())
	}
}

// useSettings edits the configuration, and confirms the difference.
func useSettings(k *keyboardUser, _ *staffedGateway) {
	k.goTo("c")
	k.tabTo("#text")
	k.do("go to the start", chromedp.KeyEvent(kb.Home, chromedp.KeyModifiers(controlKey)))
	k.press("// Edited by ann.", "\r")
	k.tabTo("form[action='/settings/check'] button")
	k.follow("\r")
	if !strings.Contains(k.text(), "+ // Edited by ann.") {
		k.t.Errorf("the page does not show the difference:\n%s", k.text())
	}
	k.tabTo("form[action='/settings/save'] button")
	k.follow("\r")
	k.sees("the saved file", says("main .notice", "Saved"))
}
