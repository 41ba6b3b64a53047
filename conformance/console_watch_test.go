package conformance_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// Every test of the console fails if a page reports a problem. Here each kind of problem is made,
// and seen: an error on the console, an exception, a rejection that nothing handles, and what the
// policy forbids.
func TestWatchedTabSeesProblems(t *testing.T) {
	browser := startBrowser(t)
	for _, k := range []struct{ script, want string }{
		{`console.error("said")`, "said"},
		{`null.x`, "TypeError"},
		{`Promise.reject(new Error("nothing handles this"))`, "nothing handles this"},
		{`document.head.append(Object.assign(document.createElement("script"), {text: "1"}))`, "TrustedScript"},
		{`document.body.setAttribute("style", "color: red")`, "style-src"},
		{`document.body.innerHTML = "<p>"`, "TrustedHTML"},
		{`document.body.append(Object.assign(new Image(), {src: "http://localhost:1/"}))`, "img-src"},
		{`setTimeout("1")`, "TrustedScript"},
	} {
		web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; "+
				"img-src 'self'; require-trusted-types-for 'script'; trusted-types console")
			switch r.URL.Path {
			case "/":
				_, _ = io.WriteString(w, `<!doctype html><body><script src="/page.js"></script>
					<script src="/end.js"></script>`)
			case "/page.js":
				w.Header().Set("Content-Type", "text/javascript")
				_, _ = io.WriteString(w, k.script)
			case "/end.js":
				w.Header().Set("Content-Type", "text/javascript")
				_, _ = io.WriteString(w, `setTimeout(() => { document.title = "end"; })`)
			}
		}))
		defer web.Close()
		p := watchTab(t, browser)
		p.open(web.URL)
		p.waitFor("the end of the script", `document.title === "end"`)
		// Reports arrive in the order in which they were made.
		p.do("report the end", chromedp.Evaluate[chromedp.Void](`console.error("the end")`))
		var all string
		for !strings.Contains(all, "the end") {
			all += strings.Join(p.taken(), "\n")
			p.do("wait", chromedp.Evaluate[chromedp.Void](`undefined`))
		}
		if !strings.Contains(all, k.want) {
			t.Errorf("%s: got the reports %q, want %q", k.script, all, k.want)
		}
	}
}
