package question_test

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/question"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A question whose URL may run code is declined, and its card shows the URL as text.
func TestLinksOfServersRunNoCode(t *testing.T) {
	site := page.NewSite(func(*mcp.Principal) *http.Client { return nil }, slog.New(slog.DiscardHandler))
	defer site.End()
	for _, url := range []string{"javascript:alert(1)", " JavaScript:alert(1)", "java\nscript:alert(1)",
		"\x01javascript:alert(1)", "data:text/html,x", "vbscript:x", "file:///etc/passwd", "tel:1", "ftp://a.example/b",
		"//a.example", ""} {
		var desk question.Desk
		r, err := desk.Elicit(t.Context(), question.Origin{Run: 1}, &mcp.ElicitRequestParams{Mode: "url", URL: url})
		if err != nil || r.Action != mcp.ElicitDecline {
			t.Errorf("%q: got %v, %v, want decline", url, r, err)
		}
		asked := desk.Of(1, 0)
		if len(asked) != 1 {
			t.Fatalf("%q: got %d questions, want 1", url, len(asked))
		}
		text, err := site.Render(asked[0].Card())
		if err != nil {
			t.Fatal(err)
		}
		if card := string(text); strings.Contains(card, "href=") || !strings.Contains(card, "declined: ") {
			t.Errorf("%q: got %s, want the reason without a link", url, card)
		}
	}
}
