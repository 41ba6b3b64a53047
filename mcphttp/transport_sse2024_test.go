package mcphttp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// Requirement: SSE-06
func TestInvalidEndpointIsAnError(t *testing.T) {
	endpoint := func(uri string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			writeEvents(w, "event: endpoint\ndata: "+uri)
			waitForDisconnect(w, r)
		}
	}
	noEndpoint := func(w http.ResponseWriter, r *http.Request) {
		writeEvents(w, "data: {}")
		waitForDisconnect(w, r)
	}
	for name, test := range map[string]struct {
		get  http.HandlerFunc
		took time.Duration
	}{
		"another host":   {get: endpoint("http://elsewhere.test/mcp")},
		"another port":   {get: endpoint("//localhost:1/mcp")},
		"another scheme": {get: endpoint("file:///etc/passwd")},
		"not a URL":      {get: endpoint("http://[::1/")},
		"too long":       {get: endpoint("/" + strings.Repeat("x", 9000))},
		"no endpoint":    {get: noEndpoint, took: 10 * time.Second},
		"no response":    {get: waitForDisconnect, took: 10 * time.Second},
		"end of stream":  {get: func(w http.ResponseWriter, _ *http.Request) { writeEvents(w, "data: {}") }},
		"405":            {get: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(405) }},
		"HTML":           {get: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }},
	} {
		for _, body := range []string{"not here",
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"not here"}}`} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					tr := newMemTransport(t, func(w http.ResponseWriter, r *http.Request) {
						switch {
						case r.Method == http.MethodGet:
							test.get(w, r)
						case r.URL.Path == "/mcp" && r.Host == "localhost:8765":
							writeJSON(w, 405, body)
						default:
							t.Errorf("got a POST to %s%s, want none", r.Host, r.URL)
						}
					}, nil)
					began := time.Now()
					m, err := openSession(t, tr).try(t.Context(), "initialize", `{}`)
					if body[0] == '{' {
						if err != nil || m.Error == nil || m.Error.Message != "not here" {
							t.Errorf("got %v, %v, want the server's own error", m, err)
						}
					} else if mayHaveRun(t, err) || !strings.Contains(err.Error(), "not here") {
						t.Errorf("got %v, want an error with the body", err)
					}
					if got := time.Since(began); got != test.took {
						t.Errorf("initialize took %v, want %v", got, test.took)
					}
				})
			})
		}
	}
}

// Requirement: SSE-09, SSE-10
func TestOtherErrorsDoNotFallBackToSSE(t *testing.T) {
	for body, status := range map[string]int{
		`{"jsonrpc":"2.0","id":1,"error":{"code":-32022,"message":"no","data":{"supported":["2026-07-28"]}}}`: 400,
		`{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}`:                                     404,
		`unauthorized`:   401,
		`forbidden`:      403,
		`gone`:           410,
		`wrong media`:    415,
		`too many`:       429,
		`internal error`: 500,
	} {
		tr := newServerTransport(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPost {
				t.Errorf("%d: got a %s, want only the POST", status, r.Method)
			}
			writeJSON(w, status, body)
		}, nil)
		if m, err := openSession(t, tr).try(t.Context(), "initialize", `{}`); err == nil && m.Error == nil {
			t.Errorf("%d: got %v, want an error", status, m)
		}
	}
}

// A client that offers 2025-03-26 or 2025-06-18 tries HTTP+SSE after any status 4xx that is not about
// authorization or load.
//
// Requirement: SSE-08, SSE-09
func TestStatusesThatFallBackToSSE(t *testing.T) {
	for _, revision := range []string{march2025, june2025, november2025} {
		for _, status := range []int{400, 401, 403, 404, 405, 406, 410, 415, 422, 429, 500, 503} {
			fallsBack := status == 400 || status == 404 || status == 405
			if revision != november2025 {
				fallsBack = status/100 == 4 && status != 401 && status != 403 && status != 429
			}
			f := &fakeSSEServer{}
			tr := newServerTransport(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost && r.URL.Path != "/post" {
					w.WriteHeader(status)
					return
				}
				f.ServeHTTP(w, r)
			}, nil)
			m, err := openSession(t, tr).try(t.Context(), "initialize", fmt.Sprintf(`{"protocolVersion":%q}`, revision))
			if (err == nil && m.Error == nil) != fallsBack {
				t.Errorf("%s, %d: got %v, %v; want a fallback: %v", revision, status, m, err, fallsBack)
			}
		}
	}
}

// A fakeSSEServer is a server of HTTP+SSE. It serves the event stream, initialize and
// notifications/initialized. Its function serves the other messages.
type fakeSSEServer struct {
	post   http.HandlerFunc // of the other messages
	events chan string      // events to send on the stream
	once   sync.Once
}

func (f *fakeSSEServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.once.Do(func() { f.events = make(chan string, 100) })
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	switch {
	case r.Method == http.MethodGet:
		writeEvents(w, "event: endpoint\ndata: post")
		for {
			select {
			case e := <-f.events:
				writeEvents(w, e)
			case <-r.Context().Done():
				return
			}
		}
	case r.URL.Path != "/post":
		w.WriteHeader(405)
		return
	case bytes.Contains(body, []byte(`"initialize"`)):
		f.events <- `data: {"jsonrpc":"2.0","id":` + idOf(r) + `,"result":{"protocolVersion":"2024-11-05"}}`
	case !bytes.Contains(body, []byte("notifications/initialized")):
		f.post(w, r)
		return
	}
	writeAccepted(w)
}

// writeAccepted writes a response with a body, like the TypeScript SDK.
func writeAccepted(w http.ResponseWriter) {
	w.WriteHeader(http.StatusAccepted)
	_, _ = io.WriteString(w, "Accepted")
}

// A POST to the endpoint with status 404 means a lost session, unless the error is an unknown method.
func TestSSE_MissingEndpointIsALostSession(t *testing.T) {
	for _, code := range []int{mcp.CodeInvalidRequest, mcp.CodeMethodNotFound} {
		synctest.Test(t, func(t *testing.T) {
			f := &fakeSSEServer{}
			f.post = func(w http.ResponseWriter, r *http.Request) {
				writeJSON(w, http.StatusNotFound,
					fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":"no"}}`, idOf(r), code))
			}
			c := initialized(t, newMemTransport(t, f.ServeHTTP, nil), november2024)
			m, err := c.try(t.Context(), "tools/call", `{"name":"echo"}`)
			if code == mcp.CodeMethodNotFound {
				if err != nil || m.Error == nil || m.Error.Code != code {
					t.Errorf("unknown method: got %v, %v; want the error", m, err)
				}
				return
			}
			if !errors.Is(err, driver.ErrSessionLost) || mayHaveRun(t, err) {
				t.Errorf("got %v, %v; want ErrSessionLost", m, err)
			}
			<-c.Done()
		})
	}
}

