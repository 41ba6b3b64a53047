package gateway_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/events"
	"github.com/patchbay-mcp/patchbay/ext/events/webhook"
	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/oauth"
)

// hang bounds what a test waits for, on slow machines too.
const hang = 2 * time.Minute

type recipient struct {
	For string `json:"for"`
}

type letter struct {
	For string `json:"for"`
	N   int    `json:"n"`
}

// A postOffice is an event server over HTTP, whose events are for a recipient, and the endpoint of webhooks.
type postOffice struct {
	t       *testing.T
	url     string
	sent    *events.Type[letter]
	hooks   *httptest.Server
	mux     *http.ServeMux
	fetcher *oauth.Fetcher
}

// newPostOffice returns a server that delivers its events in a mode.
func newPostOffice(t *testing.T, mode events.Mode) *postOffice {
	t.Helper()
	p := &postOffice{t: t, mux: http.NewServeMux()}
	p.hooks = httptest.NewUnstartedServer(p.mux)
	p.hooks.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	p.hooks.StartTLS()
	t.Cleanup(p.hooks.Close)
	roots := x509.NewCertPool()
	roots.AddCert(p.hooks.Certificate())
	p.fetcher = oauth.NewFetcher(&oauth.FetcherOptions{TLSConfig: &tls.Config{RootCAs: roots}, InsecureAnyAddress: true,
		Logger: slog.New(slog.DiscardHandler)})
	s := mcp.NewServer("post", "1", nil)
	server := events.NewServer(s, nil)
	p.sent = events.Add(server, &events.Event{Name: "letter", Description: "A letter.", Delivery: []events.Mode{mode}},
		events.Source[recipient, letter]{
			Interval: 10 * time.Millisecond,
			Match:    func(_ context.Context, r recipient, l letter) bool { return r.For == l.For }})
	if mode == events.ModeWebhook {
		sender := webhook.NewSender(&webhook.SenderOptions{Fetcher: p.fetcher, Logger: slog.New(slog.DiscardHandler)})
		t.Cleanup(func() { _ = sender.Close() })
		if err := sender.Serve(t.Context(), server); err != nil {
			t.Fatal(err)
		}
	}
	h := mcphttp.NewHandler(s, &mcphttp.Options{Logger: slog.New(slog.DiscardHandler)})
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(mcp.WithPrincipal(r.Context(), &mcp.Principal{Subject: "gateway"})))
	}))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), hang)
		defer cancel()
		_ = h.Shutdown(ctx)
		web.CloseClientConnections()
		web.Close()
	})
	p.url = web.URL
	return p
}

// A gate is a gateway of a post office with keys.
type gate struct {
	*gateway.Gateway
	url   string
	close func()
}

// open opens a gateway.
func (p *postOffice) open(keys *gateway.KeyStore, store webhook.Store) *gate {
	p.t.Helper()
	f, err := config.Parse([]byte(fmt.Sprintf(`{"mcpServers": {"post": {"url": %q}},
		"patchbay": {"profiles": {"mail": {"servers": ["post"]}}}}`, p.url)))
	if err != nil {
		p.t.Fatal(err)
	}
	h, err := host.Open(p.t.Context(), f, &host.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		p.t.Fatal(err)
	}
	g := gateway.New(h, &gateway.Options{Keys: []string{key}, KeyStore: keys, Logger: slog.New(slog.DiscardHandler)})
	web := httptest.NewUnstartedServer(g.Handler())
	o := &gateway.WebhookOptions{Store: store, Fetcher: p.fetcher}
	if err := gateway.OfferWebhooks(p.t.Context(), g, o); err != nil {
		p.t.Fatal(err)
	}
	web.Start()
	isClosed := false
	gate := &gate{Gateway: g, url: web.URL + "/mcp", close: func() {
		if isClosed {
			return
		}
		isClosed = true
		ctx, cancel := context.WithTimeout(context.Background(), hang)
		defer cancel()
		if err := errors.Join(g.Shutdown(ctx), h.Close()); err != nil {
			p.t.Error(err)
		}
		web.Close()
	}}
	p.t.Cleanup(gate.close)
	return gate
}

// A mailbox receives the letters of a principal.
type mailbox struct {
	t        *testing.T
	name     string
	received chan string // the data of events, and the types of other messages
}

