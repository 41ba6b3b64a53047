package gateway_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcptest"
)

// Callers log in to a protected server with their own clients, over every revision: the call that needs
// the login goes on after it, and has run once.
func TestCallersLogIn(t *testing.T) {
	for _, revision := range mcptest.Revisions() {
		t.Run(revision, func(t *testing.T) {
			mcptest.NoLeaks(t)
			u := newProtectedUpstream(t)
			g := newLoginGateway(t, u, `{"auth": "caller"}`, `, "connect": {"links": true}`, nil)
			ann := g.visitor(t, "ann@notes")
			c := g.client(t, "ann", revision, ann.elicit)
			if got := toolNames(t, c); !slices.Equal(got, []string{"log_in"}) {
				t.Errorf("before the login: tools %q, want log_in", got)
			}
			if revision < "2025-11-25" { // without elicitations of mode url
				code, text := errorCode(t, c, "log_in")
				_, page, found := strings.Cut(text, "http://")
				if code != "auth_required" || !found {
					t.Fatalf("got %q, %q, want auth_required with the page", code, text)
				}
				page, _, _ = strings.Cut("http://"+page, ";")
				if status, text := ann.visit(page); status != 200 || !strings.Contains(text, "You are logged in") {
					t.Fatalf("%d, %s", status, text)
				}
			}
			if text, isError := call(t, c, "log_in"); isError || !strings.Contains(text, "Logged in to notes: it has 4 tools") {
				t.Errorf("log_in: %q, %t", text, isError)
			}
			if got := toolNames(t, c); !slices.Equal(got, []string{"ask", "leak", "whoami", "write", "log_out"}) {
				t.Errorf("after the login: tools %q", got)
			}
			if text, isError := call(t, c, "whoami"); isError || text != "ann@notes" || u.calls("ann@notes") != 1 {
				t.Errorf("got %q, %t, %d calls", text, isError, u.calls("ann@notes"))
			}
			if revision >= "2025-11-25" && len(ann.opened()) != 1 {
				t.Errorf("opened %q, want one page", ann.opened())
			}
		})
	}
}
