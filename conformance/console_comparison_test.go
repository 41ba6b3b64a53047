package conformance_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/patchbay-mcp/patchbay/internal/freeport"
)

// inspectorVersion is the version of MCP Inspector that TestConsoleComparison installs.
const inspectorVersion = "2.12.0"

// A task is a row of the table in docs/console-comparison.md. A program without the function has no steps.
type task struct {
	name               string
	console, inspector func(c *contestant)
}

// comparedTasks are done in their order, each in the state in which the previous task left the page.
var comparedTasks = []task{
	{"see the tools", func(c *contestant) { c.sees("get-sum") },
		func(c *contestant) { c.press("label", "Tools"); c.sees("get-sum") }},
	{"call `get-sum` with two numbers", func(c *contestant) {
		c.press("a", "get-sum")
		c.fill("#editor [name='/a']", "", "20")
		c.fill("#editor [name='/b']", "", "22")
		c.send()
		c.sees("The sum of 20 and 22 is 42")
	}, func(c *contestant) {
		c.press("button", "Get Sum Tool")
		c.fill("input", "a *", "20")
		c.fill("input", "b *", "22")
		c.press("button", "Execute Tool")
		c.sees("The sum of 20 and 22 is 42")
	}},
	{"compare two results", func(c *contestant) {
		c.fill("#editor [name='/b']", "", "23")
		c.send()
		c.sees("The sum of 20 and 23 is 43")
		c.press("a", "Compare with run")
		c.sees("Compared with run")
	}, nil},
	{"save a call for CI", func(c *contestant) {
		c.press("a", "Save as a call to check")
		c.press("#main button", "Create the file and save")
		c.sees("Saved as")
	}, nil},
	{"see the frames of a call", func(c *contestant) {
		c.press("a", "Show in Traffic")
		c.sees(`"jsonrpc": "2.0"`)
	}, func(c *contestant) {
		c.press("label", "Protocol")
		c.press("button", "Expand")
		c.sees(`"text": "The sum of 20 and 22`)
	}},
	{"see standard error of the server", func(c *contestant) {
		c.press("nav a", "Logs")
		c.sees("Starting default (STDIO) server")
	}, func(c *contestant) {
		c.press("label", "Console")
		c.sees("Starting default (STDIO) server")
	}},
	{"answer an elicitation of a tool", func(c *contestant) {
		c.press("nav a", "Explore")
		c.press("a", "trigger-elicitation-request")
		c.waitFor("the form", settled+` &&
			document.querySelector("#item h2")?.textContent === "trigger-elicitation-request"`)
		c.send()
		c.fill(".question [name='/name']", "", "Ann")
		c.press(".question button", "Accept")
		c.sees("User provided the requested information")
	}, func(c *contestant) {
		c.press("button", "Trigger Elicitation Request Tool")
		c.press("button", "Execute Tool")
		c.fill("[role=dialog] input", "String *", "Ann")
		c.press("[role=dialog] button", "Submit")
		c.sees("User provided the requested information")
	}},
}

// nestedForm is done with the memory server.
var nestedForm = task{"add a list and an object in a nested form, and call", func(c *contestant) {
	c.press("a", "create_entities")
	c.press("button", "Add item")
	c.fill("#editor [name='/entities/0/name']", "", "Ann")
	c.fill("#editor [name='/entities/0/entityType']", "", "person")
	c.press(`button[value="/entities/0/observations"]`, "Add item")
	c.fill("#editor [name='/entities/0/observations/0']", "", "likes maps")
	c.send()
	c.sees("likes maps\"")
}, func(c *contestant) {
	c.press("button", "Create Entities")
	c.press("button", "Add item")
	c.fill("input", "name *", "Ann")
	c.fill("input", "entityType *", "person")
	c.fill("textarea", "observations", `["likes maps"]`)
	c.press("button", "Execute Tool")
	c.sees("likes maps\"")
}}

// wrongURL is done with a URL whose path is wrong, from the command on. Both programs must name the status.
var wrongURL = task{"start, and find the cause of a wrong URL", func(c *contestant) {
	c.sees("404 Not Found")
	c.sees("an MCP server responds at")
}, func(c *contestant) {
	c.press(connectSwitch, "")
	c.sees("404 Not Found")
}}

// startRow is the first row of the table: from the command until the page shows that the server is connected.
const startRow = "start, until the server is connected"