// open follows the letters of a recipient in a mode. It returns when the subscription has begun.
func (p *postOffice) mailbox(c *mcp.Client, name string, mode events.Mode) *mailbox {
	p.t.Helper()
	m := &mailbox{p.t, name, make(chan string, 100)}
	params := map[string]any{"name": "letter", "arguments": recipient{name}, "cursor": nil}
	switch mode {
	case events.ModePoll:
		m.poll(c, params)
	case events.ModePush:
		begun := make(chan bool, 1)
		ctx, cancel := context.WithCancel(p.t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = c.Do(mcp.WithCallOptions(ctx, mcp.CallOptions{Notify: func(method string, params json.RawMessage) {
				switch {
				case strings.HasSuffix(method, "/active"):
					begun <- true
				case strings.HasSuffix(method, "/event"):
					m.add(params)
				}
			}}), "events/stream", params)
		}()
		p.t.Cleanup(func() { cancel(); <-ended })
		select {
		case <-begun:
		case <-ended:
			p.t.Fatal("the stream ended")
		}
	case events.ModeWebhook:
		secret, r := webhook.NewSecret(), webhook.NewReceiver(nil)
		if _, err := r.Add(secret, func(_ context.Context, msg *webhook.Message) error {
			if msg.Event != nil {
				m.received <- string(msg.Event.Data)
			} else {
				m.received <- msg.Type
			}
			return nil
		}); err != nil {
			p.t.Fatal(err)
		}
		p.mux.Handle("/"+name, r)
		params["delivery"] = map[string]any{"mode": "webhook", "url": p.hooks.URL + "/" + name, "secret": secret.Reveal()}
		if _, err := c.Do(p.t.Context(), "events/subscribe", params); err != nil {
			p.t.Fatal(err)
		}
	}
	return m
}

