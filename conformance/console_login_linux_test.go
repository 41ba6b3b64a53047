package conformance_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// TestConsoleDoctorLogsIn follows a person whose server requires a login: the doctor stops at the login, its
// button shows the address of the authorization server, and after the consent all checks pass. Explore then
// lists the tools.
func TestConsoleDoctorLogsIn(t *testing.T) {
	for _, name := range []string{"HOME", "PATCHBAY_STATE_DIR", "XDG_CONFIG_HOME", "PATCHBAY_VAULT_DIR"} {
		t.Setenv(name, filepath.Join(t.TempDir(), "private")) // the command creates it with access for the user only
	}
	browser := startBrowser(t)
	endpoint := start(t, build(t, "..", "./gateway/cmd/patchbay"), "serve", "--auth", "demo", "--addr", "127.0.0.1:0")
	w := startConsole(t, fmt.Sprintf(`{"mcpServers": {"notes": {"url": %q}}}`, endpoint))
	base, _, _ := strings.Cut(w.url, "/login")
	p := newWatchedTab(t, browser)
	p.open(w.url)
	p.waitFor("the overview", `document.querySelector("#server-demo.ok") !== null`)
	p.open(base + "/explore?server=notes")
	const logIn = `#examination button[name=login]`
	p.waitFor("the button Log in", fmt.Sprintf(`document.querySelector("#report-text") !== null &&
		document.querySelector(%q)?.disabled === false`, logIn))
	if next := p.nextStep("negotiate"); !strings.Contains(next, "Log in of the console") {
		t.Errorf("got the next step %q\n%s", next, p.text())
	}
	p.click(logIn)
	const link = `#examination .question a`
	p.waitFor("the page of the login", fmt.Sprintf(`document.querySelector(%q) !== null`, link))
	address := p.read(chromedp.Evaluate[string](fmt.Sprintf(`document.querySelector(%q).href`, link)))
	if origin, _, _ := strings.Cut(endpoint, "/mcp"); !strings.HasPrefix(address, origin+"/") {
		t.Fatalf("the page of the login is %s, want a page of %s", address, origin)
	}

	person := newWatchedTab(t, browser)
	person.open(address)
	person.waitForText("Use the demo server")
	person.click("#allow")
	person.waitForText("Log in to")
	person.enter("#username", "ann")
	person.enter("#password", "demo\n")
	person.waitForText("You are logged in")

	p.waitFor("the report", `document.querySelector("#report-text") !== null`)
	rows := p.read(chromedp.Evaluate[string](`[...document.querySelectorAll("#examination .row")]
		.map((row) => row.querySelector("h3").textContent + " " + row.querySelector(".badge").textContent).join("\n")`))
	for _, check := range []string{"register ok", "authorize ok", "token ok", "negotiate ok"} {
		if !strings.Contains(rows, check) {
			t.Errorf("got the checks\n%s\nwant %s\n%s", rows, check, p.text())
		}
	}
	p.open(base + "/explore?server=notes")
	p.waitFor("the tools", `document.querySelector("#explore-state .badge.ok") !== null &&
		document.querySelectorAll("#items a").length > 1`)
}
