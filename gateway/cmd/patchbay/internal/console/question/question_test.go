package question_test

import (
	"html"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/question"
	"github.com/patchbay-mcp/patchbay/mcp"
)

var pageLink = regexp.MustCompile(`<a class="button" href="([^"]*)" target="_blank"`)

// The link to the page of a question is the URL of the server, unless its scheme may run code in the console.
func TestLinksOfServersRunNoCode(t *testing.T) {
	site := page.NewSite(func(*mcp.Principal) *http.Client { return nil }, slog.New(slog.DiscardHandler))
	defer site.End()
	const refused = "about:invalid#TemplFailedSanitizationURL"
	for _, test := range []struct {
		page url.URL
		want string
	}{
		{url.URL{Scheme: "https", Host: "a.example", Path: "/x", RawQuery: `a=1&b=%22%3E<i>'"`, Fragment: "f"},
			`https://a.example/x?a=1&b=%22%3E<i>'"#f`},
		{url.URL{Scheme: "http", Host: "127.0.0.1:8080", Path: "/é"}, "http://127.0.0.1:8080/%C3%A9"},
		{url.URL{Opaque: "javascript:alert(1)"}, refused},
		{url.URL{Scheme: "javascript", Opaque: "alert(1)"}, refused},
		{url.URL{Opaque: " JavaScript:alert(1)"}, refused},
		{url.URL{Opaque: "java\nscript:alert(1)"}, refused},
		{url.URL{Opaque: "\x01javascript:alert(1)"}, refused},
		{url.URL{Opaque: "data:text/html,<script>alert(1)</script>"}, refused},
		{url.URL{Opaque: "vbscript:x"}, refused},
	} {
		q := question.Question{ID: 1, URL: &test.page}
		text, err := site.Render(q.Card())
		if err != nil {
			t.Fatal(err)
		}
		found := pageLink.FindSubmatch(text)
		if found == nil {
			t.Fatalf("no link in %s", text)
		}
		if got := html.UnescapeString(string(found[1])); got != test.want {
			t.Errorf("%q: the link is %q, want %q", test.page.String(), got, test.want)
		}
	}
}
