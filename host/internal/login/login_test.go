package login_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/internal/login"
	"github.com/patchbay-mcp/patchbay/host/internal/server"
	"github.com/patchbay-mcp/patchbay/host/operator"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

func TestMain(m *testing.M) { os.Exit(testhome.Main(m, (*testing.M).Run)) }

// newServer returns logins, and the credentials for a server with a setting "auth".
func newServer(t *testing.T, auth config.ServerAuth) (*login.Logins, *login.Server) {
	t.Helper()
	return newServerWith(t, auth, func(*mcp.Principal) {})
}

// newServerWith is like newServer, with a function that is called after each login.
func newServerWith(
	t *testing.T, auth config.ServerAuth, changed func(p *mcp.Principal),
) (*login.Logins, *login.Server) {
	t.Helper()
	all := login.New(login.Options{Context: t.Context(), Run: func(f func()) { go f() },
		Logger: slog.New(slog.DiscardHandler),
		Record: func(string, *mcp.Principal, string, error) {}})
	all.SetURL("https://gateway.example/connect", nil)
	entry := &server.Server{Settings: &config.ServerSettings{Auth: auth, ForwardHeaders: []string{"X-Team"}},
		Config: &config.Server{Name: "notes", Type: config.TypeHTTP, URL: "https://notes.example/mcp"}}
	return all, all.NewServer("notes", login.ServerOptions{Entry: func() *server.Server { return entry },
		Changed: changed, WithoutServer: func(err error) error { return err }})
}

func caller(subject string) *policy.Caller {
	return &policy.Caller{Principal: &mcp.Principal{Issuer: "https://idp.example", Subject: subject}}
}

func credential(t *testing.T, s *login.Server, c *policy.Caller) *login.Credential {
	t.Helper()
	cred, err := s.Of(t.Context(), c)
	if err != nil || cred == nil {
		t.Fatalf("got %v, %v; want a credential", cred, err)
	}
	return cred
}

// The functions of a program may use the logins of the host, and another request of the principal may be faster.
func TestLoginsAreUsableWhileACredentialIsMade(t *testing.T) {
	var all *login.Logins
	var notes *login.Server
	var faster *login.Credential
	calls := 0
	oauth := func(*config.Server, *mcp.Principal) *oauthclient.TransportOptions {
		if calls++; calls == 1 {
			all.SetURL("https://gateway.example/connect", nil)
			faster = credential(t, notes, caller("ann"))
		}
		return &oauthclient.TransportOptions{}
	}
	all = login.New(login.Options{Context: t.Context(), OAuth: oauth, Logger: slog.New(slog.DiscardHandler)})
	entry := &server.Server{Settings: &config.ServerSettings{Auth: config.AuthCaller},
		Config: &config.Server{Name: "notes", Type: config.TypeHTTP, URL: "https://notes.example/mcp"}}
	notes = all.NewServer("notes", login.ServerOptions{Entry: func() *server.Server { return entry }})
	if got := credential(t, notes, caller("ann")); got != faster || calls != 2 {
		t.Errorf("a principal has two credentials after %d calls of OAuth, want one after 2", calls)
	}
}

// A server keeps the credentials of the 1000 callers that used it last.
func TestCredentialsOfTheLastCallersAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s := newServer(t, config.AuthCaller)
		var all []*login.Credential
		use := func(n int) *login.Credential {
			time.Sleep(time.Millisecond)
			return credential(t, s, caller(strconv.Itoa(n)))
		}
		for n := range 1000 {
			all = append(all, use(n))
		}
		use(0)
		use(1000)
		if use(0) != all[0] || use(999) != all[999] || use(1) == all[1] {
			t.Error("another credential than the least recently used one was removed")
		}
	})
}

// A request that waits for a login goes on when the connections of its caller may begin again. Before, it
// would get the error of the last attempt to connect, and ask for another login.
func TestServerLearnsOfALoginFirst(t *testing.T) {
	var waiting <-chan struct{}
	learned := false
	_, s := newServerWith(t, config.AuthCaller, func(*mcp.Principal) {
		learned = true
		select {
		case <-waiting:
			t.Error("the request goes on before the server has learned of the login")
		default:
		}
	})
	ann := credential(t, s, caller("ann"))
	waiting = ann.Waiting()
	ann.LoggedIn()
	if <-waiting; !learned {
		t.Error("the server has not learned of the login")
	}
}

