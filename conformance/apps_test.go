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
// the observations of the script spyHTML.
const hostHTML = `<!DOCTYPE html>
<title>Host</title>
<iframe id="view" sandbox="SANDBOX" src="VIEW"></iframe>
<pre id="seen"></pre>
<script>
  const view = document.getElementById("view");
  const tell = message => view.contentWindow.postMessage(message, "*");
  addEventListener("message", async event => {
    if (event.source !== view.contentWindow) return;
    if ("spy" in event.data) { document.getElementById("seen").textContent = event.data.spy; return; }
    const answer = await (await fetch("/say", { method: "POST", body: JSON.stringify(event.data) })).text();
    if (answer) tell(JSON.parse(answer));
  });
  (async () => { for (;;) tell(await (await fetch("/next")).json()); })();
</script>`

// spyHTML is appended to the view's document. It reports what the frame shows and what it can
// access, since a host cannot inspect a frame of another origin.
const spyHTML = `<script>
  let leak = "";
  const spy = () => parent.postMessage({ spy: document.body.innerText + "\n" + leak }, "*");
  new MutationObserver(spy).observe(document.documentElement, { subtree: true, childList: true, characterData: true, attributes: true });
  addEventListener("message", event => { if (event.data.press) document.getElementById(event.data.press).click(); });
  fetch("HOST/leak", { mode: "no-cors" }).then(() => leak = "it leaks", () => leak = "it is tight").then(spy);
</script>`

// TestViewInABrowser shows the view of the demo's dice as a host does: in a frame of another
// origin, with the Content-Security-Policy of ext/apps.
func TestViewInABrowser(t *testing.T) {
	browser := startBrowser(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	url := start(t, build(t, "..", "./cmd/patchbay"), "serve", "--addr", "127.0.0.1:0")
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
		case "/say":
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
			t.Error("the view can access its host")
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
		_, _ = io.WriteString(w, page.HTML+strings.ReplaceAll(spyHTML, "HOST", embedder))
	}))
	defer frames.Close()
	embedder, view = strings.Replace(own.URL, "127.0.0.1", "localhost", 1), frames.URL

	tab := newTab(t, browser)
	tab.open(embedder)
	tab.see("The dice are rolling")
	tab.see("it is tight")
	rolled := must(c.CallTool(ctx, "roll_dice", map[string]int{"count": 1, "sides": 2}))(t)
	if err := bridge.ToolInput(ctx, json.RawMessage(`{"count":20,"sides":2}`)); err != nil {
		t.Fatal(err)
	}
	if err := bridge.ToolResult(ctx, rolled); err != nil {
		t.Fatal(err)
	}
	tab.await("see the dice", `/Together [12]\n/.test(document.body.innerText)`)
	tab.shoot("dice")
	tab.do("press the button", chromedp.Evaluate[chromedp.Void](`tell({ press: "again" })`))
	tab.await("see other dice", `/Together ([23][0-9]|40)\n/.test(document.body.innerText)`)
	if got := <-called; got != `roll_dice{"count":20,"sides":2}` {
		t.Errorf("the view calls %s", got)
	}
}
