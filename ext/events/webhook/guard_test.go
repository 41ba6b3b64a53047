package webhook_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/events"
	"github.com/patchbay-mcp/patchbay/ext/events/webhook"
	"github.com/patchbay-mcp/patchbay/internal/oauthfetch"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/oauth"
)

// forbidden are addresses that must never be connected to.
var forbidden = []string{
	"127.0.0.1", "127.8.8.8", "10.0.0.1", "10.255.255.255", "172.16.0.1", "172.31.255.254", "192.168.1.1",
	"169.254.169.254", "169.254.0.1", "100.64.0.1", "100.100.100.200", "168.63.129.16", "0.0.0.0", "0.1.2.3",
	"192.0.0.1", "192.0.2.1", "198.18.0.1", "198.51.100.7", "203.0.113.9", "224.0.0.1", "240.0.0.1",
	"255.255.255.255", "192.88.99.1",
	"::", "::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "fc00::1", "fd00::1",
	"fd00:ec2::254", "fe80::1", "fec0::1", "ff02::1", "2001::1", "2001:db8::1", "2002:7f00:1::", "64:ff9b::7f00:1",
	"64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "100::1", "3fff::1", "5f00::1",
}

// forbiddenURLs are URLs that are refused whatever their hosts resolve to.
var forbiddenURLs = []string{
	"", "hooks", "http://hooks.example/mcp", "ftp://hooks.example/mcp", "https:///mcp", "https://:443/",
	"https://hooks.example:0/",
	"https://hooks.example:99999/", "https://hooks.example:/mcp", "https://user@hooks.example/",
	"https://user:secret@hooks.example/",
	"https://[fe80::1%25eth0]/", "https://[::1%25lo]/", "https://hooks.example/#part",
	"https://hooks.example\\@evil.example/",
	"https://hooks.example/a b", "https://hooks%2eexample/", "https://h\u00f6oks.example/", "https://hooks.example/\r\nx",
	"file:///etc/passwd", "javascript:alert(1)", "https:hooks.example", "//hooks.example/",
	"https://hooks.example/" + strings.Repeat("x", 5000),
}

// literal returns the URL of an address.
func literal(a string) string {
	if strings.Contains(a, ":") {
		a = "[" + a + "]"
	}
	return "https://" + a + "/mcp"
}

func TestForbiddenURLsCannotBeSubscribed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, http.NotFoundHandler())
		s := n.sender(newFeed(), webhook.SenderOptions{})
		all := forbiddenURLs
		for _, a := range forbidden {
			all = append(all, literal(a))
		}
		// Other spellings of 127.0.0.1, which some resolvers accept.
		all = append(all, "https://0/", "https://127.1/", "https://2130706433/", "https://0x7f000001/", "https://0177.0.0.1/")
		for _, name := range []string{"0", "127.1", "2130706433", "0x7f000001", "0177.0.0.1"} {
			n.At(name, "127.0.0.1")
		}
		for _, url := range all {
			r := subscription(webhook.NewSecret())
			r.URL = url
			_, err := s.Subscribe(t.Context(), r)
			e, ok := errors.AsType[*mcp.Error](err)
			if !ok || e.Code != mcp.CodeInvalidParams && string(e.Data) != `{"reason":"connection_refused"}` &&
				e.Code != events.CodeResourceExhausted {
				t.Errorf("%.60q: got error %v, want it refused", url, err)
			}
			pass(time.Minute) // the limit of challenges
		}
		if got := n.Addresses(); len(got) != 0 {
			t.Errorf("connected to %v, want no connection", got)
		}
	})
}

// The address is checked for each connection, and not only when a subscription begins.
func TestAddressesAreCheckedAtDelivery(t *testing.T) {
	for _, a := range forbidden {
		t.Run(a, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, webhook.SenderOptions{})
				w.subscribe(subscription(w.secret))
				w.feed.emit(1)
				synctest.Wait()
				w.inbox.want(t, "evt_1")
				pass(2 * time.Minute) // the connection is closed meanwhile
				w.Addresses()
				w.At("hooks.example", a)
				w.feed.emit(1)
				pass(20 * time.Minute)
				w.inbox.want(t)
				if got := w.Addresses(); len(got) != 0 {
					t.Errorf("connected to %v, want no connection", got)
				}
				if status := w.subscribe(subscription(w.secret)).Status; status.LastError != webhook.CategoryRefused {
					t.Errorf("got status %+v, want a refused connection", status)
				}
			})
		})
	}
}

