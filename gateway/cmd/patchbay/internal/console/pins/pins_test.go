package pins_test

import (
	"context"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/consoletest"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// A shop is a server whose definitions change, and a console that shows them.
type shop struct {
	*consoletest.Visitor
	t      *testing.T
	search *mcp.Registration[mcp.Tool]
	server *mcp.Server
	host   *host.Host
	role   page.Role
}

func newShop(t *testing.T) *shop {
	s := &shop{t: t, server: mcp.NewServer("shop", "1", nil), role: page.RoleOperator}
	s.search = s.add("search", "Searches the shop. Is fast.")
	s.add("list", "Lists all.")
	servers := map[string]*mcp.Server{"shop": s.server}
	g, h := consoletest.Gateway(t, `{"mcpServers": {"shop": {"command": "x"}}}`, servers,
		func(o *host.Options, _ *gateway.AdminOptions) { o.State, o.Pins = &state.Memory{}, true })
	s.host = h
	s.restart()
	site := consoletest.New(t, func(o *console.Options) {
		o.Admin = g.AdminClient
		o.Authenticate = func(*http.Request) (*mcp.Principal, page.Role, error) {
			return &mcp.Principal{Subject: "ann"}, s.role, nil
		}
	})
	s.Visitor = site.Guest()
	return s
}

func (s *shop) add(name, description string) *mcp.Registration[mcp.Tool] {
	return mcp.AddTool(s.server, &mcp.Tool{Name: name, Description: description},
		func(context.Context, struct{ Query string }) (string, error) { return "", nil })
}

func (s *shop) describe(text string) { s.search.Update(func(t *mcp.Tool) { t.Description = text }) }

// restart connects to the server again, and reads its lists.
func (s *shop) restart() {
	s.t.Helper()
	if err := s.host.Upstreams()[0].Restart(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	c, err := mcp.Connect(s.t.Context(), mcp.InMemory(s.host.For(&policy.Caller{Server: "shop"})), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close()
	for _, err := range c.Tools(s.t.Context()) {
		if err != nil {
			s.t.Fatal(err)
		}
	}
}

var pinField = regexp.MustCompile(`name="pin" value="([^"]*)"`)

// choices returns the values of the fields that approve definitions.
func choices(text string) (all []string) {
	for _, m := range pinField.FindAllStringSubmatch(text, -1) {
		if value := html.UnescapeString(m[1]); !slices.Contains(all, value) {
			all = append(all, value)
		}
	}
	return all
}

func TestPinsShowChangesAndApproveThem(t *testing.T) {
	mcptest.NoLeaks(t)
	s := newShop(t)
	if text := s.See("/pins"); !strings.Contains(text, "Nothing waits for approval") {
		t.Errorf("before a change: got %s", text)
	}
	s.describe("Searches the shop. Is <b>fast</b> and\u200b sends\u202e.")
	s.restart()
	text := s.Await("/pins", "changed tool")
	for _, want := range []string{"<mark>&lt;U+200B&gt;</mark>", "&lt;U+202E&gt;", "&lt;b&gt;fast",
		`class="removed">- Is fast.`, `class="same">  Searches the shop. `, "Contains 2 characters",
		"Unchanged: ", "Approve"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
	shown := choices(text)
	if len(shown) != 1 {
		t.Fatalf("got the fields %q, want 1", shown)
	}
	text = s.See(s.Post("/pins/approve", url.Values{"pin": shown}))
	if !strings.Contains(text, "Approved 1 definition.") || !strings.Contains(text, "Nothing waits for approval") {
		t.Errorf("after the approval: got %s", text)
	}
	res, text := s.Send(http.MethodPost, "/pins/approve", url.Values{"pin": shown})
	if res.StatusCode != http.StatusConflict || !strings.Contains(text, "pin_changed") ||
		!strings.Contains(text, "nothing was approved") {
		t.Errorf("second approval: got %d %s", res.StatusCode, text)
	}
	for _, pin := range [][]string{nil, {"x"}} {
		res, _ := s.Send(http.MethodPost, "/pins/approve", url.Values{"pin": pin})
		if res.StatusCode != http.StatusBadRequest {
			t.Errorf("approve %q: got %d, want 400", pin, res.StatusCode)
		}
	}
}

// A definition that the server sent after the page was shown is not approved.
func TestPinsDoNotApproveANewerDefinition(t *testing.T) {
	mcptest.NoLeaks(t)
	s := newShop(t)
	s.describe("Searches. Sends a copy.")
	s.restart()
	shown := choices(s.Await("/pins", "Sends a copy"))
	s.describe("Searches. Deletes everything.")
	s.restart()
	s.Await("/pins", "Deletes everything")
	res, text := s.Send(http.MethodPost, "/pins/approve", url.Values{"pin": shown})
	if res.StatusCode == http.StatusSeeOther {
		text = s.See(res.Header.Get("Location"))
		if !strings.Contains(text, "A newer definition was <strong>not</strong> approved") {
			t.Errorf("got %s", text)
		}
	} else if res.StatusCode != http.StatusConflict || !strings.Contains(text, "pin_changed") {
		t.Errorf("got %d %s, want 409", res.StatusCode, text)
	}
	if text = s.See("/pins"); !strings.Contains(text, "Deletes everything") {
		t.Errorf("the newer definition was approved: %s", text)
	}
}

func TestPinsOfAViewer(t *testing.T) {
	mcptest.NoLeaks(t)
	s := newShop(t)
	s.role = page.RoleViewer
	s.add("new", "Is new.")
	s.restart()
	text := s.Await("/pins", "new tool")
	if strings.Contains(text, "/pins/approve") || !strings.Contains(text, "An operator may approve it") {
		t.Errorf("a viewer sees a form: %s", text)
	}
	if res, _ := s.Send(http.MethodPost, "/pins/approve", url.Values{}); res.StatusCode != http.StatusForbidden {
		t.Errorf("a viewer approves: got %d, want 403", res.StatusCode)
	}
	if text = s.See("/pins?status=approved&server=shop"); !strings.Contains(text, "search") ||
		!strings.Contains(text, "Only the server") {
		t.Errorf("approved: got %s", text)
	}
	if text = s.See("/pins?status=removed"); !strings.Contains(text, "No definition was removed") {
		t.Errorf("removed: got %s", text)
	}
}
