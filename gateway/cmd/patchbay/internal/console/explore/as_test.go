package explore_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/celpolicy"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/consoletest"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/explore"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

const hidesFromAnn = `{"mcpServers": {"fs": {"command": "x"}}, "patchbay": {"policy": {"rules": [{"name": "not-ann",
	"on": ["list", "call"], "when": "caller.subject == 'ann' && target == 'secret'", "do": "hide"}]}}}`

// views is a Recorder of the views of lists.
type views struct {
	mu  sync.Mutex // guards all
	all []string
}

func (v *views) Record(r *event.Record) error {
	var d struct{ Action, Subject string }
	if r.Event == event.Admin && json.Unmarshal(r.Detail, &d) == nil && d.Action == "view as" {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.all = append(v.all, r.Caller.Principal.Subject+" as "+d.Subject+" at "+r.Server)
	}
	return nil
}

func (v *views) text() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return strings.Join(v.all, "\n")
}

// newViewed serves a console of a gateway with a policy. The person of a request is in the header X-Person. ann has
// called a tool, and mallory may not use the server.
func newViewed(t *testing.T, recorded *views) *consoletest.Site {
	t.Helper()
	f, err := config.Parse([]byte(hidesFromAnn))
	if err != nil {
		t.Fatal(err)
	}
	compiled, err := celpolicy.New(f, nil)
	if err != nil {
		t.Fatal(err)
	}
	fs := mcp.NewServer("fs", "1", nil)
	for _, name := range []string{"read", "secret"} {
		mcp.AddTool(fs, &mcp.Tool{Name: name}, func(context.Context, struct{}) (string, error) { return "", nil })
	}
	g, _ := consoletest.Gateway(t, hidesFromAnn, map[string]*mcp.Server{"fs": fs},
		func(o *host.Options, a *gateway.AdminOptions) {
			o.Policy, o.Recorder = compiled, a.Events.Recorder(recorded)
		})
	connect := func(_ context.Context, server string, p *mcp.Principal) (mcp.Transport, error) {
		if p.Subject == "frank" {
			return nil, errors.New("frank cannot connect")
		}
		h, err := g.CallerEndpoint(p, gateway.Route{Server: server})
		return mcp.InMemory(h), err
	}
	ann, err := connect(t.Context(), "fs", &mcp.Principal{Issuer: "test", Subject: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	c, err := mcp.Connect(t.Context(), ann, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.CallTool(t.Context(), "read", nil); err != nil {
		t.Fatal(err)
	}
	explain := func(ctx context.Context, a *policy.Action) (policy.Decision, []gateway.RuleStep) {
		d, _ := compiled.Explain(ctx, a)
		return d, nil
	}
	return consoletest.New(t, func(o *console.Options) {
		o.Admin, o.Connect = g.AdminClient, connect
		o.Opens = func(p *mcp.Principal, _ string) bool { return p.Subject != "mallory" }
		o.Viewer = &explore.Viewer{Find: g.FindCaller, Record: g.RecordView,
			Explain: func(context.Context, json.RawMessage) (gateway.Explainer, error) { return explain, nil }}
		o.Authenticate = func(r *http.Request) (*mcp.Principal, page.Role, error) {
			who, role, _ := strings.Cut(r.Header.Get("X-Person"), " ")
			return &mcp.Principal{Issuer: "test", Subject: who}, page.Role(role), nil
		}
	})
}

// An operator sees what another person sees, and the rule that hides an item from the person, but cannot run as the
// person. The audit log records each view.
func TestOperatorSeesTheListsOfAnotherPerson(t *testing.T) {
	mcptest.NoLeaks(t)
	recorded := &views{}
	s := newViewed(t, recorded)
	see := func(who, as, more string) (int, string) {
		q := url.Values{"server": {"fs"}, "as": {as}}.Encode()
		res, text := s.Send(s.Stranger(), http.MethodGet, "/explore?"+q+more, nil, "X-Person", who)
		return res.StatusCode, text
	}
	const ann = "caller test ann"
	for _, refused := range []struct {
		who, as string
		status  int
	}{{"bob viewer", ann, http.StatusForbidden}, {"mallory operator", ann, http.StatusNotFound},
		{"eve operator", "caller test nobody", http.StatusNotFound},
		{"eve operator", "key none", http.StatusNotFound}} {
		status, text := see(refused.who, refused.as, "")
		if status != refused.status || strings.Contains(text, "secret") {
			t.Errorf("%s as %s: got %d %s, want %d", refused.who, refused.as, status, text, refused.status)
		}
	}
	if got := recorded.text(); got != "" {
		t.Errorf("refused views were recorded: %s", got)
	}
	status, text := see("eve operator", ann, "")
	if status != http.StatusOK || !strings.Contains(text, "selected>caller test ann</option>") {
		t.Errorf("got %d %s, want the choice of ann", status, text)
	}
	if got := recorded.text(); got != "eve as ann at fs" {
		t.Errorf("recorded %q, want one view", got)
	}
	consoletest.Await(t, "frank cannot connect", func() string { // else no hidden item would be marked
		_, text := see("frank operator", ann, "")
		return text
	})
	text = consoletest.Await(t, "hidden by rule not-ann", func() string {
		_, text := see("eve operator", ann, "&name=secret")
		return text
	})
	for _, want := range []string{`>read</span>`, "Hidden by rule not-ann: this person does not see the item",
		"You cannot run as another person"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q: %s", want, text)
		}
	}
	for _, form := range []string{`id="editor"`, "/explore/run", "/explore/watch"} {
		if strings.Contains(text, form) {
			t.Errorf("the page offers %s", form)
		}
	}
	if _, own := s.Send(s.Stranger(), http.MethodGet, "/explore?server=fs&name=secret", nil, "X-Person",
		"eve operator"); strings.Contains(own, "hidden by") || !strings.Contains(own, `for="as"`) {
		t.Errorf("the lists of eve: got %s", own)
	}
	if _, own := s.Send(s.Stranger(), http.MethodGet, "/explore?server=fs", nil, "X-Person",
		"bob viewer"); strings.Contains(own, `for="as"`) {
		t.Error("a viewer may choose a person")
	}
}