// poll begins to poll.
func (m *mailbox) poll(c *mcp.Client, params map[string]any) {
	ctx, cancel := context.WithCancel(m.t.Context())
	begun, ended := make(chan bool), make(chan struct{})
	go func() {
		defer close(ended)
		for first := true; ctx.Err() == nil; first = false {
			raw, err := c.Do(ctx, "events/poll", params)
			var res struct {
				Events []json.RawMessage
				Cursor *string
			}
			if err == nil {
				err = json.Unmarshal(raw, &res)
			}
			if err != nil && ctx.Err() == nil {
				m.t.Error(err)
			}
			for _, e := range res.Events {
				m.add(e)
			}
			if params["cursor"] = res.Cursor; first {
				close(begun)
			}
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	m.t.Cleanup(func() { cancel(); <-ended })
	<-begun
}

func (m *mailbox) add(raw json.RawMessage) {
	var e struct {
		Name string
		Data json.RawMessage
	}
	if err := json.Unmarshal(raw, &e); err != nil || e.Name != "letter" {
		m.t.Errorf("got %s, %v", raw, err)
	}
	m.received <- string(e.Data)
}

// want tests the next messages.
func (m *mailbox) want(all ...string) {
	m.t.Helper()
	for _, want := range all {
		select {
		case got := <-m.received:
			if got != want {
				m.t.Errorf("%s: got %s, want %s", m.name, got, want)
			}
		case <-time.After(hang):
			m.t.Fatalf("%s: got no %s", m.name, want)
		}
	}
}

func (p *postOffice) send(name string, n int) string {
	p.t.Helper()
	if err := p.sent.Emit(events.Occurrence[letter]{Data: letter{name, n}}); err != nil {
		p.t.Fatal(err)
	}
	return fmt.Sprintf(`{"for":%q,"n":%d}`, name, n)
}

func (p *postOffice) client(g *gate, secret string) *mcp.Client {
	p.t.Helper()
	c, err := connect(p.t, g.url, "2026-07-28", false, "Authorization", "Bearer "+secret)
	if err != nil {
		p.t.Fatal(err)
	}
	return c
}

var (
	serverModes = []events.Mode{events.ModePoll, events.ModePush}
	clientModes = []events.Mode{events.ModePoll, events.ModePush, events.ModeWebhook}
)

// Callers receive the events of servers in every mode of delivery, whichever mode the server offers, and each principal
// only its own events. In older revisions there are no events.
func TestEveryTranslationOfEvents(t *testing.T) {
	for _, up := range serverModes {
		for _, down := range clientModes {
			t.Run(fmt.Sprintf("%s from %s", down, up), func(t *testing.T) {
				t.Parallel()
				p, keys := newPostOffice(t, up), gateway.NewKeyStore(&state.Memory{})
				g := p.open(keys, webhook.NewMemory())
				names := []string{"bob", "eve"}
				var boxes []*mailbox
				for _, name := range names {
					secret := newKey(t, keys, gateway.Key{Name: name})
					boxes = append(boxes, p.mailbox(p.client(g, secret), name, down))
					old, err := connect(t, g.url, "2025-11-25", false, "Authorization", "Bearer "+secret)
					if err != nil {
						t.Fatal(err)
					}
					for _, method := range []string{"events/list", "events/poll", "events/stream", "events/subscribe"} {
						_, err := old.Do(t.Context(), method, map[string]any{"name": "letter"})
						if e, ok := errors.AsType[*mcp.Error](err); !ok || e.Code != mcp.CodeMethodNotFound {
							t.Errorf("%s in an older revision: got %v", method, err)
						}
					}
				}
				var want [2][]string
				for n := range 6 {
					want[n%2] = append(want[n%2], p.send(names[n%2], n))
				}
				boxes[0].want(want[0]...)
				boxes[1].want(want[1]...)
			})
		}
	}
}

// After a restart of the gateway, webhooks go on with the events since. A subscription ends when its key is revoked, and
// no other key ends it.
func TestWebhooksOfKeys(t *testing.T) {
	for _, up := range serverModes {
		t.Run(string(up), func(t *testing.T) {
			t.Parallel()
			p, keys, store := newPostOffice(t, up), gateway.NewKeyStore(&state.Memory{}), webhook.NewMemory()
			g := p.open(keys, store)
			clients, boxes := map[string]*mcp.Client{}, map[string]*mailbox{}
			for _, name := range []string{"bob", "eve"} {
				clients[name] = p.client(g, newKey(t, keys, gateway.Key{Name: name}))
				boxes[name] = p.mailbox(clients[name], name, events.ModeWebhook)
				boxes[name].want(p.send(name, 1))
			}
			_, err := clients["eve"].Do(t.Context(), "events/unsubscribe", map[string]any{"name": "letter",
				"arguments": recipient{"bob"}, "delivery": map[string]any{"url": p.hooks.URL + "/bob"}})
			if e, ok := errors.AsType[*mcp.Error](err); !ok || e.Code != events.CodeNotFound {
				t.Errorf("the subscription of another key: got %v", err)
			}
			g.close()
			want := map[string]string{"bob": p.send("bob", 2), "eve": p.send("eve", 2)}
			p.open(keys, store)
			for name, text := range want {
				boxes[name].want(text)
			}
			if _, err := keys.Revoke(t.Context(), "eve"); err != nil {
				t.Fatal(err)
			}
			boxes["eve"].want("terminated")
			boxes["bob"].want(p.send("bob", 3))
			p.send("eve", 3)
			boxes["bob"].want(p.send("bob", 4))
			if n := len(boxes["eve"].received); n > 0 {
				t.Errorf("got %d messages after the end", n)
			}
		})
	}
}

// The local user has no principal, so its requests for webhooks fail like the requests of any anonymous caller.
func TestLocalUserCannotSubscribe(t *testing.T) {
	p := newPostOffice(t, events.ModePush)
	c := p.client(p.open(gateway.NewKeyStore(&state.Memory{}), webhook.NewMemory()), key)
	for _, ttl := range []any{1000, nil} {
		_, err := c.Do(t.Context(), "events/subscribe", map[string]any{"name": "letter", "arguments": recipient{"bob"},
			"ttlMs": ttl, "delivery": map[string]any{"url": p.hooks.URL + "/bob", "secret": webhook.NewSecret().Reveal()}})
		if e, ok := errors.AsType[*mcp.Error](err); !ok || e.Code != events.CodeForbidden {
			t.Errorf("ttlMs %v: got %v, want code %d", ttl, err, events.CodeForbidden)
		}
	}
}
