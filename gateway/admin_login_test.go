package gateway_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

const loginServers = `{"mcpServers": {"own": {"url": "https://own.example/mcp"}, "each": {"url": "https://each.example/mcp"},
	"all": {"url": "https://all.example/mcp"}, "fixed": {"url": "https://fixed.example/mcp", "headers": {"authorization": "x"}},
	"none": {"url": "https://none.example/mcp"}, "cmd": {"command": "x"}, "bad": {}}, "patchbay": {"servers": {
	"each": {"auth": "caller"}, "all": {"auth": "gateway"}, "none": {"auth": "none"}}}}`

// tokensInMemory sets a store of tokens in memory, for a program that connects itself.
func tokensInMemory(o *host.Options, _ *gateway.AdminOptions) {
	store := oauthclient.NewMemoryStore()
	o.Tokens = func(string) oauthclient.Store { return store }
}

type loginPage struct {
	Server, URL string
	Caller      *struct{ Subject, Issuer, ClientID string }
	All         bool
	Expires     time.Time
}

// The admin API begins logins of the local user and of callers, and returns their pages.
func TestAdminBeginsLogins(t *testing.T) {
	a := newAdminWith(t, loginServers, tokensInMemory, gateway.Options{PublicURL: "https://gateway.example",
		ConnectPrincipal: func(*http.Request) (*mcp.Principal, error) { return nil, http.ErrNoCookie }})
	begin := func(server, body string) (p loginPage) {
		t.Helper()
		a.get("POST", "/servers/"+server+":login", body, &p)
		if !strings.HasPrefix(p.URL, "https://gateway.example/connect/") || p.Server != server ||
			time.Until(p.Expires) < 5*time.Minute || time.Until(p.Expires) > 11*time.Minute {
			t.Errorf("%s %s: got %+v", server, body, p)
		}
		return p
	}
	each, own, all := begin("each", ""), begin("own", ""), begin("all", "{}")
	if each.Caller != nil || each.All || !own.All || !all.All {
		t.Errorf("got %+v, %+v and %+v", each, own, all)
	}
	if again := begin("each", ""); again.URL != each.URL {
		t.Error("a login that waits has another page")
	}
	ann := begin("each", `{"caller": {"subject": "ann", "issuer": "https://people.example", "clientId": "app"}}`)
	if ann.URL == each.URL || ann.Caller == nil || ann.Caller.Subject != "ann" || ann.Caller.ClientID != "app" {
		t.Errorf("got %+v", ann)
	}
	l, err := a.host.Operator().Login(strings.TrimPrefix(ann.URL, "https://gateway.example/connect/"))
	if err != nil || l.Principal().Subject != "ann" || l.Principal().Issuer != "https://people.example" {
		t.Fatalf("got %v, %v", l, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	last := a.records[len(a.records)-1]
	if last.Event != event.Admin || last.Server != "each" || !strings.Contains(string(last.Detail), "/servers/each:login") ||
		strings.Contains(string(last.Detail), strings.TrimPrefix(ann.URL, "https://gateway.example/connect/")) {
		t.Errorf("got %s %s", last.Event, last.Detail)
	}
}

func TestAdminRefusesLogins(t *testing.T) {
	a := newAdminWith(t, loginServers, func(o *host.Options, admin *gateway.AdminOptions) {
		tokensInMemory(o, admin)
		admin.CheckLogin = func(_ context.Context, server string) error {
			if server == "own" {
				return errors.New("the program has another client there")
			}
			return nil
		}
	}, gateway.Options{PublicURL: "https://gateway.example"})
	const ann = `{"caller": {"subject": "ann"}}`
	for _, server := range []string{"cmd", "none", "fixed", "own"} {
		a.refused("POST", "/servers/"+server+":login", "", http.StatusConflict, "login_unused")
	}
	for _, server := range []string{"own", "all", "none", "cmd"} {
		a.refused("POST", "/servers/"+server+":login", ann, http.StatusConflict, "login_unused")
	}
	a.refused("POST", "/servers/bad:login", "", http.StatusBadGateway, "config_error")
	a.refused("POST", "/servers/nosuch:login", "", http.StatusNotFound, "unknown_server")
	a.refused("POST", "/servers/each:login", `{"caller": {"subject": ""}}`, http.StatusBadRequest, "invalid_body")
	a.refused("POST", "/servers/each:login", `{"user": "ann"}`, http.StatusBadRequest, "invalid_body")
	a.refused("POST", "/servers/each:login", "{}", http.StatusUnsupportedMediaType, "unsupported_media_type", "Content-Type", "text/plain")
	a.refused("POST", "/servers/each:login", ann, http.StatusConflict, "auth_required")
	a.refused("GET", "/servers/each:login", "", http.StatusNotFound, "unknown_server") // a name with a colon

	a = newAdmin(t, loginServers, tokensInMemory)
	a.refused("POST", "/servers/each:login", "", http.StatusConflict, "no_login_page")
	a.refused("POST", "/servers/cmd:login", "", http.StatusConflict, "login_unused")
	a = newAdminWith(t, loginServers, nil, gateway.Options{PublicURL: "https://gateway.example"})
	a.refused("POST", "/servers/all:login", "", http.StatusConflict, "login_unused") // no function has the tokens
}

// The admin API ends logins of callers.
func TestAdminEndsLogins(t *testing.T) {
	a := newAdmin(t, loginServers, tokensInMemory)
	var out struct{ Name string }
	if a.get("POST", "/servers/each:logout", `{"caller": {"subject": "ann"}}`, &out); out.Name != "each" {
		t.Errorf("got %+v, want the server", out)
	}
	a.refused("POST", "/servers/nosuch:logout", "", http.StatusNotFound, "unknown_server")
}
