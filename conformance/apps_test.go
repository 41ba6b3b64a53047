package conformance_test

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/patchbay-mcp/patchbay/ext/apps"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// hostHTML is the page of a host. It forwards messages between a frame and the bridge, and reports
// the observations of the script reporterHTML.
const hostHTML = `<!DOCTYPE html>
<title>Host</title>
<iframe id="view" sandbox="SANDBOX" src="VIEW"></iframe>
<pre id="report"></pre>
<script>
  const view = document.getElementById("view");
  const send = message => view.contentWindow.postMessage(message, "*");
  addEventListener("message", async event => {
    if (event.source !== view.contentWindow) return;
    if ("report" in event.data) { document.getElementById("report").textContent = event.data.report; return; }
    const answer = await (await fetch("/message", { method: "POST", body: JSON.stringify(event.data) })).text();
    if (answer) send(JSON.parse(answer));
  });
  (async () => { for (;;) send(await (await fetch("/next")).json()); })();
</script>`

// reporterHTML is appended to the view's document. It reports what the frame shows and what it can
// access, since a host cannot inspect a frame of another origin.
const reporterHTML = `<script>
  let leak = "";
  const report = () => parent.postMessage({ report: document.body.innerText + "\n" + leak }, "*");
  const observed = { subtree: true, childList: true, characterData: true, attributes: true };
  new MutationObserver(report).observe(document.documentElement, observed);
  addEventListener("message", event => { if (event.data.press) document.getElementById(event.data.press).click(); });
  fetch("HOST/leak", { mode: "no-cors" })
    .then(() => leak = "access allowed", () => leak = "access refused").then(report);
</script>`

// TestViewInABrowser shows the view of the demo's dice as a host does: in a frame of another
// origin, with the Content-Security-Policy of ext/apps.
func TestViewInABrowser(t *testing.T) {
	browser := startBrowser(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	url := start(t, build(t, "..", "./gateway/cmd/patchbay"), "serve", "--insecure-no-auth", "--addr", "127.0.0.1:0")
	c := must(mcp.Connect(ctx, mcphttp.NewTransport(url, nil), apps.Declare(nil)))(t)
	defer c.Close()
	host := apps.NewHost(c, &apps.HostOptions{Logger: logger(t)})
	must(host.ModelTools(ctx))(t)
	page := must(host.Page(ctx, "roll_dice"))(t)

	toPage := make(chan json.RawMessage, 16)
	called := make(chan string, 1)
	bridge := host.Bridge(page, &apps.BridgeOptions{
		Send: func(_ context.Context, m json.RawMessage) error {
			toPage <- m
			return nil
		},
		AllowTool: func(_ context.Context, tool *mcp.Tool, args json.RawMessage) error {
			called <- tool.Name + string(args)
			return nil
		},
	})
	var embedder, view string
	own := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/":
			_, _ = io.WriteString(w, strings.NewReplacer("SANDBOX", apps.Sandbox, "VIEW", view).Replace(hostHTML))
		case "/message":
			message, _ := io.ReadAll(r.Body)
			_, _ = w.Write(bridge.Handle(ctx, message))
		case "/next":
			select {
			case m := <-toPage:
				_, _ = w.Write(m)
			case <-ctx.Done():
			case <-r.Context().Done():
			}
		case "/leak":
			t.Error("the view accessed its host, want the request refused")
		}
	}))
	defer own.Close()
	defer cancel() // ends the requests that wait at /next
	frames := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		header, err := page.Header(&apps.HeaderOptions{Embedder: embedder})
		if err != nil {
			t.Error(err)
		}
		maps.Copy(w.Header(), http.Header(header))
		_, _ = io.WriteString(w, page.HTML+strings.ReplaceAll(reporterHTML, "HOST", embedder))
	}))
	defer frames.Close()
	embedder, view = strings.Replace(own.URL, "127.0.0.1", "localhost", 1), frames.URL

	tab := newTab(t, browser)
	tab.open(embedder)
	tab.waitForText("The dice are rolling")
	tab.waitForText("access refused")
	rolled := must(c.CallTool(ctx, "roll_dice", map[string]int{"count": 1, "sides": 2}))(t)
	if err := bridge.ToolInput(ctx, json.RawMessage(`{"count":20,"sides":2}`)); err != nil {
		t.Fatal(err)
	}
	if err := bridge.ToolResult(ctx, rolled); err != nil {
		t.Fatal(err)
	}
	tab.waitFor("the dice", `/Together [12]\n/.test(document.body.innerText)`)
	tab.screenshot("dice")
	tab.do("press the button", chromedp.Evaluate[chromedp.Void](`send({ press: "again" })`))
	tab.waitFor("other dice", `/Together ([23][0-9]|40)\n/.test(document.body.innerText)`)
	if got := <-called; got != `roll_dice{"count":20,"sides":2}` {
		t.Errorf("the view called %s, want roll_dice with the arguments of the input", got)
	}
}
