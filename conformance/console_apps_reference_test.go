package conformance_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/patchbay-mcp/patchbay/ext/apps"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// referencePage is a page of the reference implementation. Each step ends with a log message, and
// the last call ends when the host changes its theme.
const referencePage = `<!DOCTYPE html><title>Reference</title>
<style>body { margin: 0 } #box { height: 222px }</style><div id="box">reference</div>
<script type="module">
LIBRARY
  const app = new ExtApps.App({ name: "reference", version: "2" }, {});
  const abort = new AbortController();
  const report = (step, data) => app.sendLog({ level: "info", data: { step, ...data } });
  const attempt = async f => { try { return await f(); } catch (e) { return { failed: e.message }; } };
  let input;
  app.addEventListener("toolinput", p => { input = p.arguments; });
  app.addEventListener("hostcontextchanged", c => { if (c.theme === "dark") abort.abort("theme"); });
  app.onteardown = async p => { document.title = "torn down: " + p.reason; return {}; };
  app.addEventListener("toolresult", async result => {
    const context = app.getHostContext();
    await report("shown", { host: app.getHostVersion().name, id: typeof context.toolInfo.id,
      tool: context.toolInfo.tool.name, theme: context.theme, input, result: result.structuredContent });
    const call = (name, args, options) => attempt(() => app.callServerTool({ name, arguments: args }, options));
    await report("called", { sum: (await call("add", { a: 2, b: 3 })).structuredContent });
    await report("denied", await call("add", { a: 5, b: 5 }));
    document.getElementById("box").style.height = "345px";
    await report("opened", await attempt(() => app.openLink({ url: "https://example.com/docs?x=1" })));
    await report("saved", await attempt(() => app.downloadFile({ contents: [{ type: "resource",
      resource: { uri: "file:///export.json", mimeType: "application/json", text: '{"kept":true}' } }] })));
    await report("cancelled", await call("wait", {}, { signal: abort.signal }));
  });
  await app.connect(new ExtApps.PostMessageTransport(parent, parent));
</script>`

var exported = regexp.MustCompile(`([\w$]+) as (\w+)`)

// newReference serves the page of the reference implementation, whose tool wait ends with its
// request.
func newReference(t *testing.T) (url string, waiting, ended chan struct{}) {
	t.Helper()
	needNode(t)
	dir := filepath.Join("node_modules", "@modelcontextprotocol", "ext-apps", "dist", "src")
	text := string(must(os.ReadFile(filepath.Join(dir, "app-with-deps.js")))(t))
	library, names, ok := strings.Cut(text, "export{")
	if !ok {
		t.Fatal("the package exports nothing")
	}
	library += "const ExtApps = {" + exported.ReplaceAllString(strings.TrimRight(names, ";}\n"), "$2:$1") + "};"
	s := mcp.NewServer("reference", "1", &mcp.ServerOptions{Logger: logger(t)})
	views := apps.New(s)
	html := strings.Replace(referencePage, "LIBRARY", library, 1)
	views.Add(&apps.View{URI: "ui://reference/page", Name: "page"}, html)
	type numbers struct {
		A float64 `json:"a"`
		B float64 `json:"b"`
	}
	add := func(_ context.Context, in numbers) (map[string]float64, error) {
		return map[string]float64{"sum": in.A + in.B}, nil
	}
	mcp.AddTool(s, views.WithUI(&mcp.Tool{Name: "show"}, &apps.ToolUI{View: "ui://reference/page"}), add)
	mcp.AddTool(s, &mcp.Tool{Name: "add"}, add)
	waiting, ended = make(chan struct{}), make(chan struct{})
	mcp.AddTool(s, &mcp.Tool{Name: "wait"}, func(ctx context.Context, _ struct{}) (string, error) {
		close(waiting)
		<-ctx.Done()
		close(ended)
		return "", ctx.Err()
	})
	server := httptest.NewServer(mcphttp.NewHandler(s, nil))
	t.Cleanup(server.Close)
	return server.URL, waiting, ended
}

