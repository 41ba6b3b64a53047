package conformance_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestConsoleChecks saves a call in the page. `patchbay check` passes it, and fails after a change
// of the result, with a JUnit report.
func TestConsoleChecks(t *testing.T) {
	browser := startBrowser(t)
	file := filepath.Join(t.TempDir(), "calls.json")
	w := startConsole(t, `{"mcpServers": {}}`, "--checks", file)
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
	p.click("#result a[href^='/explore/save']")
	p.waitForText(strings.ToLower(file))
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("before the confirmation: got %v, want no file", err)
	}
	p.enter("#name", "add of two numbers")
	p.click("main form button.primary")
	p.waitForText("saved as add of two numbers")

	check := func(command ...string) (text string, passed bool) {
		t.Helper()
		report := filepath.Join(t.TempDir(), "report.xml")
		args := append([]string{"check", file, "--trust", "--junit", report, "--"}, command...)
		out, err := exec.Command(w.binary, args...).CombinedOutput()
		junit := string(must(os.ReadFile(report))(t))
		if !strings.Contains(junit, `<testcase name="add of two numbers (`) ||
			strings.Contains(junit, "<failure") != (err != nil) {
			t.Errorf("exit %v with the report %s", err, junit)
		}
		return string(out), err == nil
	}
	if text, passed := check(w.binary, "serve", "--stdio"); !passed {
		t.Errorf("the saved call failed: %s", text)
	}
	changed := w.binary + ` serve --stdio | sed -u 's/"42"/"43"/'`
	if text, passed := check("sh", "-c", changed); passed || !strings.Contains(text, `got "43", want "42"`) {
		t.Errorf("after a change of the result: got %s, want a failed call", text)
	}
}
