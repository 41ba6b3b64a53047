package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

const listTools = `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":` +
	`{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`

var requests atomic.Int32

// request returns the response of a handler to tools/list at a path, from an address of its own.
func request(h http.Handler, method, path string, header ...string) *httptest.ResponseRecorder {
	n := requests.Add(1)
	return sendFrom(h, fmt.Sprintf("10.%d.%d.%d:1234", n>>16, n>>8&0xff, n&0xff), method, path, listTools,
		append([]string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/list"}, header...)...)
}

// send returns the response of a handler to a message.
func send(h http.Handler, method, path, body string, header ...string) *httptest.ResponseRecorder {
	return sendFrom(h, "10.0.0.1:1234", method, path, body, header...)
}

func sendFrom(h http.Handler, addr, method, path, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://127.0.0.1"+path, strings.NewReader(body))
	r.RemoteAddr = addr
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestKeyIsRequired(t *testing.T) {
	mcptest.NoLeaks(t)
	other := gateway.NewKey()
	g := gateway.New((&upstreams{}).newHost(t, twoServers), &gateway.Options{Keys: []string{other, key},
		Logger: slog.New(slog.DiscardHandler)})
	h := g.Handler()
	for _, path := range []string{"/mcp", "/mcp/s/one", "/mcp/p/code", "/mcp/s/unknown", "/mcp/p/unknown", "/mcp/"} {
		for name, header := range map[string][]string{
			"none":           nil,
			"empty":          {"Authorization", ""},
			"no scheme":      {"Authorization", key},
			"empty key":      {"Authorization", "Bearer "},
			"another scheme": {"Authorization", "Basic " + key},
			"wrong":          {"Authorization", "Bearer " + gateway.NewKey()},
			"prefix":         {"Authorization", "Bearer " + key[:31]},
			"longer":         {"Authorization", "Bearer " + key + "a"},
			"capitals":       {"Authorization", "Bearer " + strings.ToUpper(key)},
			"huge":           {"Authorization", "Bearer " + strings.Repeat("a", 60_000)},
			"two":            {"Authorization", "Bearer " + key, "Authorization", "Bearer " + other},
			"query":          {"X-Key", key},
		} {
			for _, method := range []string{"POST", "GET", "DELETE", "OPTIONS", "PUT"} {
				w := request(h, method, path+"?access_token="+key, header...)
				if w.Code != http.StatusUnauthorized || w.Header().Get("WWW-Authenticate") != "Bearer" ||
					w.Body.String() != "unauthorized\n" {
					t.Errorf("%s %s, key %s: %d %v %q, want 401 without details", method, path, name, w.Code, w.Header(), w.Body)
				}
			}
		}
	}
	for _, value := range []string{"Bearer " + key, "bearer  " + key, "BEARER " + other} {
		if w := request(h, "POST", "/mcp", "Authorization", value); w.Code != 200 || !strings.Contains(w.Body.String(), "one__whoami") {
			t.Errorf("%q: %d %s, want the tools", value, w.Code, w.Body)
		}
	}
	for path, want := range map[string]int{"/": 404, "/x": 404, "/mcpx": 404, "/.well-known/oauth-protected-resource": 404} {
		if w := request(h, "GET", path); w.Code != want {
			t.Errorf("%s without a key: %d, want %d", path, w.Code, want)
		}
	}
	for _, path := range []string{"/mcp/s/unknown", "/mcp/p/unknown", "/mcp/p/one", "/mcp/s/code", "/mcp/", "/mcp/s/one/x", "/mcp/s/"} {
		if w := request(h, "POST", path, "Authorization", "Bearer "+key); w.Code != 404 {
			t.Errorf("%s: %d, want 404", path, w.Code)
		}
	}
	if w := request(h, "POST", "/mcp/p/unknown", "Authorization", "Bearer "+key); !strings.Contains(w.Body.String(), `unknown profile "unknown"`) {
		t.Errorf("got %q, want the name that is unknown", w.Body)
	}
}

// A gateway of one profile serves nothing else.
func TestOnlyOneProfileIsServed(t *testing.T) {
	g := gateway.New((&upstreams{}).newHost(t, twoServers), &gateway.Options{Keys: []string{key}, Profile: "code"})
	h := g.Handler()
	for path, want := range map[string]int{"/mcp": 200, "/mcp/p/code": 200, "/mcp/s/one": 404, "/mcp/s/two": 404, "/mcp/p/other": 404} {
		w := request(h, "POST", path, "Authorization", "Bearer "+key)
		if w.Code != want || want == 200 && (strings.Contains(w.Body.String(), "one__") || !strings.Contains(w.Body.String(), "two__")) {
			t.Errorf("%s: %d %s, want %d, and tools of two only", path, w.Code, w.Body, want)
		}
	}
}

func TestWebPagesAreRefused(t *testing.T) {
	h := newGateway(t, &upstreams{}, twoServers).Handler()
	if w := request(h, "POST", "/mcp", "Authorization", "Bearer "+key, "Origin", "https://evil.example"); w.Code != 403 {
		t.Errorf("a foreign origin with the key: %d, want 403", w.Code)
	}
	preflight := []string{"Origin", "https://evil.example", "Access-Control-Request-Method", "POST"}
	for _, path := range []string{"/mcp", "/mcp/s/one", "/mcp/s/unknown"} {
		if w := request(h, "OPTIONS", path, preflight...); w.Code != 403 {
			t.Errorf("the preflight of a foreign origin for %s: %d, want 403", path, w.Code)
		}
	}
}

// A key of 160 random bits is long enough, and a shorter one is a mistake.
func TestKeys(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		k := gateway.NewKey()
		if len(k) != 32 || seen[k] || strings.Trim(k, "abcdefghijklmnopqrstuvwxyz234567") != "" {
			t.Fatalf("key %q, want 32 characters that no other key has", k)
		}
		seen[k] = true
	}
	h := (&upstreams{}).newHost(t, twoServers)
	for _, k := range []string{"", "short", key[:31], key + " ", strings.Repeat("é", 40)} {
		func() {
			defer func() {
				if value := fmt.Sprint(recover()); !strings.Contains(value, "invalid key 0") || k != "" && strings.Contains(value, k) {
					t.Errorf("New with key %q: panic %s, want one without the key", k, value)
				}
			}()
			gateway.New(h, &gateway.Options{Keys: []string{k}})
		}()
	}
}

type listener struct {
	net.Listener
	addr   net.Addr
	closed bool
}

func (l *listener) Addr() net.Addr { return l.addr }

func (l *listener) Accept() (net.Conn, error) { return nil, errors.New("accepted") }

func (l *listener) Close() error {
	l.closed = true
	return nil
}

// HTTP is not served without a key, except on loopback with InsecureNoAuth.
func TestWithoutKey(t *testing.T) {
	h := (&upstreams{}).newHost(t, twoServers)
	loopback := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}
	open := &gateway.Options{InsecureNoAuth: true, Logger: slog.New(slog.DiscardHandler)}
	for name, c := range map[string]struct {
		opts *gateway.Options
		addr net.Addr
		want string
	}{
		"no key":                {nil, loopback, "missing key"},
		"no key, no options":    {&gateway.Options{}, loopback, "missing key"},
		"all interfaces":        {open, &net.TCPAddr{IP: net.IPv4zero, Port: 1}, "loopback"},
		"all interfaces, IPv6":  {open, &net.TCPAddr{IP: net.IPv6zero, Port: 1}, "loopback"},
		"another address":       {open, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1}, "loopback"},
		"an address with zone":  {open, &net.TCPAddr{IP: net.IPv6loopback, Port: 1, Zone: "eth0"}, "loopback"},
		"not TCP":               {open, &net.UnixAddr{Name: "/tmp/x"}, "loopback"},
		"loopback":              {open, loopback, "accepted"},
		"loopback, IPv6":        {open, &net.TCPAddr{IP: net.IPv6loopback, Port: 1}, "accepted"},
		"a key, all interfaces": {&gateway.Options{Keys: []string{key}, Logger: open.Logger}, &net.TCPAddr{IP: net.IPv4zero, Port: 1}, "accepted"},
	} {
		l := &listener{addr: c.addr}
		err := gateway.New(h, c.opts).Serve(t.Context(), l)
		if err == nil || !strings.Contains(err.Error(), c.want) || !l.closed {
			t.Errorf("%s: %v, closed %t, want an error with %q and a closed listener", name, err, l.closed, c.want)
		}
	}
	if w := request(gateway.New(h, nil).Handler(), "POST", "/mcp", "Authorization", "Bearer "); w.Code != 401 {
		t.Errorf("a handler without keys: %d, want 401", w.Code)
	}
	handler := gateway.New(h, open).Handler()
	if w := request(handler, "POST", "/mcp"); w.Code != 401 {
		t.Errorf("a connection of unknown address without authorization: %d, want 401", w.Code)
	}
	url := serve(t, gateway.New(h, open))
	if c, err := connect(t, url+"/mcp", "", false); err != nil || len(toolNames(t, c)) != 4 {
		t.Errorf("without authorization on loopback: %v", err)
	}
	if c, err := connect(t, url+"/mcp", "", false, "Host", "evil.example", "Origin", "http://evil.example"); err == nil {
		c.Close()
		t.Error("a web page is served without authorization")
	}
}