// Some servers send a body with status 202.
//
// Requirement: SSE-04
func TestBodyOfAcceptedIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeSSEServer{}
		f.post = func(w http.ResponseWriter, r *http.Request) {
			f.events <- eventResult(idOf(r))
			writeAccepted(w)
		}
		c := initialized(t, newMemTransport(t, f.ServeHTTP, nil), november2024)
		for range 3 {
			if m := c.mustCall("ping", `{}`); m.Error != nil || !strings.Contains(string(m.Result), `"n"`) {
				t.Errorf("got %v, want the result", m)
			}
		}
	})
}

// A response that crosses the cancellation of its request is expected. It is not logged as a warning,
// and later warnings are.
func TestCAN_SSELateResponseIsNotLoggedAsAWarning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeSSEServer{}
		slow := make(chan string, 1)
		f.post = func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(body))
			if bytes.Contains(body, []byte(`"slow"`)) {
				slow <- idOf(r)
			}
			writeAccepted(w)
		}
		var log syncBuffer
		logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		c := initialized(t, newMemTransport(t, f.ServeHTTP, &mcphttp.TransportOptions{Logger: logger}), november2024)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			synctest.Wait()
			cancel()
		}()
		if _, err := c.try(ctx, "slow", `{}`); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want Canceled", err)
		}
		synctest.Wait()
		f.events <- eventResult(<-slow)
		synctest.Wait()
		if got := log.String(); strings.Count(got, "level=DEBUG") != 1 || strings.Contains(got, "level=WARN") {
			t.Errorf("late response: logged %s, want one debug message", got)
		}
		f.events <- eventResult("999")
		f.events <- eventResult(`"1"`)
		synctest.Wait()
		if got := log.String(); strings.Count(got, "level=WARN") != 1 {
			t.Errorf("two responses without a request: logged %s, want one warning", got)
		}
	})
}