// TestConsoleComparison does the same tasks in the console and in MCP Inspector, in the same Chromium, and logs
// the table of docs/console-comparison.md. It installs the Inspector, and takes a screenshot after each task as an
// artifact. It runs only with PATCHBAY_COMPARISON=yes: other programs of the machine distort its times.
func TestConsoleComparison(t *testing.T) {
	if os.Getenv("PATCHBAY_COMPARISON") == "" {
		t.Skip("set PATCHBAY_COMPARISON=yes to compare the console with MCP Inspector")
	}
	build(t, "..", "./gateway/cmd/patchbay") // not part of the first measurement
	browser, node := startBrowser(t), needNode(t)
	everything := must(filepath.Abs("node_modules/@modelcontextprotocol/server-everything/dist/index.js"))(t)
	memory := strings.Replace(everything, "everything", "memory", 1)
	address := freeport.Addr(t)
	remote := exec.Command(node, everything, "streamableHttp")
	remote.Env = append(os.Environ(), "PORT="+portOf(address))
	startPeer(t, remote)
	rows := append([]task{{name: startRow}}, comparedTasks...)
	rows = append(rows, nestedForm, wrongURL)
	results := map[string][]string{}
	for _, program := range []program{consoleProgram(t), inspectorProgram(t)} {
		c := program.open(t, browser, "stdio", node, everything)
		results[startRow] = append(results[startRow], c.row())
		for _, row := range comparedTasks {
			results[row.name] = append(results[row.name], c.measure(row, program.column))
		}
		file := "MEMORY_FILE_PATH=" + filepath.Join(t.TempDir(), "memory")
		c = program.open(t, browser, "stdio", "env", file, node, memory)
		if program.column == 1 {
			c.press("label", "Tools")
		}
		results[nestedForm.name] = append(results[nestedForm.name], c.measure(nestedForm, program.column))
		c = program.open(t, browser, "http", "http://"+address+"/wrong")
		results[wrongURL.name] = append(results[wrongURL.name], c.measure(wrongURL, program.column))
	}
	for _, row := range rows {
		t.Logf("| %s | %s |", row.name, strings.Join(results[row.name], " | "))
	}
}

// A program is a column of the table. open starts the program with a server, which a command runs or an address
// reaches, and waits until a local server is connected.
type program struct {
	column int
	open   func(t *testing.T, browser context.Context, kind string, target ...string) *contestant
}

// A contestant is a program in a tab, with the steps of the task in progress.
type contestant struct {
	*tab
	clicks, fields, keys int
	began, ended         time.Time
}

func (c *contestant) begin() { c.clicks, c.fields, c.keys, c.began = 0, 0, 0, time.Now() }

// row returns the cells of the table.
func (c *contestant) row() string {
	return fmt.Sprintf("%d, %d, %d | %.1f", c.clicks, c.fields, c.keys, c.ended.Sub(c.began).Seconds())
}

// measure does a task, and returns its cells of the table.
func (c *contestant) measure(w task, column int) string {
	c.t.Helper()
	steps := w.console
	if column == 1 {
		steps = w.inspector
	}
	if steps == nil {
		return "no function found | –"
	}
	if w.name != wrongURL.name {
		c.begin()
	}
	steps(c)
	name := fmt.Sprintf("%d-%s.png", column, regexp.MustCompile("[^a-z]+").ReplaceAllString(w.name, "-"))
	picture := must(chromedp.Run(c.ctx, chromedp.CaptureScreenshot()))(c.t)
	if err := os.WriteFile(filepath.Join(c.t.ArtifactDir(), name), picture, 0o600); err != nil {
		c.t.Fatal(err)
	}
	return c.row()
}

// useElement clicks or selects the first visible element that matches a selector, and whose text or label begins with
// a text. A click does not depend on the position of the element, which may move.
const useElement = `((selector, text, action) => {
	const found = [...document.querySelectorAll(selector)].find((e) => e.offsetParent !== null && !e.disabled &&
		[e.innerText, e.ariaLabel, e.labels?.[0]?.innerText].some((t) => (t ?? "").trim().startsWith(text)));
	if (!found || document.readyState !== "complete") {
		return false;
	}
	const hasFocus = document.activeElement === found; // a dialog that opens takes the focus once more
	found.focus();
	found[action]();
	return hasFocus || action === "click";
})(%q, %q, %q)`

