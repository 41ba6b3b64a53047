package webhook_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/events"
	"github.com/patchbay-mcp/patchbay/ext/events/webhook"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/oauth"
)

// A shop offers webhooks, and a client with an https endpoint receives the orders.
func ExampleSender() {
	type Order struct {
		Number int `json:"number"`
	}
	server := mcp.NewServer("shop", "1.0.0", nil)
	srv := events.NewServer(server, nil)
	paid := events.Add(srv, &events.Event{Name: "order.paid"}, events.Source[struct{}, Order]{})

	receiver := webhook.NewReceiver(nil)
	endpoint := httptest.NewTLSServer(receiver)
	defer endpoint.Close()

	// The endpoint of this example is on this machine and its certificate is its own. With a public
	// endpoint, a sender needs no Fetcher.
	roots := x509.NewCertPool()
	roots.AddCert(endpoint.Certificate())
	sender := webhook.NewSender(&webhook.SenderOptions{Fetcher: oauth.NewFetcher(&oauth.FetcherOptions{
		TLSConfig: &tls.Config{RootCAs: roots}, AllowedHosts: []string{"127.0.0.1"},
	})})
	defer sender.Close()
	if err := sender.Serve(context.Background(), srv); err != nil {
		log.Fatal(err)
	}

	client, err := mcp.Connect(context.Background(), mcp.InMemory(server), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	alice := &mcp.Principal{Issuer: "https://as.example", Subject: "alice"} // over HTTP, that of the token
	ctx, cancel := context.WithCancel(mcp.WithPrincipal(context.Background(), alice))
	defer cancel()
	err = webhook.Subscribe(ctx, client, "order.paid", nil, func(_ context.Context, m *webhook.Message) error {
		if m.Event != nil {
			fmt.Printf("%s: %s\n", m.Event.ID, m.Event.Data)
			cancel() // ends the subscription
		}
		return nil
	}, &webhook.SubscribeOptions{URL: endpoint.URL + "/hooks", Receiver: receiver, Refreshed: func(*webhook.Grant) {
		if err := paid.Emit(events.Occurrence[Order]{ID: "order-1", Data: Order{Number: 1}}); err != nil {
			log.Print(err)
		}
	}})
	fmt.Println("error:", err)
	fmt.Println("subscriptions:", sender.Count())
	// Output:
	// order-1: {"number":1}
	// error: <nil>
	// subscriptions: 0
}

// A receiver accepts the messages that its secret signed, and recognizes repetitions.
func ExampleReceiver() {
	receiver := webhook.NewReceiver(nil)
	secret := webhook.NewSecret() // for "delivery" of events/subscribe
	route, err := receiver.Add(secret, func(_ context.Context, m *webhook.Message) error {
		fmt.Printf("%s: %s\n", m.Event.ID, m.Event.Data)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	defer route.Close()

	body := []byte(`{"eventId":"order-1","name":"order.paid","timestamp":"2026-12-01T00:00:00Z","data":{"number":1}}`)
	send := func(secret webhook.Secret) {
		r := httptest.NewRequest(http.MethodPost, "/hooks", bytes.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-MCP-Subscription-Id", "sub_1")
		webhook.Sign(r.Header, "order-1", time.Now(), body, secret)
		w := httptest.NewRecorder()
		receiver.ServeHTTP(w, r)
		fmt.Println(w.Code)
	}
	send(secret)
	send(secret) // the sender did not receive the response
	send(webhook.NewSecret())
	// Output:
	// order-1: {"number":1}
	// 200
	// 200
	// 401
}
