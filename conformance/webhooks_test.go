package conformance_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/events"
	"github.com/patchbay-mcp/patchbay/ext/events/webhook"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/oauth"
)

type paidOrder struct {
	Number int `json:"number"`
}

type orderFilter struct {
	Min int `json:"min,omitzero"`
}

// serveOrders returns the URL of an MCP server that sends webhooks to an endpoint.
func serveOrders(t *testing.T, endpoint *httptest.Server) (string, *events.Type[paidOrder]) {
	t.Helper()
	s := mcp.NewServer("shop", "1", nil)
	e := events.NewServer(s, nil)
	orders := events.Add(e, &events.Event{Name: "order.paid", Description: "An order was paid"},
		events.Source[orderFilter, paidOrder]{
			Match: func(_ context.Context, f orderFilter, o paidOrder) bool { return o.Number >= f.Min }})
	roots := x509.NewCertPool()
	roots.AddCert(endpoint.Certificate())
	sender := webhook.NewSender(&webhook.SenderOptions{Fetcher: oauth.NewFetcher(
		&oauth.FetcherOptions{InsecureAnyAddress: true, TLSConfig: &tls.Config{RootCAs: roots}})})
	t.Cleanup(func() {
		if err := sender.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := sender.Serve(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	h := mcphttp.NewHandler(s, nil)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(mcp.WithPrincipal(r.Context(), &mcp.Principal{Subject: "ada"})))
	}))
	t.Cleanup(server.Close)
	return server.URL, orders
}

// TestWebhookReceiverOfAISDK sends webhooks to the receiver of @ai-sdk/mcp. Each delivery is also
// verified by the JavaScript library of Standard Webhooks.
func TestWebhookReceiverOfAISDK(t *testing.T) {
	binary := needNode(t)
	var target *url.URL
	endpoint := httptest.NewTLSServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }})
	t.Cleanup(endpoint.Close)
	mcpURL, orders := serveOrders(t, endpoint)
	cmd := exec.CommandContext(within(t, time.Minute), binary, "clients/webhook.mjs", mcpURL)
	in := must(cmd.StdinPipe())(t)
	lines := bufio.NewScanner(must(cmd.StdoutPipe())(t))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	next := func(want string) {
		t.Helper()
		if !lines.Scan() {
			_ = cmd.Wait()
			t.Fatalf("the client ended, want %s: %s", want, &stderr)
		}
		if got := lines.Text(); !strings.HasPrefix(got, want) {
			t.Fatalf("got %s, want %s", got, want)
		}
	}
	say := func(line string) { _ = must(io.WriteString(in, line+"\n"))(t) }
	next("http://")
	target = must(url.Parse(lines.Text()))(t)
	say(endpoint.URL + "/hooks")
	next(`{"listed":["order.paid `)
	next(`{"subscribed":"sub_`)
	emit := func(id string, number int) {
		if err := orders.Emit(events.Occurrence[paidOrder]{ID: id, Data: paidOrder{number}}); err != nil {
			t.Fatal(err)
		}
	}
	emit("evt_1", 1)
	emit("evt_2", 2)
	next(`{"event":"evt_2","data":{"number":2},"cursor":"`)
	say("refresh")
	next(`{"refreshed":"sub_`)
	emit("evt_3", 3)
	next(`{"event":"evt_3","data":{"number":3},"cursor":"`)
	orders.Remove(nil)
	next(`{"terminated":-32023}`)
	say("end")
	next(`{"left":0}`)
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, &stderr)
	}
}

// TestReceiverAcceptsStandardWebhooks verifies a delivery that the JavaScript library of Standard
// Webhooks signed.
func TestReceiverAcceptsStandardWebhooks(t *testing.T) {
	secret, r := webhook.NewSecret(), webhook.NewReceiver(nil)
	var got *webhook.Message
	if _, err := r.Add(secret, func(_ context.Context, m *webhook.Message) error { got = m; return nil }); err != nil {
		t.Fatal(err)
	}
	const body = `{"eventId":"evt_1","name":"order.paid","timestamp":"2026-02-19T16:00:00Z","data":{"text":"Zürich"}}`
	out, err := node(t, time.Minute, "clients/webhook_sign.mjs", secret.Reveal(), "evt_1", body)
	if err != nil {
		t.Fatal(out, err)
	}
	var fields map[string]string
	if err := json.Unmarshal([]byte(out), &fields); err != nil {
		t.Fatal(err)
	}
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-MCP-Subscription-Id", "sub_1")
	for name, value := range fields {
		req.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	r.ServeHTTP(w, req)
	if w.Code != http.StatusOK || got == nil || got.ID != "evt_1" {
		t.Errorf("got status %d and message %+v, want the event", w.Code, got)
	}
}