// press clicks an element.
func (c *contestant) press(selector, text string) {
	c.t.Helper()
	c.waitFor(selector+" "+text, fmt.Sprintf(useElement, selector, text, "click"))
	c.clicks++
}

// fill types a value into a field.
func (c *contestant) fill(selector, label, value string) {
	c.t.Helper()
	c.waitFor(selector+" "+label, fmt.Sprintf(useElement, selector, label, "select"))
	c.do("enter "+value, chromedp.KeyEvent(value))
	c.fields++
}

// send presses Ctrl and Enter.
func (c *contestant) send() {
	c.t.Helper()
	c.do("press Ctrl+Enter", chromedp.KeyEvent("\r", chromedp.KeyModifiers(controlKey)))
	c.keys++
}

// sees waits until the page shows a text, with which the task is complete.
func (c *contestant) sees(text string) {
	c.t.Helper()
	script := fmt.Sprintf(`document.body?.innerText.toLowerCase().includes(%q)`, strings.ToLower(text))
	c.waitFor("the text "+text, script)
	c.ended = time.Now()
}

// consoleProgram is `patchbay console TARGET`.
func consoleProgram(t *testing.T) program {
	return program{0, func(_ *testing.T, browser context.Context, kind string, target ...string) *contestant {
		t.Helper()
		w := &webConsole{t: t, binary: build(t, "..", "./gateway/cmd/patchbay"), out: filepath.Join(t.TempDir(), "out")}
		args := []string{"console", "--addr", "127.0.0.1:0", "--checks", filepath.Join(t.TempDir(), "checks.json")}
		if kind == "stdio" {
			args = append(args, "--")
		}
		w.cmd = exec.Command(w.binary, append(args, target...)...)
		w.cmd.Stdout = must(os.Create(w.out))(t)
		c := &contestant{tab: newTab(t, browser)}
		c.showOn(consoleScreens[0])
		c.begin()
		w.start()
		c.open(w.url)
		if kind == "stdio" {
			c.waitFor("the tools", `document.querySelector("#items [data-row]") !== null`)
		}
		c.ended = time.Now()
		return c
	}}
}

// inspectorProgram is `mcp-inspector --config FILE`, installed in a temporary folder.
func inspectorProgram(t *testing.T) program {
	t.Helper()
	home, node := t.TempDir(), needNode(t)
	install := exec.Command("npm", "install", "--no-audit", "--no-fund",
		"@modelcontextprotocol/inspector@"+inspectorVersion)
	install.Dir = home
	install.Env = append(os.Environ(), "PATH="+filepath.Dir(node)+":"+os.Getenv("PATH"))
	if err := os.WriteFile(filepath.Join(home, "package.json"), []byte(`{"private": true}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("install the Inspector: %v\n%s", err, out)
	}
	script := filepath.Join(home, "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js")
	end := func() error { return nil }
	return program{1, func(_ *testing.T, browser context.Context, kind string, target ...string) *contestant {
		t.Helper()
		server := map[string]any{"type": kind, "url": target[0]}
		if kind == "stdio" {
			server = map[string]any{"command": target[0], "args": target[1:]}
		}
		text := must(json.Marshal(map[string]any{"mcpServers": map[string]any{"server": server}}))(t)
		file := filepath.Join(t.TempDir(), "servers.json")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(node, script, "--web", "--config", file)
		cmd.Env = append(os.Environ(), "HOME="+home, "MCP_AUTO_OPEN_ENABLED=false",
			"CLIENT_PORT="+portOf(freeport.Addr(t)), "MCP_SANDBOX_PORT="+portOf(freeport.Addr(t)))
		c := &contestant{tab: newTab(t, browser)}
		c.showOn(consoleScreens[0])
		c.begin()
		_ = end() // the Inspector before uses the same ports
		var url string
		url, end = launch(t, cmd)
		t.Cleanup(func() { _ = end() })
		c.open(url)
		if kind == "stdio" {
			c.press(connectSwitch, "")
			c.waitFor("the connection", `document.body.innerText.includes("Connected")`)
		}
		c.ended = time.Now()
		return c
	}}
}

// portOf returns the port of an address.
func portOf(address string) string { return address[strings.LastIndex(address, ":")+1:] }

// connectSwitch connects the Inspector to the server.
const connectSwitch = `label:has([aria-label*='"server"'])`
