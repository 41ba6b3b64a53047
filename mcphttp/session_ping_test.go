package mcphttp_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// A pingedClient is a client of a session with an open stream.
type pingedClient struct {
	*stream
	send  func(body string) response
	alive func() bool // reports whether the session exists
}

func (c *pingedClient) nextPing() (id string, ok bool) {
	c.t.Helper()
	e, err := c.Next()
	if err != nil {
		return "", false
	}
	var ping struct {
		ID     json.RawMessage
		Method string
	}
	if len(e.Data) == 0 { // the first event
		return c.nextPing()
	}
	if err := json.Unmarshal(e.Data, &ping); err != nil || ping.Method != "ping" {
		c.t.Fatalf("got %s, want a ping", e.Data)
	}
	return string(ping.ID), true
}

// pingedClients open a session of each transport.
var pingedClients = map[string]func(f *fixture, revision string) *pingedClient{
	"Streamable HTTP": func(f *fixture, revision string) *pingedClient {
		s := f.initialize(revision)
		send := func(body string) response { return s.send(body) }
		alive := func() bool { return send(`{"jsonrpc":"2.0","id":1,"method":"ping"}`).status == 200 }
		return &pingedClient{f.stream(s.get(f.t.Context())), send, alive}
	},
	"HTTP+SSE": func(f *fixture, revision string) *pingedClient {
		c := f.openSSE(f.t.Context())
		c.post(initializeBody(revision))
		c.next()
		send := func(body string) response { return c.send(body) }
		alive := func() bool { return send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`).status == 202 }
		return &pingedClient{c.stream, send, alive}
	},
}

// Requirement: PING-02, PING-03
func TestClientsOfSessionsArePinged(t *testing.T) {
	const interval = 10 * time.Second
	for name, open := range pingedClients {
		t.Run(name, func(t *testing.T) {
			forEach(t, sessionRevisions, func(t *testing.T, revision string) {
				f := start(t, newTestCore(), &mcphttp.Options{
					Sessions: mcphttp.SessionOptions{PingInterval: interval, Max: 2},
				})
				c := open(f, revision)
				began := time.Now()
				for n := range 6 {
					id, ok := c.nextPing()
					if got := time.Since(began); !ok || got != time.Duration(n+1)*interval {
						t.Fatalf("ping %d: got %t after %v, want one each %v", n, ok, got, interval)
					}
					response := `"result":{}}`
					if n == 3 {
						response = `"error":{"code":-32601,"message":"method not found"}}`
					}
					if n == 1 || n == 2 { // two missed ones are tolerated
						continue
					}
					if got := c.send(`{"jsonrpc":"2.0","id":` + id + `,` + response); got.status != 202 {
						t.Fatalf("response to a ping: got %d %s, want 202", got.status, got.body)
					}
				}
				silent := time.Now()
				for ok := true; ok; _, ok = c.nextPing() {
				}
				if took := time.Since(silent); took != 4*interval {
					t.Errorf("the stream ended after %v without a response, want %v", took, 4*interval)
				}
				synctest.Wait()
				if c.alive() {
					t.Error("the session exists without a response to pings, want its end")
				}
				if got := f.do(http.MethodPost, initializeBody(revision)); got.status != 200 {
					t.Errorf("another session: got %d %s, want 200", got.status, got.body)
				}
			})
		})
	}
}

// A countingTransport counts responses of a client to requests of its server.
type countingTransport struct {
	http.RoundTripper
	sent *atomic.Int64
}

func (c countingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		if strings.Contains(string(body), `"result":{}`) {
			c.sent.Add(1)
		}
		r.Body = io.NopCloser(strings.NewReader(string(body)))
	}
	return c.RoundTripper.RoundTrip(r)
}

// Requirement: PING-01
func TestClientRespondsToPingsOfSessions(t *testing.T) {
	forEach(t, sessionRevisions, func(t *testing.T, revision string) {
		var sent atomic.Int64
		core := newTestCore()
		f := start(t, core, &mcphttp.Options{Sessions: mcphttp.SessionOptions{PingInterval: time.Second}})
		f.client.Transport = countingTransport{f.client.Transport, &sent}
		c, err := mcp.Connect(t.Context(), f.transport(nil), &mcp.ClientOptions{Revision: revision, Logger: discardLogger})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		time.Sleep(100*time.Second + time.Millisecond)
		synctest.Wait()
		if got := sent.Load(); got < 95 || got > 100 {
			t.Errorf("the client has sent %d responses in 100 s, want one each second", got)
		}
	})
}
