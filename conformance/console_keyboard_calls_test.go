package conformance_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// TestConsoleKeyboardInExplore runs a tool with arguments as JSON, saves the run as a call for
// `patchbay check`, compares two runs, gets a prompt, reads a resource, and answers a question, all
// without a pointer, with scripts and without.
func TestConsoleKeyboardInExplore(t *testing.T) {
	browser := startBrowser(t)
	for _, scripts := range []bool{true, false} {
		t.Run(fmt.Sprintf("scripts=%t", scripts), func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "calls.json")
			w := startConsole(t, `{"mcpServers": {}}`, "--checks", file)
			k := &keyboardUser{newWatchedTab(t, browser), scripts}
			if !scripts {
				k.disableScripts()
			}
			k.open(w.url)
			if !scripts {
				k.fill("#token", w.url)
				k.follow("\r")
			}
			k.waitFor("the overview", exists("#server-demo"))
			k.runAsJSON()
			k.saveCall()
			if out, err := exec.Command(w.binary, "check", file, "--trust", "--", w.binary, "serve", "--stdio").
				CombinedOutput(); err != nil || !strings.Contains(string(must(os.ReadFile(file))(t)), "20") {
				t.Errorf("patchbay check of the saved call: %v, %s", err, out)
			}
			k.compareRuns()
			k.usePromptAndResource()
			k.answerQuestion()
		})
	}
}

// openTool opens a tool of the demo.
func (k *keyboardUser) openTool(name string) {
	k.t.Helper()
	k.goTo("e")
	k.sees("the list", exists("#items [data-row] a"))
	k.tabTo(fmt.Sprintf("#items a[href*='name=%[1]s'], #items a[href*='tool=%[1]s']", name))
	k.follow("\r")
}

// run sends the form of the editor.
func (k *keyboardUser) run() {
	k.t.Helper()
	if k.scripts {
		k.do("press Ctrl+Enter", chromedp.KeyEvent("\r", chromedp.KeyModifiers(controlKey)))
		return
	}
	k.submit("#editor [data-default]")
}

func (k *keyboardUser) runAsJSON() {
	k.openTool("add")
	k.fill("[id='f/a']", "20")
	k.submit("#editor button[value=json]")
	k.sees("the editor of JSON", exists("#json"))
	k.tabTo("#json")
	k.do("select the text", chromedp.KeyEvent("a", chromedp.KeyModifiers(controlKey)))
	k.press(`{"a": 20, "b": 22}`)
	k.run()
	k.sees("the result", says("#result pre", "42"))
}

func (k *keyboardUser) saveCall() {
	k.tabTo("#result a[href^='/explore/save']")
	k.follow("\r")
	k.fill("#name", "sum")
	k.submit("main form [data-default]")
	k.sees("the saved call", says("#result", "Saved as sum"))
}

func (k *keyboardUser) compareRuns() {
	k.tabTo(".again button")
	k.follow("\r")
	k.sees("the comparison", says("#result", "The results are equal."))
	k.tabTo("#history-list summary")
	k.press("\r")
	k.tabTo("#history-list li:last-child a")
	k.follow("\r")
	k.sees("the first run", says("#run h3", "Run 1"))
}

func (k *keyboardUser) usePromptAndResource() {
	for _, kind := range []string{"prompts", "resources"} {
		k.tabTo("nav[aria-label=Lists] a[href*='kind=" + kind + "']")
		k.follow("\r")
		k.tabTo("#items a[data-primary]")
		k.follow("\r")
		if kind == "prompts" {
			k.fill("[id='f/language']", "go")
			k.fill("[id='f/code']", "x := 1")
		}
		k.run()
		k.sees("the result of "+kind, exists("#run .badge.ok")+" && "+exists("#result pre"))
	}
}

// answerQuestion answers the question of a run in the Inbox, and finds the result in the run.
func (k *keyboardUser) answerQuestion() {
	k.openTool("greet")
	k.run()
	k.sees("the question", exists("#questions [name='/name']"))
	k.goTo("i")
	k.sees("the question in the Inbox", exists("#questions [name='/name']"))
	k.fill("#questions [name='/name']", "Ann")
	if k.scripts {
		k.run()
	} else {
		k.submit("#questions [data-default]")
	}
	k.sees("the end of the question", "!("+exists("#questions [name='/name']")+")")
	k.openTool("greet")
	k.tabTo("#history-list summary")
	k.press("\r")
	k.tabTo("#history-list a")
	k.follow("\r")
	k.sees("the greeting", says("#result pre", "Hello, Ann!"))
}
