package mcphttp_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// A forgetfulServer is a server with one session at a time. It answers requests of other sessions
// with refuse.
type forgetfulServer struct {
	session atomic.Int64 // the ID of the current session
	runs    atomic.Int64 // counts tools/call
	refuse  func(w http.ResponseWriter, id string)
	alone   string // a method that is refused in every session; empty for no method
}

func (s *forgetfulServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	has := func(method string) bool { return strings.Contains(string(body), strconv.Quote(method)) }
	switch {
	case has("server/discover"):
		writeJSON(w, 200, `{"jsonrpc":"2.0","id":`+idOf(r)+`,"error":{"code":-32601,"message":"no"}}`)
	case has("initialize"):
		w.Header().Set("Mcp-Session-Id", strconv.FormatInt(s.session.Add(1), 10))
		writeJSON(w, 200, `{"jsonrpc":"2.0","id":`+idOf(r)+`,"result":{"protocolVersion":"`+november2025+
			`","capabilities":{"tools":{},"resources":{}},"serverInfo":{"name":"x","version":"1"}}}`)
	case r.Header.Get("Mcp-Session-Id") != strconv.FormatInt(s.session.Load(), 10), s.alone != "" && has(s.alone):
		s.refuse(w, idOf(r))
	case !has("id"):
		w.WriteHeader(http.StatusAccepted)
	case has("tools/call"):
		s.runs.Add(1)
		fallthrough
	default:
		writeJSON(w, 200, `{"jsonrpc":"2.0","id":`+idOf(r)+`,"result":{"content":[],"contents":[]}}`)
	}
}

// refusals contains the responses with which servers report an unknown session. mayHaveRun reports
// whether the request may have run although it was refused.
var refusals = map[string]struct {
	refuse     func(w http.ResponseWriter, id string)
	mayHaveRun bool
}{
	"404":      {func(w http.ResponseWriter, _ string) { w.WriteHeader(404) }, false},
	"400 text": {func(w http.ResponseWriter, _ string) { http.Error(w, "no valid session", 400) }, false},
	"400 JSON": {func(w http.ResponseWriter, _ string) {
		writeJSON(w, 400,
			`{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"No valid session ID provided"}}`)
	}, false},
	"401": {func(w http.ResponseWriter, _ string) { w.WriteHeader(401) }, false},
	"403": {func(w http.ResponseWriter, _ string) { w.WriteHeader(403) }, false},
	"410": {func(w http.ResponseWriter, _ string) { w.WriteHeader(410) }, false},
	"500": {func(w http.ResponseWriter, _ string) { http.Error(w, "session not found", 500) }, true},
	"503": {func(w http.ResponseWriter, _ string) { w.WriteHeader(503) }, true},
	"200 with the id": {func(w http.ResponseWriter, id string) {
		writeJSON(w, 200, `{"jsonrpc":"2.0","id":`+id+`,"error":{"code":-32000,"message":"Session not found"}}`)
	}, true},
	"200 with an error": {func(w http.ResponseWriter, _ string) {
		writeJSON(w, 200, `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"session not found"}}`)
	}, true},
}

// After a lost session, the client begins a new session, whatever response reports the loss. A call
// that may have run is not repeated.
//
// Requirement: LHTTP-29
func TestClientBeginsANewSessionAfterALoss(t *testing.T) {
	for name, test := range refusals {
		t.Run(name, func(t *testing.T) {
			s := &forgetfulServer{refuse: test.refuse}
			c := connectTo(t, s)
			call := func() error {
				_, err := c.CallTool(t.Context(), "x", nil)
				return err
			}
			if err := call(); err != nil {
				t.Fatal(err)
			}
			s.session.Add(1) // the server has restarted
			if err := call(); (err != nil) != test.mayHaveRun {
				t.Errorf("the first call after the loss: error %v, want an error: %t", err, test.mayHaveRun)
			}
			if err := call(); err != nil {
				t.Errorf("the second call after the loss: %v", err)
			}
			want := int64(3)
			if test.mayHaveRun {
				want = 2
			}
			if s.runs.Load() != want {
				t.Errorf("the tool ran %d times, want %d", s.runs.Load(), want)
			}
		})
	}
}

// A refused request does not end a session that the server still knows.
//
// Requirement: LHTTP-29
func TestRefusedRequestDoesNotEndTheSession(t *testing.T) {
	for name, test := range refusals {
		if name == "404" { // always means that the session is unknown
			continue
		}
		t.Run(name, func(t *testing.T) {
			s := &forgetfulServer{refuse: test.refuse, alone: "tools/call"}
			c := connectTo(t, s)
			first := s.session.Load()
			for range 3 {
				if _, err := c.CallTool(t.Context(), "x", nil); err == nil {
					t.Error("a refused call has no error")
				}
			}
			if _, err := c.ReadResource(t.Context(), "x:y"); err != nil {
				t.Error(err)
			}
			if s.session.Load() != first {
				t.Errorf("%d sessions, want 1", s.session.Load()-first+1)
			}
		})
	}
}

// A load balancer that reaches no server does not end a session, nor does a server whose session store
// fails.
//
// Requirement: LHTTP-29
func TestUnavailableServerKeepsTheSession(t *testing.T) {
	for name, refuse := range map[string]func(w http.ResponseWriter, id string){
		"429": func(w http.ResponseWriter, _ string) { w.WriteHeader(429) },
		"502": func(w http.ResponseWriter, _ string) { w.WriteHeader(502) },
		"504": func(w http.ResponseWriter, _ string) { w.WriteHeader(504) },
		"503 with Retry-After": func(w http.ResponseWriter, _ string) {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(503)
		},
		"503 with Retry-After and an error that mentions sessions": func(w http.ResponseWriter, id string) {
			w.Header().Set("Retry-After", "1")
			writeJSON(w, 503,
				`{"jsonrpc":"2.0","id":`+id+`,"error":{"code":429,"message":"the store of sessions failed"}}`)
		},
		"503 with a page": func(w http.ResponseWriter, _ string) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			w.WriteHeader(503)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &forgetfulServer{}
			var down atomic.Bool
			c := connectTo(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if down.Load() {
					refuse(w, idOf(r))
					return
				}
				s.ServeHTTP(w, r)
			}))
			first := s.session.Load()
			down.Store(true)
			if _, err := c.CallTool(t.Context(), "x", nil); err == nil || errors.Is(err, driver.ErrSessionLost) {
				t.Errorf("a call without a server: got error %v, want another error", err)
			}
			down.Store(false)
			if _, err := c.CallTool(t.Context(), "x", nil); err != nil {
				t.Error(err)
			}
			if s.session.Load() != first {
				t.Errorf("%d sessions, want 1", s.session.Load()-first+1)
			}
		})
	}
}

// connectTo connects to s in revision 2025-11-25.
func connectTo(t *testing.T, s http.Handler) *mcp.Client {
	t.Helper()
	tr := newServerTransport(t, s.ServeHTTP, &mcphttp.TransportOptions{})
	c, err := mcp.Connect(t.Context(), tr, &mcp.ClientOptions{Logger: discardLogger, Revision: november2025})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}
