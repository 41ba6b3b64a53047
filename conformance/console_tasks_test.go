package conformance_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// TestConsoleTasks shows the task of a client on an open page, and ends the task by keyboard and pointer. A task
// that ends shows its result, and its messages in Traffic; a viewer sees neither.
func TestConsoleTasks(t *testing.T) {
	browser := startBrowser(t)
	w := newRemoteConsole(t)
	addr := anyAddr(t)
	w.run(fmt.Sprintf(`{"mcpServers": {"demo": {"command": %q, "args": ["serve", "--stdio", "--tasks", "memory"]}},
		"patchbay": {"console": {"listen": %q, "publicURL": %q}}}`, w.binary, w.listen, w.base),
		"--addr", addr, "--capture", "always")
	ann, bob := newWatchedTab(t, browser), newWatchedTab(t, browser)
	for p, role := range map[*watchedTab]string{ann: "operator", bob: "viewer"} {
		w.logIn(p, w.key(role, "--console", role))
		p.waitFor("the overview", `document.querySelector("#connection.live") !== null`)
		p.press("g", "j")
		p.waitForText("No caller has created a task")
		p.waitFor("the stream", `document.querySelector("#connection.live") !== null`)
	}
	header := http.Header{"Authorization": {"Bearer " + w.key("ci")}}
	c := must(mcp.Connect(t.Context(), mcphttp.NewTransport("http://"+addr+"/mcp",
		&mcphttp.TransportOptions{Header: header}), tasks.Declare(nil, nil)))(t)
	defer c.Close()

	long := must(tasks.Start(t.Context(), c, "crunch", map[string]int{"seconds": 3600}))(t)
	const working = `document.querySelector("#tasks .badge.busy") !== null`
	for _, p := range []*watchedTab{ann, bob} {
		p.waitFor("the task", working)
		if text := p.text(); !strings.Contains(text, "crunch") || !strings.Contains(text, "ci") {
			t.Errorf("the page does not name the tool and the caller:\n%s", text)
		}
	}
	ann.waitForText("crunching")
	ann.screenshotOn("console-tasks", consoleScreens)
	if text := bob.text(); strings.Contains(text, "crunching") || bob.has("#tasks form") {
		t.Errorf("a viewer sees a message of a task, or may cancel the task:\n%s", text)
	}
	ann.click("#tasks .confirm summary")
	ann.click("#tasks .confirm form button")
	const cancelled = `document.querySelector("#tasks .badge.idle")?.textContent === "cancelled"`
	ann.waitFor("the end of the task", cancelled)
	bob.waitFor("the end of the task", cancelled)
	if got, err := long.Get(t.Context()); err != nil || got.Status != tasks.StatusCancelled {
		t.Errorf("the client got %+v, %v, want a cancelled task", got, err)
	}

	must(tasks.Start(t.Context(), c, "crunch", map[string]int{"seconds": 1}))(t)
	ann.waitFor("the result", `document.querySelector("#tasks a[href^='/tasks/result']") !== null`)
	ann.click("#tasks a[href^='/traffic']")
	ann.waitFor("the messages", `document.querySelectorAll("#exchanges tr").length > 0`)
	ann.do("go back", chromedp.NavigateBack())
	ann.waitFor("the list", `document.querySelector("#tasks a[href^='/tasks/result']") !== null`)
	ann.click("#tasks a[href^='/tasks/result']")
	ann.waitForText("42")
	ann.screenshotOn("console-task-result", consoleScreens)
	if bob.has("#tasks a") {
		t.Error("a viewer sees a link to a result")
	}
}