// A logHandler keeps records.
type logHandler struct {
	mu    *sync.Mutex
	lines *[]string
	slog.Handler
}

func (l logHandler) Enabled(context.Context, slog.Level) bool { return true }

func (l logHandler) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		text += " " + a.String()
		return true
	})
	*l.lines = append(*l.lines, text)
	return nil
}

// Guessing keys does not fill the log, and the log has no keys.
func TestRefusalsAreLoggedWithABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines []string
		var mu sync.Mutex
		log := slog.New(logHandler{&mu, &lines, slog.DiscardHandler})
		h := (&upstreams{}).newHost(t, twoServers)
		handler := gateway.New(h, &gateway.Options{Keys: []string{key}, Logger: log}).Handler()
		wrong := gateway.NewKey()
		for range 1000 {
			request(handler, "POST", "/mcp", "Authorization", "Bearer "+wrong)
		}
		request(handler, "POST", "/mcp")
		time.Sleep(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		all := strings.Join(lines, "\n")
		if len(lines) != 11 || !strings.Contains(all, "requests=991") || !strings.Contains(all, "reason=wrong key") ||
			strings.Contains(all, wrong) || strings.Contains(all, key) {
			t.Errorf("%d lines, want 10 and a summary, without keys:\n%s", len(lines), all)
		}
	})
}

