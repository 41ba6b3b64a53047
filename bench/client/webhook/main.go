// Command webhook sends deliveries of webhooks to a receiver, a thousand a second: with the sender of this
// project, or as bare signed requests.
package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/bench/internal/delivery"
	"github.com/patchbay-mcp/patchbay/bench/internal/load"
	"github.com/patchbay-mcp/patchbay/bench/internal/rig"
	"github.com/patchbay-mcp/patchbay/ext/events"
	"github.com/patchbay-mcp/patchbay/ext/events/webhook"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/oauth"
)

var (
	kind          = flag.String("kind", "patchbay", "patchbay, or limit for bare signed requests")
	url           = flag.String("url", "", "of the receiver")
	subscriptions = flag.Int("subscriptions", 10_000, "number of subscriptions; 10 share an event type")
)

// timeout and maxIdle are the limits of this project.
const (
	timeout = 5 * time.Second
	maxIdle = 100 // connections to the receiver
)

func main() { rig.SliceMain(open) }

func open() (func(time.Duration) (load.Slice, error), error) {
	if *kind == "limit" {
		return openBare()
	}
	return openSender()
}

// A bare sender posts a body that was encoded once.
type bare struct {
	client   *http.Client
	key      []byte
	body     []byte
	progress *delivery.Progress
}

func openBare() (func(time.Duration) (load.Slice, error), error) {
	data, err := json.Marshal(delivery.NewBuild(1_000_000))
	if err != nil {
		return nil, err
	}
	event := &events.Delivered{ID: rand.Text(), Name: delivery.Event + "500", Time: time.Now().UTC(), Data: data}
	body, err := event.Encode("ABCDEFGH.100")
	if err != nil {
		return nil, err
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(delivery.Secret().Reveal(), "whsec_"))
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{TLSClientConfig: delivery.TLS(), MaxIdleConnsPerHost: maxIdle}
	b := &bare{client: &http.Client{Timeout: timeout, Transport: transport}, key: key, body: body,
		progress: delivery.NewProgress()}
	return func(d time.Duration) (load.Slice, error) { return b.progress.Run(d, b.send) }, nil
}

// send begins a burst.
func (b *bare) send() error {
	for range delivery.Burst {
		go func() { b.progress.End(b.post()) }()
	}
	return nil
}

// post sends a message as Standard Webhooks specifies.
func (b *bare) post() (*http.Response, error) {
	req, err := http.NewRequest(http.MethodPost, *url, bytes.NewReader(b.body))
	if err != nil {
		return nil, err
	}
	id, timestamp := rand.Text(), strconv.FormatInt(time.Now().Unix(), 10)
	mac := hmac.New(sha256.New, b.key)
	_, _ = io.WriteString(mac, id+"."+timestamp+".")
	mac.Write(b.body)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Webhook-Id", id)
	req.Header.Set("Webhook-Timestamp", timestamp)
	req.Header.Set("Webhook-Signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	req.Header.Set("X-Mcp-Subscription-Id", "sub_0123456789abcdef0123456789abcdef")
	resp, err := b.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp, err
}

// A sender emits events to subscriptions.
type sender struct {
	types    []*events.Type[delivery.Build]
	emitted  int
	progress *delivery.Progress
}

func openSender() (func(time.Duration) (load.Slice, error), error) {
	ctx := context.Background()
	server := events.NewServer(mcp.NewServer("bench", "1", nil), nil)
	s := &sender{progress: delivery.NewProgress()}
	for i := range *subscriptions / delivery.Burst {
		s.types = append(s.types, events.Add(server, &events.Event{Name: delivery.Event + strconv.Itoa(i)},
			events.Source[struct{}, delivery.Build]{}))
	}
	hooks := webhook.NewSender(&webhook.SenderOptions{
		Fetcher: oauth.NewFetcher(&oauth.FetcherOptions{TLSConfig: delivery.TLS(), InsecureAnyAddress: true,
			Wrap: func(base http.RoundTripper) http.RoundTripper { return counted{base, s.progress} }}),
		IsVerified: func(context.Context, *mcp.Principal, string) bool { return true },
	})
	if err := hooks.Serve(ctx, server); err != nil {
		return nil, err
	}
	secret := delivery.Secret().Reveal()
	for i := range *subscriptions {
		_, err := hooks.Subscribe(ctx, webhook.Request{URL: *url, Secret: secret, Subscription: events.Subscription{
			Principal: &mcp.Principal{Issuer: "https://as.example", Subject: fmt.Sprint("user-", i)},
			Name:      delivery.Event + strconv.Itoa(i/delivery.Burst)}})
		if err != nil {
			return nil, err
		}
	}
	return s.run, nil
}

// counted is a transport that counts the requests that ended.
type counted struct {
	base     http.RoundTripper
	progress *delivery.Progress
}

func (c counted) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := c.base.RoundTrip(req)
	c.progress.End(resp, err)
	return resp, err
}

// settle is the time after which the Sender has stored the progress of a delivery, which belongs to its cost.
const settle = 1100 * time.Millisecond

func (s *sender) run(d time.Duration) (load.Slice, error) {
	slice, err := s.progress.Run(d, func() error {
		s.emitted++
		occurrence := events.Occurrence[delivery.Build]{Data: delivery.NewBuild(s.emitted)}
		return s.types[s.emitted%len(s.types)].Emit(occurrence)
	})
	time.Sleep(settle)
	return slice, err
}