// The first lookup returns a public address, the lookup of the connection does not.
func TestRebindingBetweenCheckAndDial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, webhook.SenderOptions{})
		w.At("hooks.example", "127.0.0.1")
		w.Next("hooks.example", "127.0.0.1", "8.8.4.4")
		_, err := w.sender.Subscribe(t.Context(), subscription(w.secret))
		wantCode(t, err, events.CodeCallbackEndpoint)
		if got := w.Addresses(); len(got) != 0 {
			t.Errorf("connected to %v, want no connection", got)
		}
	})
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	for _, status := range []int{301, 302, 303, 307, 308} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, webhook.SenderOptions{})
			w.subscribe(subscription(w.secret))
			w.Page(address, func(rw http.ResponseWriter, r *http.Request) {
				http.Redirect(rw, r, "https://other.example/mcp", status)
			})
			w.Requests()
			w.feed.emit(1)
			synctest.Wait()
			if got := w.Requests(); len(got) != 1 || got[0] != "POST "+address {
				t.Errorf("status %d: got requests %q, want one that is not redirected", status, got)
			}
			if got := w.subscribe(subscription(w.secret)).Status; got.LastError != webhook.CategoryHTTP4xx {
				t.Errorf("status %d: got status %+v, want a failure", status, got)
			}
		})
	}
}

func TestAllowedHostsMayBePrivate(t *testing.T) {
	for name, opts := range map[string]oauthfetch.Options{
		"an allowed host": {AllowedHosts: []string{"hooks.example"}},
		"any address":     {InsecureAnyAddress: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, webhook.SenderOptions{})
				s := w.network.sender(w.feed, webhook.SenderOptions{Fetcher: (*oauth.Fetcher)(w.Fetcher(&opts))})
				w.At("hooks.example", "10.1.2.3")
				if _, err := s.Subscribe(t.Context(), subscription(w.secret)); err != nil {
					t.Fatal(err)
				}
				plain := subscription(w.secret)
				plain.URL = "http://hooks.example:8080/mcp"
				_, err := s.Subscribe(t.Context(), plain)
				wantCode(t, err, mcp.CodeInvalidParams)
			})
		})
	}
}

func TestCategoriesOfFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, webhook.SenderOptions{})
		w.subscribe(subscription(w.secret))
		for _, tt := range []struct {
			page http.HandlerFunc
			want string
		}{
			{func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(404) }, webhook.CategoryHTTP4xx},
			{func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(500) }, webhook.CategoryHTTP5xx},
			{hang, webhook.CategoryTimeout},
			{func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, webhook.CategoryRefused},
			{slowBody, ""}, // the status accepts the message
		} {
			w.Page(address, tt.page)
			w.feed.emit(1)
			pass(15 * time.Minute)
			if got := w.subscribe(subscription(w.secret)).Status.LastError; got != tt.want {
				t.Errorf("got category %q, want %q", got, tt.want)
			}
		}
	})
}

// slowBody sends the header of a response, and no body.
func slowBody(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Length", "10")
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	hang(w, r)
}

// hang sends no response.
func hang(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // otherwise the context does not end with the connection
	<-r.Context().Done()
}

// An endless response costs neither time nor memory.
func TestLargeResponsesAreCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, webhook.SenderOptions{})
		w.subscribe(subscription(w.secret))
		w.Page(address, func(rw http.ResponseWriter, r *http.Request) {
			chunk := make([]byte, 1<<10)
			for r.Context().Err() == nil {
				if _, err := rw.Write(chunk); err != nil {
					return
				}
			}
		})
		w.feed.emit(1)
		synctest.Wait()
		if got := w.subscribe(subscription(w.secret)).Status; got.LastError != "" || got.LastDelivery.IsZero() {
			t.Errorf("got status %+v, want an accepted event", got)
		}
	})
}