// Shutdown answers calls in progress, ends streams, and refuses new requests.
func TestShutdown(t *testing.T) {
	mcptest.NoLeaks(t)
	g := newGateway(t, &upstreams{}, twoServers)
	url := serve(t, g)
	for _, revision := range mcptest.Revisions() {
		c, err := connect(t, url+"/mcp", revision, revision == "2024-11-05", "Authorization", "Bearer "+key)
		if err != nil {
			t.Fatal(err)
		}
		events := make(chan error, 1)
		listening := make(chan struct{})
		go func() {
			for e, err := range c.Listen(t.Context(), mcp.SubscriptionFilter{ToolsListChanged: true}) {
				if err != nil {
					events <- err
					return
				}
				if e.Kind == mcp.EventListening {
					close(listening)
				}
			}
			events <- nil
		}()
		<-listening
		t.Cleanup(func() {
			c.Close()
			<-events
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := g.Shutdown(ctx); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if err := g.Shutdown(ctx); err != nil {
		t.Errorf("a second Shutdown: %v", err)
	}
	if w := request(g.Handler(), "POST", "/mcp", "Authorization", "Bearer "+key); w.Code != 503 {
		t.Errorf("after Shutdown: %d, want 503", w.Code)
	}
	l := &listener{addr: &net.TCPAddr{}}
	if err := g.Serve(t.Context(), l); !errors.Is(err, http.ErrServerClosed) || !l.closed {
		t.Errorf("Serve after Shutdown: %v, want ErrServerClosed", err)
	}
}