// A ticket opens its pending login until the login expires or another login has taken its place.
func TestPendingLogins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, s := newServer(t, config.AuthCaller)
		ann := credential(t, s, caller("ann"))
		l, err := all.Begin(ann, nil)
		if err != nil {
			t.Fatal(err)
		}
		ticket, ok := strings.CutPrefix(l.URL(), "https://gateway.example/connect/")
		if found, err := all.ByTicket(ticket); !ok || found != l || err != nil {
			t.Errorf("%s: got %v, %v; want the login", l.URL(), found, err)
		}
		if again, err := all.Begin(ann, nil); again != l || err != nil {
			t.Errorf("got %v, %v; want the same login again", again, err)
		}
		if other, err := all.Begin(ann, []string{"write"}); other == l || err != nil {
			t.Errorf("got %v, %v; want another login for a further scope", other, err)
		}
		unknown := url.Values{"state": {"unknown"}}
		if _, err := all.Respond(t.Context(), "browser", unknown); !errors.Is(err, operator.ErrNoLogin) {
			t.Errorf("got %v, want %v", err, operator.ErrNoLogin)
		}
		l.Finish(context.Canceled)
		if found := all.ByID(ann.Principal().Key(), l.ID()); found != l || !errors.Is(l.Outcome(), context.Canceled) {
			t.Errorf("got %v with %v; want the failed login", found, l.Outcome())
		}
		if found := all.ByID("another principal", l.ID()); found != nil {
			t.Errorf("another principal received the failed login %v", found)
		}
		last, err := all.Begin(ann, nil)
		if err != nil || last == l {
			t.Fatalf("got %v, %v; want a new login", last, err)
		}
		time.Sleep(login.Time + time.Second)
		_, ticket, _ = strings.Cut(last.URL(), "connect/")
		if _, err := all.ByTicket(ticket); !errors.Is(err, operator.ErrNoLogin) {
			t.Errorf("after %v: got %v, want %v", login.Time, err, operator.ErrNoLogin)
		}
	})
}

// No request without a token reaches the server: it may accept the request for an anonymous session.
func TestRequestsWithoutATokenAreNotSent(t *testing.T) {
	_, s := newServer(t, config.AuthCaller)
	entry := &server.Server{Settings: &config.ServerSettings{Auth: config.AuthCaller},
		Config: &config.Server{Type: config.TypeHTTP, URL: "https://127.0.0.1:1/mcp"}}
	client := s.Client(entry, caller("ann"), entry.Config.URL, new(login.Forwarded))
	_, err := client.Get(entry.Config.URL)
	if err == nil || strings.Contains(err.Error(), "connect") {
		t.Errorf("got %v, want the error of a missing login before a connection", err)
	}
}

func TestOwnLogins(t *testing.T) {
	for auth, wants := range map[config.ServerAuth]bool{config.AuthCaller: true, config.AuthForward: false, "": false} {
		_, s := newServer(t, auth)
		_, err := s.Own(t.Context(), caller("ann"))
		if (err == nil) != wants || err != nil && !errors.Is(err, operator.ErrLoginUnused) {
			t.Errorf("auth %q: got %v, want a login: %t", auth, err, wants)
		}
	}
}

// The host's own requests for a caller, such as for lists, have the headers of the caller's last request.
func TestForwardedHeaders(t *testing.T) {
	_, s := newServer(t, config.AuthForward)
	f := new(login.Forwarded)
	req := &mcp.Request{Header: http.Header{"X-Team": {"blue"}, "Cookie": {"secret"}}}
	var got []http.Header
	base := roundTripper(func(r *http.Request) (*http.Response, error) {
		got = append(got, r.Header)
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
	})
	client := login.Forward(f, base)
	ctx := s.With(t.Context(), f, req)
	for _, ctx := range []context.Context{ctx, t.Context()} {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://notes.example/mcp", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
	}
	for _, header := range got {
		if header.Get("X-Team") != "blue" || header.Get("Cookie") != "" {
			t.Errorf("got the header %v, want X-Team only", header)
		}
	}
	if len(got) != 2 {
		t.Errorf("got %d requests, want 2", len(got))
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
