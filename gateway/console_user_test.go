package gateway_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// Only keys with a role open a console, until they are revoked or expire.
func TestKeysWithARoleOpenTheConsole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, store := keyed(t, &upstreams{}, twoServers)
		login := httptest.NewRequest(http.MethodPost, "http://127.0.0.1/login", http.NoBody)
		for _, wrong := range []string{"", key, strings.Repeat("x", 5000),
			newKey(t, store, gateway.Key{Name: "client"})} {
			if _, err := g.ConsoleUser(login, wrong); !errors.Is(err, gateway.ErrConsoleKey) {
				t.Errorf("key %.20q: got %v, want a refusal", wrong, err)
			}
		}
		for name, role := range map[string]gateway.ConsoleRole{"ann": gateway.ConsoleOperator,
			"bob": gateway.ConsoleViewer} {
			u, err := g.ConsoleUser(login, newKey(t, store, gateway.Key{Name: name, Console: role,
				Expires: time.Now().Add(time.Hour)}))
			if err != nil {
				t.Fatal(err)
			}
			p, got, err := u.Check()
			if err != nil || got != role || p.Subject != name || p.Issuer != gateway.KeyIssuer {
				t.Errorf("%s: got %v, %q, %v", name, p, got, err)
			}
			ctx, done := u.Bind(t.Context())
			if name == "ann" {
				if _, err := store.Revoke(t.Context(), name); err != nil {
					t.Fatal(err)
				}
			} else {
				time.Sleep(time.Hour)
			}
			<-ctx.Done() // within a second of fake time, or the test fails with a deadlock
			done()
			if _, _, err := u.Check(); !errors.Is(err, gateway.ErrConsoleKey) {
				t.Errorf("%s after the end of the key: got %v", name, err)
			}
			if ctx, done := u.Bind(t.Context()); ctx.Err() == nil {
				t.Errorf("%s: a request begins after the end of the key", name)
				done()
			}
			if _, err := g.CallerEndpoint(p, gateway.Route{Server: "one"}); err == nil {
				t.Errorf("%s: a run begins after the end of the key", name)
			}
		}
	})
	admin := gateway.Key{Name: "x", Console: "admin"}
	if _, err := gateway.NewKeyStore(&state.Memory{}).Create(t.Context(), admin); err == nil {
		t.Error("a key with the role admin was created")
	}
}

// A run in the console has the limits of the key, as a request over HTTP.
func TestRunsOfAPrincipalHaveTheLimitsOfItsKey(t *testing.T) {
	mcptest.NoLeaks(t)
	g, store := keyed(t, &upstreams{}, twoServers)
	login := httptest.NewRequest(http.MethodPost, "http://127.0.0.1/login", http.NoBody)
	for name, test := range map[string]struct {
		key     gateway.Key
		servers []string
		tools   bool
	}{
		"all":     {gateway.Key{}, []string{"one", "two"}, true},
		"one":     {gateway.Key{Servers: []string{"one"}}, []string{"one"}, true},
		"prompts": {gateway.Key{Only: []policy.ActionKind{policy.ActionGet}}, []string{"one", "two"}, false},
		"unknown": {gateway.Key{Servers: []string{"none"}}, nil, false},
	} {
		test.key.Name, test.key.Console = name, gateway.ConsoleOperator
		u, err := g.ConsoleUser(login, newKey(t, store, test.key))
		if err != nil {
			t.Fatal(err)
		}
		p, _, err := u.Check()
		if err != nil {
			t.Fatal(err)
		}
		var opened []string
		for _, server := range []string{"one", "two", "none"} {
			h, err := g.CallerEndpoint(p, gateway.Route{Server: server})
			if err != nil {
				continue
			}
			opened = append(opened, server)
			c, err := mcp.Connect(t.Context(), mcp.InMemory(h), nil)
			if err != nil {
				t.Fatal(err)
			}
			tools := 0
			for range c.Tools(t.Context()) {
				tools++
			}
			_ = c.Close()
			if (tools > 0) != test.tools {
				t.Errorf("%s: server %s lists %d tools, want some: %t", name, server, tools, test.tools)
			}
			status, text := sendInProcess(t, g.AdminClient(p), http.MethodGet, "/catalogue?server="+server)
			if status != http.StatusOK || strings.Contains(text, `"name"`) != test.tools {
				t.Errorf("%s: the catalogue of %s: got %d, %s, want tools: %t", name, server, status, text, test.tools)
			}
		}
		if !slices.Equal(opened, test.servers) {
			t.Errorf("%s: the key opens %q, want %q", name, opened, test.servers)
		}
	}
}
