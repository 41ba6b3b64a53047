package mcphttp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// A sessionClient is a client of a revision with sessions.
type sessionClient struct {
	driver.SessionConn
	t        testing.TB
	received chan *jsonrpc.Message
}

// openSession opens a session that is not initialized.
func openSession(t testing.TB, tr *mcphttp.Transport) *sessionClient {
	t.Helper()
	c := &sessionClient{t: t, received: make(chan *jsonrpc.Message, 1000)}
	conn, err := tr.OpenSession(t.Context(), func(m *jsonrpc.Message) { c.received <- m })
	if err != nil {
		t.Fatal(err)
	}
	c.SessionConn = conn
	return c
}

// initialized opens a session of a revision.
func initialized(t testing.TB, tr *mcphttp.Transport, version string) *sessionClient {
	t.Helper()
	c := openSession(t, tr)
	c.initialize(version)
	return c
}

func (c *sessionClient) initialize(version string) {
	c.t.Helper()
	m := c.mustCall("initialize", fmt.Sprintf(`{"protocolVersion":%q,"capabilities":{"elicitation":{}},`+
		`"clientInfo":{"name":"test","version":"1"}}`, version))
	if !strings.Contains(string(m.Result), `"protocolVersion":"`+version+`"`) {
		c.t.Fatalf("initialize: got %s", jsonrpc.Append(nil, m))
	}
	if err := c.Send(c.t.Context(), &jsonrpc.Message{Method: "notifications/initialized"}); err != nil {
		c.t.Fatalf("initialized: %v", err)
	}
}

func (c *sessionClient) try(ctx context.Context, method, params string) (*jsonrpc.Message, error) {
	return c.RoundTrip(ctx, &jsonrpc.Message{Method: method, Params: json.RawMessage(params)})
}

func (c *sessionClient) mustCall(method, params string) *jsonrpc.Message {
	c.t.Helper()
	m, err := c.try(c.t.Context(), method, params)
	if err != nil {
		c.t.Fatalf("%s: %v", method, err)
	}
	return m
}

// next returns the next message that is not a response to a request.
func (c *sessionClient) next(method string) *jsonrpc.Message {
	c.t.Helper()
	select {
	case m := <-c.received:
		if m.Method != method {
			c.t.Fatalf("got %s, want %s", jsonrpc.Append(nil, m), method)
		}
		return m
	case <-time.After(10 * time.Second):
		c.t.Fatalf("%s was not received", method)
		return nil
	}
}

// Requirement: HTTP-15
func TestSessionCallsAcceptJSONAndEventStreams(t *testing.T) {
	for _, version := range sessionRevisions {
		t.Run(version, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := start(t, newTestCore(), nil)
				tr := f.transport(nil)
				c := initialized(t, tr, version)
				m := c.mustCall("tools/call", `{"name":"echo","arguments":{"message":"hi"}}`)
				if !strings.Contains(string(m.Result), `"text":"hi"`) {
					t.Errorf("got %s, want the result", m.Result)
				}
				c.mustCall("logging/setLevel", `{"level":"debug"}`)
				m = c.mustCall("tools/call", `{"name":"notify"}`)
				if !strings.Contains(string(m.Result), `"text":"notify"`) {
					t.Errorf("got %s, want the result", m.Result)
				}
				if len(c.received) != 2 {
					t.Errorf("%d notifications were received before the response, want 2", len(c.received))
				}
				c.next("notifications/message")
				c.next("notifications/message")
				if m := c.mustCall("no/such", `{}`); m.Error == nil || !m.Error.Remote() ||
					m.Error.Code != mcp.CodeMethodNotFound {
					t.Errorf("unknown method: got %s, want the server's error", jsonrpc.Append(nil, m))
				}
				if err := c.Close(); err != nil {
					t.Error(err)
				}
				<-c.Done()
				if _, err := c.try(t.Context(), "ping", `{}`); !errors.Is(err, mcp.ErrClosed) || mayHaveRun(t, err) {
					t.Errorf("request after the end: got %v, want ErrClosed", err)
				}
			})
		})
	}
}

