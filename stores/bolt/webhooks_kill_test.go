package bolt_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"iter"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/events"
	"github.com/patchbay-mcp/patchbay/ext/events/webhook"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/oauth"
	"github.com/patchbay-mcp/patchbay/stores/bolt"
)

// history is a feed of numbered events, whose cursor is the number of the last event.
type history struct{ length int }

func (history) Begin(context.Context, events.Subscription, events.Start) (string, bool, error) {
	return "0", false, nil
}

func (h history) Follow(ctx context.Context, _ events.Subscription, cursor string) iter.Seq2[events.Item, error] {
	return func(yield func(events.Item, error) bool) {
		n, err := strconv.Atoi(cursor)
		if err != nil {
			yield(events.Item{}, err)
			return
		}
		for n < h.length && ctx.Err() == nil {
			n++
			e := &events.Delivered{ID: fmt.Sprint("evt_", n), Name: "tick", Time: time.Now(),
				Data: json.RawMessage("{}"), Cursor: fmt.Sprint(n)}
			if !yield(events.Item{Event: e, Cursor: e.Cursor}, nil) {
				return
			}
		}
		<-ctx.Done()
	}
}

const (
	killedSubscriptions = 3
	killedEvents        = 700
)

// sendUntilKilled subscribes to the endpoint that the folder describes, unless the subscriptions
// exist, and prints the ID of each acknowledged subscription.
func sendUntilKilled(dir string) {
	if err := send(dir); err != nil {
		fmt.Println(err)
	}
}

func send(dir string) error {
	url, err := os.ReadFile(filepath.Join(dir, "url"))
	secrets, err2 := os.ReadFile(filepath.Join(dir, "secrets"))
	root, err3 := os.ReadFile(filepath.Join(dir, "root.pem"))
	store, err4 := bolt.OpenWebhooks(filepath.Join(dir, "webhooks.db"), nil)
	if err := errors.Join(err, err2, err3, err4); err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(root)
	s := webhook.NewSender(&webhook.SenderOptions{Store: store, NoExpiry: true, Fetcher: oauth.NewFetcher(
		&oauth.FetcherOptions{InsecureAnyAddress: true, TLSConfig: &tls.Config{RootCAs: roots}})})
	if err := s.Start(context.Background(), history{killedEvents}); err != nil {
		return err
	}
	fmt.Println("started", s.Count())
	for i, secret := range strings.Fields(string(secrets)) {
		grant, err := s.Subscribe(context.Background(), webhook.Request{
			URL: string(url), Secret: secret, NoExpiry: true,
			Subscription: events.Subscription{Principal: &mcp.Principal{Subject: fmt.Sprint("user", i)}, Name: "tick"}})
		if err != nil {
			return err
		}
		fmt.Println("acknowledged", grant.ID)
	}
	select {}
}

// A tally records the events that a subscription received, in order.
type tally struct {
	mu     sync.Mutex // guards the fields below
	events []string
	more   chan struct{} // buffered(1)
}

func (y *tally) handle(_ context.Context, m *webhook.Message) error {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.events = append(y.events, m.ID)
	select {
	case y.more <- struct{}{}:
	default:
	}
	return nil
}

func (y *tally) len() int {
	y.mu.Lock()
	defer y.mu.Unlock()
	return len(y.events)
}

// The sender is killed again and again. No acknowledged subscription is lost, and every event of the
// history arrives once and in order.
func TestWebhooksSurviveKill(t *testing.T) {
	dir, receiver, more := t.TempDir(), webhook.NewReceiver(nil), make(chan struct{}, 1)
	var tallies []*tally
	var secrets []string
	for range killedSubscriptions {
		secret, y := webhook.NewSecret(), &tally{more: more}
		if _, err := receiver.Add(secret, y.handle); err != nil {
			t.Fatal(err)
		}
		tallies, secrets = append(tallies, y), append(secrets, secret.Reveal())
	}
	endpoint := httptest.NewTLSServer(receiver)
	t.Cleanup(endpoint.Close)
	root := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: endpoint.Certificate().Raw})
	for name, content := range map[string]string{
		"url": endpoint.URL, "secrets": strings.Join(secrets, " "), "root.pem": string(root)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	total := func() (n int) {
		for _, y := range tallies {
			n += y.len()
		}
		return n
	}
	acknowledged := map[string]bool{}
	const kills, all = 6, killedSubscriptions * killedEvents
	for round := 1; total() < all; round++ {
		child, lines := startChild(t, senderVariable, dir)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for lines.Scan() {
				word, value, _ := strings.Cut(lines.Text(), " ")
				switch {
				case word == "acknowledged":
					acknowledged[value] = true
				case word == "started" && value < fmt.Sprint(len(acknowledged)):
					t.Errorf("%s subscriptions after a kill, want the %d that were acknowledged", value, len(acknowledged))
				case word != "started":
					t.Errorf("the sender printed %q", lines.Text())
				}
			}
		}()
		limit := time.After(time.Minute)
		for until := min(all, round*all/kills); total() < until; {
			select {
			case <-more:
			case <-limit:
				t.Errorf("got %d events of %d within a minute", total(), until)
				round, until = kills, 0
			}
		}
		_ = child.Process.Kill() // SIGKILL, at any point of its deliveries
		<-done
		_ = child.Wait()
		if t.Failed() {
			return
		}
	}
	var want []string
	for n := range killedEvents {
		want = append(want, fmt.Sprint("evt_", n+1))
	}
	for i, y := range tallies {
		if !slices.Equal(y.events, want) {
			t.Errorf("subscription %d got %d events, want each of %d once and in order", i, len(y.events), len(want))
		}
	}
}
