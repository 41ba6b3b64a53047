package events

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/events/webhook"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/internal/freeport"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/oauth"
)

// A webhookServer is a server that sends events to an endpoint of this machine, for a caller that is authenticated.
type webhookServer struct {
	url, endpoint string
	sender        *webhook.Sender
	emit          func(number int, text string)
}

func newWebhookServer(t *testing.T, endpoint http.Handler) *webhookServer {
	web := httptest.NewTLSServer(endpoint)
	t.Cleanup(web.Close)
	roots := x509.NewCertPool()
	roots.AddCert(web.Certificate())
	s, srv, emit := newEvents(t)
	sender := webhook.NewSender(&webhook.SenderOptions{Fetcher: oauth.NewFetcher(&oauth.FetcherOptions{
		TLSConfig: &tls.Config{RootCAs: roots}, AllowedHosts: []string{"127.0.0.1"}})})
	if err := sender.Serve(t.Context(), srv); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sender.Close() })
	caller := &mcp.Principal{Issuer: "https://as.example", Subject: "ann"}
	authenticated := func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
		req.Principal = caller
		return s.ServeMCP(mcp.WithPrincipal(ctx, caller), req)
	}
	return &webhookServer{listenHTTP(t, mcp.HandlerFunc(authenticated)), web.URL + "/hooks", sender, emit}
}

// A trigger calls a function when a text was written for the first time.
type trigger struct {
	text string
	call func()

	mu   sync.Mutex // guards the fields below
	all  bytes.Buffer
	once sync.Once
}

func (w *trigger) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all.Write(p)
	if strings.Contains(w.all.String(), w.text) {
		w.once.Do(w.call)
	}
	return len(p), nil
}

// A subscription for the command's own receiver ends with the command, whether by --count or an interrupt.
func TestEventsAreReceivedAtAURL(t *testing.T) {
	for _, count := range []string{"2", "0"} {
		addr := freeport.Addr(t)
		s := newWebhookServer(t, httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: addr}))
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		interrupted := func() {
			if count == "0" {
				cancel()
			}
		}
		stdout := &trigger{text: `"number":2`, call: interrupted}
		stderr := &trigger{text: "subscribed to: build.finished (sub_", call: func() {
			if n := s.sender.Count(); n != 1 {
				t.Errorf("got %d subscriptions while receiving, want 1", n)
			}
			s.emit(1, "y")
			s.emit(2, "x")
		}}
		status := run(ctx, stdout, stderr, "events", "subscribe", s.url, "build.finished", "branch=main", "--url", s.endpoint,
			"--listen", addr, "--count", count)
		if n := s.sender.Count(); status != exit.OK || n != 0 {
			t.Errorf("--count %s: got status %d and %d subscriptions at the end, want 0 and none; %s", count, status, n, &stderr.all)
		}
		if out := stdout.all.String(); strings.Count(out, "\n") != 2 ||
			!strings.Contains(stderr.all.String(), "To continue: --cursor ") {
			t.Errorf("--count %s: got %q, %s", count, out, &stderr.all)
		}
	}
}

// A subscription for another program remains, is refreshed, and ends with a command of its own.
func TestEventsAreSentToAnotherProgram(t *testing.T) {
	secret, arrived := webhook.NewSecret(), make(chan string, 1)
	r := webhook.NewReceiver(nil)
	route, err := r.Add(secret, func(_ context.Context, m *webhook.Message) error {
		arrived <- m.ID
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer route.Close()
	s := newWebhookServer(t, r)
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(secret.Reveal()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	command := func(verb string, more ...string) outcome {
		args := []string{"events", verb, s.url, "build.finished", "branch=main", "--url", s.endpoint}
		o := patchbay(t, append(args, more...)...)
		if strings.Contains(o.stdout+o.stderr, secret.Reveal()) {
			t.Errorf("%s shows the secret", verb)
		}
		return o
	}
	o := command("subscribe", "--secret-file", file, "--expires", "10m")
	if o.status != exit.OK || !strings.Contains(o.stdout, "id      sub_") || !strings.Contains(o.stdout, "expires 20") {
		t.Fatalf("subscribe: got %+v, want the id and the expiry", o)
	}
	s.emit(1, "x")
	if id := <-arrived; id != "x1" {
		t.Errorf("the endpoint got %q, want x1", id)
	}
	var refreshed struct {
		ID             string
		RefreshBefore  time.Time
		DeliveryStatus struct{ Active bool }
	}
	o = command("subscribe", "--secret-file", file, "--expires", "10m", "--json")
	if err := json.Unmarshal([]byte(o.stdout), &refreshed); err != nil || !strings.HasPrefix(refreshed.ID, "sub_") ||
		!refreshed.DeliveryStatus.Active || time.Until(refreshed.RefreshBefore) > 10*time.Minute {
		t.Errorf("subscribe --json: got %+v, %v", o, err)
	}
	if o = command("unsubscribe"); o.status != exit.OK || s.sender.Count() != 0 {
		t.Errorf("unsubscribe: got %+v and %d subscriptions, want none", o, s.sender.Count())
	}
	if o = command("unsubscribe"); o.status == exit.OK {
		t.Errorf("unsubscribe again: got %+v, want an error", o)
	}
	fresh := filepath.Join(t.TempDir(), "fresh")
	o = command("subscribe", "--secret-file", fresh) // the endpoint does not know it, so it refuses
	text, err := os.ReadFile(fresh)
	if err != nil || o.status == exit.OK || !strings.Contains(o.stderr, "A new secret is in ") ||
		strings.Contains(o.stderr, string(text[:len(text)-1])) {
		t.Errorf("a missing file: got %+v, %v", o, err)
	}
	if _, err := webhook.ParseSecret(strings.TrimSpace(string(text))); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(fresh); runtime.GOOS != "windows" && (err != nil || info.Mode().Perm() != 0o600) {
		t.Errorf("the new file has the mode %v, %v, want 0600", info.Mode(), err)
	}
}