func TestELI_QuestionArrivesOnTheStreamOfTheCall(t *testing.T) {
	for _, version := range []string{june2025, november2025} {
		t.Run(version, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := initialized(t, start(t, newTestCore(), nil).transport(nil), version)
				done := make(chan *jsonrpc.Message)
				go func() { done <- c.mustCall("tools/call", `{"name":"ask"}`) }()
				question := c.next("elicitation/create")
				reply := &jsonrpc.Message{ID: question.ID, Result: json.RawMessage(`{"action":"accept","content":{"name":"Ann"}}`)}

				if err := c.Send(t.Context(), reply); err != nil {
					t.Fatal(err)
				}
				if m := <-done; !strings.Contains(string(m.Result), "Ann") {
					t.Errorf("got %s, want the result", m.Result)
				}
			})
		})
	}
}

// Requirement: LHTTP-09
func TestCancellationIsAMessage(t *testing.T) {
	for _, version := range sessionRevisions {
		t.Run(version, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				core := newTestCore()
				c := initialized(t, start(t, core, nil).transport(nil), version)
				for _, tool := range []string{"wait", "notifywait"} {
					why := errors.New("cause")
					ctx, cancel := context.WithCancelCause(t.Context())
					go func() {
						<-core.started
						cancel(why)
					}()
					if _, err := c.try(ctx, "tools/call", `{"name":"`+tool+`"}`); !errors.Is(err, why) {
						t.Errorf("%s: got %v, want the cause", tool, err)
					}
					if cause := <-core.causes; !errors.Is(cause, mcp.ErrCancelled) ||
						!strings.Contains(cause.Error(), "cancelled") {
						t.Errorf("%s: cause at the server: got %v, want ErrCancelled", tool, cause)
					}
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if _, err := c.try(ctx, "tools/call", `{"name":"wait"}`); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v, want the deadline", err)
				}
				if cause := <-core.causes; !errors.Is(cause, mcp.ErrCancelled) ||
					!strings.Contains(cause.Error(), "timeout") {
					t.Errorf("cause at the server: got %v, want ErrCancelled", cause)
				}
			})
		})
	}
}

// Requirement: LHTTP-11
func TestChangesArriveOnTheStandaloneStream(t *testing.T) {
	for _, version := range sessionRevisions {
		t.Run(version, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				core, change := newChangingServer()
				f := start(t, core, nil)
				c := initialized(t, f.transport(nil), version)
				change()
				c.next("notifications/tools/list_changed")
			})
		})
	}
}

// Requirement: LHTTP-20
func TestStandaloneStreamIsResumed(t *testing.T) {
	forEach(t, streamableRevisions, func(t *testing.T, version string) {
		core, change := newChangingServer()
		f := start(t, core, nil)
		disconnects := &disconnector{next: f.client.Transport}
		c := initialized(t, f.transport(&mcphttp.TransportOptions{Client: &http.Client{Transport: disconnects}}),
			version)
		change()
		c.next("notifications/tools/list_changed")
		for range 20 { // more than the limit of failed attempts
			disconnects.disconnect()
			synctest.Wait()
			change() // while there is no connection
			c.next("notifications/tools/list_changed")
		}
		if n := disconnects.resumed.Load(); n != 20 {
			t.Errorf("the stream was resumed with Last-Event-ID %d times, want 20", n)
		}
	})
}

// A disconnector is an http.RoundTripper that can close the connection of the last GET.
type disconnector struct {
	next    http.RoundTripper
	end     atomic.Pointer[context.CancelFunc]
	resumed atomic.Int32
}

func (c *disconnector) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet {
		return c.next.RoundTrip(r)
	}
	if r.Header.Get("Last-Event-Id") != "" {
		c.resumed.Add(1)
	}
	ctx, cancel := context.WithCancel(r.Context())
	c.end.Store(&cancel)
	return c.next.RoundTrip(r.WithContext(ctx))
}

func (c *disconnector) disconnect() { (*c.end.Load())() }

// Requirement: LHTTP-06, LHTTP-07
func TestCallIsPolled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := newTestCore()
		c := initialized(t, start(t, core, nil).transport(nil), november2025)
		go func() {
			<-core.started
			time.Sleep(time.Second)
			core.proceed <- struct{}{}
		}()
		if m := c.mustCall("tools/call", `{"name":"poll"}`); !strings.Contains(string(m.Result), "polled") {
			t.Errorf("got %s, want the result", m.Result)
		}
		if err := <-core.polled; err != nil {
			t.Errorf("CloseStream: %v", err)
		}
	})
}

