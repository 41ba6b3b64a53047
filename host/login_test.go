package host_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/operator"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

func openLogins(t *testing.T) *host.Host {
	t.Helper()
	f, err := config.Parse([]byte(`{"mcpServers": {"notes": {"url": "https://notes.example/mcp"},
		"mail": {"url": "https://mail.example/mcp"}, "free": {"url": "https://free.example/mcp"}},
		"patchbay": {"servers": {"notes": {"auth": "caller"}, "mail": {"auth": "caller"}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	h, err := host.Open(t.Context(), f, &host.Options{Logger: noLog})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	h.Operator().SetLoginURL("https://gateway.example/connect", nil)
	return h
}

func callerNamed(name string) *policy.Caller {
	return &policy.Caller{Principal: &mcp.Principal{Issuer: "test", Subject: name}}
}

func beginLogin(t *testing.T, h *host.Host, server, name string, scopes ...string) operator.Login {
	t.Helper()
	l, err := h.Operator().BeginLogin(t.Context(), server, callerNamed(name), scopes...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func ticketOf(l operator.Login) string {
	return strings.TrimPrefix(l.URL(), "https://gateway.example/connect/")
}

// A ticket is for one caller and one server, has 160 bits, and is valid for 10 minutes.
func TestTicketsOfLogins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := openLogins(t)
		ann := beginLogin(t, h, "notes", "ann")
		if again := beginLogin(t, h, "notes", "ann"); again != ann {
			t.Error("a request for the same has another ticket")
		}
		seen := map[string]bool{}
		for _, l := range []operator.Login{ann, beginLogin(t, h, "notes", "bob"), beginLogin(t, h, "mail", "ann"),
			beginLogin(t, h, "notes", "ann", "write")} {
			ticket := ticketOf(l)
			if len(ticket) != 32 || strings.Trim(ticket, "abcdefghijklmnopqrstuvwxyz234567") != "" || seen[ticket] {
				t.Errorf("ticket %q, want 32 digits of base 32, once", ticket)
			}
			seen[ticket] = true
			if got, err := h.Operator().Login(ticket); err != nil || got != l {
				t.Errorf("Login: %v, %v", got, err)
			}
		}
		if ann.Server() != "notes" || ann.Principal().Subject != "ann" || ann.Endpoint() != "https://notes.example" {
			t.Errorf("got %q, %+v, %q", ann.Server(), ann.Principal(), ann.Endpoint())
		}
		for _, ticket := range []string{"", "x", ticketOf(ann) + "a", ticketOf(ann)[1:], strings.ToUpper(ticketOf(ann))} {
			if _, err := h.Operator().Login(ticket); !errors.Is(err, operator.ErrNoLogin) {
				t.Errorf("%q: got %v, want ErrNoLogin", ticket, err)
			}
		}
		time.Sleep(6 * time.Minute)
		if later := beginLogin(t, h, "notes", "ann"); later == ann {
			t.Error("a login that is about to expire is offered again")
		}
		time.Sleep(4*time.Minute + time.Second)
		if _, err := h.Operator().Login(ticketOf(ann)); !errors.Is(err, operator.ErrNoLogin) {
			t.Errorf("after 10 minutes: %v, want ErrNoLogin", err)
		}
		if _, err := ann.Start(t.Context(), "browser"); err == nil {
			t.Error("an expired login was started")
		}
	})
}

// The logins of a principal, and of all, are bounded; those that have expired do not count.
func TestLoginsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := openLogins(t)
		limited := func(err error) bool {
			e, ok := errors.AsType[*hosterr.Error](err)
			return ok && e.Code == hosterr.CodeLimited && e.RetryAfter > 0
		}
		for n := range 16 {
			beginLogin(t, h, "notes", "ann", fmt.Sprint("scope", n))
		}
		if _, err := h.Operator().BeginLogin(t.Context(), "mail", callerNamed("ann")); !limited(err) {
			t.Errorf("the 17th of a principal: %v, want limited", err)
		}
		beginLogin(t, h, "notes", "bob")
		for n := range 10_000 - 17 {
			beginLogin(t, h, "notes", fmt.Sprint("user", n))
		}
		if _, err := h.Operator().BeginLogin(t.Context(), "notes", callerNamed("last")); !limited(err) {
			t.Errorf("the 10,001st: %v, want limited", err)
		}
		time.Sleep(10*time.Minute + time.Second)
		beginLogin(t, h, "notes", "last")
		beginLogin(t, h, "mail", "ann")
	})
}

func TestServersWithoutLogins(t *testing.T) {
	h := openLogins(t)
	for _, server := range []string{"free", "unknown", ""} {
		if l, err := h.Operator().BeginLogin(t.Context(), server, callerNamed("ann")); err == nil ||
			(server == "free") != errors.Is(err, operator.ErrLoginUnused) {
			t.Errorf("%q: got %v, %v", server, l, err)
		}
	}
	if err := h.Operator().Logout(t.Context(), "free", callerNamed("ann")); err != nil {
		t.Error(err)
	}
	if err := h.Operator().Logout(t.Context(), "unknown", callerNamed("ann")); err == nil {
		t.Error("logged out of an unknown server")
	}
}

// Failed logins of one caller are bounded, and those of others stay.
func TestFailedLoginsOfACallerAreBounded(t *testing.T) {
	h := openLogins(t)
	fail := func(name string) (kept func() bool) {
		t.Helper()
		kept, err := host.FailLogin(t.Context(), h, "notes", callerNamed(name))
		if err != nil {
			t.Fatal(err)
		}
		return kept
	}
	ann, first := fail("ann"), fail("bob")
	var last func() bool
	for range 20 {
		last = fail("bob")
	}
	if !ann() || !last() || first() {
		t.Errorf("ann's is kept: %t, bob's last: %t, bob's first: %t; want true, true, false", ann(), last(), first())
	}
}