// Requirement: SSE-04
func TestResponsesAreMatchedByID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events := make(chan string, 100)
		tr := newMemTransport(t, func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.Method == http.MethodGet:
				writeEvents(w, "event: endpoint\ndata: post?x=1")
				for {
					select {
					case e := <-events:
						if e == "" {
							return
						}
						writeEvents(w, e)
					case <-r.Context().Done():
						return
					}
				}
			case r.URL.Path != "/post":
				w.WriteHeader(404)
			case r.Header.Get("X-Refuse") != "":
			default:
				body, _ := io.ReadAll(r.Body)
				id := idOf(&http.Request{Body: io.NopCloser(strings.NewReader(string(body)))})
				switch {
				case strings.Contains(string(body), `"initialize"`):
					events <- "event: message\ndata: " + `{"jsonrpc":"2.0","id":` + id +
						`,"result":{"protocolVersion":"2024-11-05"}}`
				case strings.Contains(string(body), `"refused"`):
					writeJSON(w, 400, `{"jsonrpc":"2.0","id":`+id+`,"error":{"code":1,"message":"no"}}`)
					return
				case strings.Contains(string(body), `"malformed"`):
					events <- `data: {"jsonrpc":"2.0","id":` + id + `,"result":{"a":1,"a":2}}`
				case strings.Contains(string(body), `"anonymous"`):
					events <- `data: {"jsonrpc":"2.0","id":null,"error":{"code":7,"message":"no"}}`
				case strings.Contains(string(body), `"end"`):
					events <- ""
				case strings.Contains(string(body), `"pair"`):
					events <- eventResult(id)
				}
				w.WriteHeader(http.StatusAccepted)
			}
		}, nil)
		c := initialized(t, tr, november2024)
		done := make(chan string)
		for range 10 {
			go func() {
				req := &jsonrpc.Message{Method: "pair"}
				m, err := c.RoundTrip(t.Context(), req)
				if err != nil || string(m.Result) != `{"n":`+req.ID.String()+`}` {
					t.Errorf("request %s: got %v, %v", req.ID, m, err)
				}
				done <- ""
			}()
		}
		for range 10 {
			<-done
		}
		if m := c.mustCall("refused", `{}`); m.Error == nil || m.Error.Code != 1 || !m.Error.Remote() {
			t.Errorf("refused: got %v, want the server's error", m)
		}
		if _, err := c.try(t.Context(), "malformed", `{}`); !mayHaveRun(t, err) {
			t.Errorf("malformed: got %v, want MayHaveRun", err)
		}
		if m := c.mustCall("anonymous", `{}`); m.Error == nil || m.Error.Code != 7 {
			t.Errorf("anonymous: got %v, want the error without an id", m)
		}
		if _, err := c.try(t.Context(), "end", `{}`); !errors.Is(err, mcp.ErrClosed) || !mayHaveRun(t, err) {
			t.Errorf("end: got %v, want ErrClosed and MayHaveRun", err)
		}
		<-c.Done()
	})
}