// step returns what the page reported about a step.
func (p *tab) step(name string) string {
	p.t.Helper()
	found := fmt.Sprintf(`[...document.querySelectorAll("#app-log li pre")].find(l =>
		l.textContent.includes('"step":"%s"'))`, name)
	p.waitFor("the step "+name, found+" !== undefined")
	return p.read(chromedp.Evaluate[string](found + ".textContent"))
}

// answer waits for the question that contains a text, and clicks a button of the question.
func (p *tab) answer(text, button string) {
	p.t.Helper()
	found := fmt.Sprintf(`[...document.querySelectorAll("#questions section")].find(q =>
		q.textContent.includes(%q))?.querySelector(%q)`, text, button)
	p.waitFor("the question "+text, found+" != null")
	p.do("answer "+text, chromedp.Evaluate[chromedp.Void](found+".click()"))
}

// TestConsoleAppsOfTheReference shows a page of the npm package of MCP Apps.
func TestConsoleAppsOfTheReference(t *testing.T) {
	url, waiting, ended := newReference(t)
	browser := startBrowser(t)
	w := startConsole(t, `{"mcpServers": {"reference": {"url": "`+url+`"}}}`)
	p := newWatchedTab(t, browser)
	openTool(t, p.tab, w, "reference", "show")
	p.enter(`[id='f/a']`, "1")
	p.enter(`[id='f/b']`, "2")
	showApp(t, p.tab)
	want := func(step string, texts ...string) {
		t.Helper()
		for _, text := range texts {
			if got := p.step(step); !strings.Contains(got, text) {
				t.Errorf("the page reported %s, want %s", got, text)
			}
		}
	}
	want("shown", `"host":"patchbay-console"`, `"id":"number"`, `"tool":"show"`, `"theme":"light"`,
		`"input":{"a":1,"b":2}`, `"result":{"sum":3}`)
	p.waitFor("the size of the page", `document.querySelector("#app-stage iframe").height === "222"`)
	p.answer(`"a": 2`, "[data-approve]")
	want("called", `"sum":5`)
	p.answer(`"a": 5`, "[data-deny]")
	want("denied", "refused")
	p.answer("https://example.com/docs?x=1", "[data-approve]")
	p.do("scroll to the frame, because hidden frames draw nothing", chromedp.Evaluate[chromedp.Void](
		`document.querySelector("#app-stage iframe").scrollIntoView()`))
	p.waitFor("the new size of the page", `document.querySelector("#app-stage iframe").height === "345"`)
	if got := p.step("opened"); strings.Contains(got, "failed") || strings.Contains(got, "isError") {
		t.Errorf("open-link: %s", got)
	}
	p.answer("export.json", "[data-approve]")
	if got := p.step("saved"); strings.Contains(got, "failed") || strings.Contains(got, "isError") {
		t.Errorf("download-file: %s", got)
	}
	p.waitFor("the file", `document.querySelector("#app-files a") !== null`)
	p.waitFor("the content of the file", `(() => { const r = new XMLHttpRequest();
		r.open("GET", document.querySelector("#app-files a").href, false); r.send();
		return r.responseText === '{"kept":true}'; })()`)
	p.answer("call the tool wait", "[data-approve]")
	waitEnd(t, "the call of wait", waiting)
	p.do("select the dark theme", chromedp.Evaluate[chromedp.Void](
		`{ const s = document.querySelector("#app-theme"); s.value = "dark"; s.form.requestSubmit(); }`))
	waitEnd(t, "the end of the call", ended)
	want("cancelled", "theme")
	p.waitFor("the cancellation", logged("notifications/cancelled"))
	p.click("[data-close]")
	p.waitFor("the end of the app", `document.querySelector("#app-stage iframe") === null`)
	p.waitFor("the response to the teardown", `[...document.querySelectorAll("#app-log li")]
		.some(l => l.textContent.includes("from the page") && l.textContent.includes('"host-'))`)
}

// waitEnd waits until a channel is closed.
func waitEnd(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(time.Minute):
		t.Fatalf("%s did not happen within a minute", what)
	}
}