// Requirement: LHTTP-29
func TestLostSessionIsReported(t *testing.T) {
	forEach(t, streamableRevisions, func(t *testing.T, version string) {
		f := start(t, newTestCore(), &mcphttp.Options{Sessions: mcphttp.SessionOptions{IdleTimeout: time.Minute}})
		client := &http.Client{Transport: methodRefuser{f.client.Transport, http.MethodGet, 405}}
		tr := f.transport(&mcphttp.TransportOptions{Client: client})
		c := initialized(t, tr, version)
		time.Sleep(time.Hour) // without a stream the session is idle
		_, err := c.try(t.Context(), "tools/call", `{"name":"echo"}`)
		if !errors.Is(err, driver.ErrSessionLost) || mayHaveRun(t, err) {
			t.Errorf("got %v, want ErrSessionLost", err)
		}
		<-c.Done()
		err = c.Send(t.Context(), &jsonrpc.Message{Method: "notifications/roots/list_changed"})
		if !errors.Is(err, driver.ErrSessionLost) {
			t.Errorf("Send: got %v, want ErrSessionLost", err)
		}
		again := initialized(t, tr, version)
		again.mustCall("tools/call", `{"name":"echo"}`)
	})
}

// A methodRefuser responds to requests of one HTTP method with a status.
type methodRefuser struct {
	next   http.RoundTripper
	method string
	status int
}

func (r methodRefuser) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != r.method {
		return r.next.RoundTrip(req)
	}
	return &http.Response{StatusCode: r.status, Body: http.NoBody, Request: req, Header: http.Header{},
		ProtoMajor: 1}, nil
}

// Requirement: SSE-03, SSE-09, SSE-10, SSE-11
func TestClientFallsBackToSSE(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := newTestCore()
		f := start(t, core, nil)
		for _, status := range []int{400, 404, 405} {
			// The server accepts POST at its endpoint only.
			refused := 0
			only := roundTripper(func(r *http.Request) (*http.Response, error) {
				if r.Method == http.MethodPost && r.URL.RawQuery == "" {
					refused++
					return methodRefuser{nil, http.MethodPost, status}.RoundTrip(r)
				}
				return f.client.Transport.RoundTrip(r)
			})
			c := initialized(t, f.transport(&mcphttp.TransportOptions{Client: &http.Client{Transport: only}}),
				november2024)
			if m := c.mustCall("tools/call",
				`{"name":"echo","arguments":{"message":"hi"}}`); !strings.Contains(string(m.Result), `"text":"hi"`) {
				t.Errorf("got %s, want the result", m.Result)
			}
			c.mustCall("logging/setLevel", `{"level":"debug"}`)
			c.mustCall("tools/call", `{"name":"notify"}`)
			if len(c.received) != 2 {
				t.Errorf("%d notifications were received before the response, want 2", len(c.received))
			}
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				<-core.started
				cancel()
			}()
			if _, err := c.try(ctx, "tools/call", `{"name":"wait"}`); !errors.Is(err, context.Canceled) {
				t.Errorf("cancelled call: got %v, want Canceled", err)
			}
			if cause := <-core.causes; !errors.Is(cause, mcp.ErrCancelled) {
				t.Errorf("cause at the server: got %v, want ErrCancelled", cause)
			}
			c.Close()
			if refused != 1 { // initialize; everything after the event endpoint is posted there
				t.Errorf("%d messages were posted elsewhere, want only the first initialize", refused)
			}
		}
	})
}

type roundTripper func(r *http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestSSE_EndOfTheStreamEndsTheSessionOfTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := newTestCore()
		f := start(t, core, nil)
		disconnects := &disconnector{next: roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPost && r.URL.RawQuery == "" {
				return methodRefuser{nil, http.MethodPost, 405}.RoundTrip(r)
			}
			return f.client.Transport.RoundTrip(r)
		})}
		c := initialized(t, f.transport(&mcphttp.TransportOptions{Client: &http.Client{Transport: disconnects}}),
			november2024)
		go func() {
			<-core.started
			disconnects.disconnect()
		}()
		_, err := c.try(t.Context(), "tools/call", `{"name":"wait"}`)
		if !errors.Is(err, mcp.ErrClosed) || !mayHaveRun(t, err) {
			t.Errorf("got %v, want ErrClosed and MayHaveRun", err)
		}
		<-c.Done()
		if _, err := c.try(t.Context(), "ping", `{}`); !errors.Is(err, mcp.ErrClosed) || mayHaveRun(t, err) {
			t.Errorf("request after the end: got %v, want ErrClosed", err)
		}
	})
}
