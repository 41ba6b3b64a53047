package mcphttp_test

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// A recordingObserver records what it receives.
type recordingObserver struct {
	mu       sync.Mutex   // guards the fields below
	via      []driver.Via // of requests
	sessions []driver.Via
	ended    []error
	refused  []string
	open     int // requests
}

func (o *recordingObserver) Begin(ctx context.Context, req *mcp.Request) context.Context {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.via = append(o.via, req.Via())
	o.open++
	return ctx
}

func (o *recordingObserver) End(context.Context, *mcp.Request, mcp.Outcome) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open--
}

func (o *recordingObserver) SessionBegan(_ context.Context, v driver.Via) func(error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sessions = append(o.sessions, v)
	return func(cause error) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.ended = append(o.ended, cause)
	}
}

func (o *recordingObserver) Refused(status int, reason string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.refused = append(o.refused, http.StatusText(status)+": "+reason)
}

func TestObserverReceivesRefusals(t *testing.T) {
	o := &recordingObserver{}
	s := mcp.NewServer("s", "1", &mcp.ServerOptions{Observer: o})
	h := mcphttp.NewHandler(s, &mcphttp.Options{MaxBody: 1000})
	send := func(method, body string, header ...string) {
		r := httptest.NewRequest(method, "http://localhost/", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		for i := 0; i+1 < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	send("PUT", "{}")
	send("POST", "no JSON")
	send("POST", strings.Repeat(" ", 2000))
	send("POST", "{}", "Origin", "https://evil.example")
	send("POST", "{}", "Content-Type", "text/plain")
	send("POST", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, "Mcp-Session-Id", "none", "Mcp-Protocol-Version", "2025-06-18")
	want := []string{"Method Not Allowed: Method Not Allowed", "Bad Request: Bad Request",
		"Request Entity Too Large: Request Entity Too Large", "Forbidden: Forbidden",
		"Unsupported Media Type: Unsupported Media Type", "Not Found: Not Found"}
	if !slices.Equal(o.refused, want) {
		t.Errorf("got %q, want %q", o.refused, want)
	}
	if len(o.via) != 0 {
		t.Errorf("%d refused requests have begun", len(o.via))
	}
}

// A handler in front of a server, and one without a server, have its observer.
func TestObserverOfHandlers(t *testing.T) {
	o := &recordingObserver{}
	s := mcp.NewServer("s", "1", &mcp.ServerOptions{Observer: o})
	for _, h := range []mcp.Handler{s, outer{s}, own{o}} {
		o.refused = nil
		mcphttp.NewHandler(h, nil).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("PUT", "http://localhost/", nil))
		if len(o.refused) != 1 {
			t.Errorf("%T: got %q, want one refusal", h, o.refused)
		}
	}
}

type outer struct{ mcp.Handler }

func (o outer) Unwrap() mcp.Handler { return o.Handler }

type own struct{ o mcp.Observer }

func (o own) Observer() mcp.Observer { return o.o }
func (own) ServeMCP(context.Context, *mcp.Request) (mcp.Result, error) {
	return nil, mcp.Errorf(mcp.CodeMethodNotFound, "no")
}

func TestObserverReceivesEndOfSessions(t *testing.T) {
	ends := map[string]struct {
		opts mcphttp.Options
		end  func(h *mcphttp.Handler, c *mcp.Client)
	}{
		"deleted":  {end: func(_ *mcphttp.Handler, c *mcp.Client) { _ = c.Close() }},
		"shutdown": {end: func(h *mcphttp.Handler, _ *mcp.Client) { _ = h.Shutdown(context.Background()) }},
		"idle": {mcphttp.Options{Sessions: mcphttp.SessionOptions{IdleTimeout: time.Minute, InitTimeout: time.Minute}},
			func(*mcphttp.Handler, *mcp.Client) { time.Sleep(time.Hour) }},
	}
	for name, test := range ends {
		for _, on := range mcptest.Before(mcptest.Modern) {
			if on.Transport != mcptest.HTTP {
				continue
			}
			t.Run(name+"/"+on.Revision, func(t *testing.T) {
				o := &recordingObserver{}
				synctest.Test(t, func(t *testing.T) {
					s := mcp.NewServer("s", "1", &mcp.ServerOptions{Observer: o})
					h := mcphttp.NewHandler(s, &test.opts)
					client := &http.Client{Transport: handlerTransport{h}}
					c, err := mcp.Connect(t.Context(), mcphttp.NewTransport("http://localhost/",
						&mcphttp.TransportOptions{Client: client}), &mcp.ClientOptions{Revision: on.Revision})
					if err != nil {
						t.Fatal(err)
					}
					test.end(h, c)
					synctest.Wait()
					if len(o.sessions) != 1 || len(o.ended) != 1 || len(o.sessions[0].Session) != 16 {
						t.Errorf("sessions %+v have begun, %v have ended", o.sessions, o.ended)
					}
					_ = c.Close()
					_ = h.Shutdown(t.Context())
					synctest.Wait()
					if len(o.ended) != 1 || o.open != 0 {
						t.Errorf("sessions have ended %v, %d requests are open", o.ended, o.open)
					}
				})
			})
		}
	}
}

// handlerTransport calls a handler in place of a network; responses are read when they are complete.
type handlerTransport struct{ h http.Handler }

func (x handlerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet { // streams of the session
		return &http.Response{StatusCode: 405, Body: http.NoBody, Request: r}, nil
	}
	body := new(bytes.Buffer)
	if r.Body != nil {
		_, _ = body.ReadFrom(r.Body)
	}
	in := httptest.NewRequestWithContext(r.Context(), r.Method, "http://localhost/", body)
	in.Header = r.Header
	w := httptest.NewRecorder()
	x.h.ServeHTTP(w, in)
	res := w.Result()
	res.Request = r
	return res, nil
}

func TestViaOfHTTP(t *testing.T) {
	o := &recordingObserver{}
	s := mcp.NewServer("s", "1", &mcp.ServerOptions{Observer: o})
	h := mcphttp.NewHandler(s, nil)
	defer h.Shutdown(t.Context())
	var path = filepath.Join(t.TempDir(), "s")
	unix, err := net.Listen("unix", path)
	if err != nil {
		t.Skip(err)
	}
	overUnix := httptest.NewUnstartedServer(h)
	_ = overUnix.Listener.Close()
	overUnix.Listener = unix
	overUnix.Start()
	defer overUnix.Close()
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}
	secure := httptest.NewUnstartedServer(h)
	secure.EnableHTTP2 = true
	secure.StartTLS()
	defer secure.Close()
	unixClient := &http.Client{Transport: &http.Transport{DialContext: dial}}
	defer unixClient.CloseIdleConnections()
	for _, test := range []struct {
		url    string
		client *http.Client
		want   driver.Via
	}{
		{"http://localhost/", unixClient, driver.Via{Network: "unix", Protocol: "http", ProtocolVersion: "1.1"}},
		{secure.URL, secure.Client(), driver.Via{Network: "tcp", Protocol: "http", ProtocolVersion: "2"}},
	} {
		o.via = nil
		c, err := mcp.Connect(t.Context(), mcphttp.NewTransport(test.url, &mcphttp.TransportOptions{Client: test.client}), nil)
		if err != nil {
			t.Fatal(err)
		}
		got := o.via[0]
		test.want.Peer = got.Peer
		if got != test.want || strings.HasPrefix(test.url, "https") != strings.HasPrefix(got.Peer, "127.0.0.1:") {
			t.Errorf("got %+v, want %+v", got, test.want)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}
