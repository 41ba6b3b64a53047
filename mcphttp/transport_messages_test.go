package mcphttp_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// A postRecorder is an http.RoundTripper that records the bodies and headers of POSTs.
type postRecorder struct {
	next http.RoundTripper

	mu      sync.Mutex // guards the fields below
	bodies  []string
	headers []http.Header
}

func (r *postRecorder) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodPost {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		req.Body = io.NopCloser(strings.NewReader(string(body)))
		r.mu.Lock()
		r.bodies = append(r.bodies, string(body))
		r.headers = append(r.headers, req.Header.Clone())
		r.mu.Unlock()
	}
	return r.next.RoundTrip(req)
}

// kinds returns the method of each body that is one request or notification, "response" for one
// response, and "invalid" for any other body.
func (r *postRecorder) kinds() (kinds []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, body := range r.bodies {
		m, err := jsonrpc.Decode([]byte(body))
		switch {
		case err != nil:
			kinds = append(kinds, "invalid")
		case m.Method == "":
			kinds = append(kinds, "response")
		default:
			kinds = append(kinds, m.Method)
		}
	}
	return kinds
}

// Requirement: HTTP-07, HTTP-09, HTTP-10
func TestEachMessageIsItsOwnPOST(t *testing.T) {
	forEach(t, streamableRevisions, func(t *testing.T, version string) {
		f := start(t, newTestCore(), nil)
		posts := &postRecorder{next: f.client.Transport}
		c := initialized(t, f.transport(&mcphttp.TransportOptions{Client: &http.Client{Transport: posts}}), version)
		var calls sync.WaitGroup
		for range 3 {
			calls.Go(func() { c.mustCall("tools/call", `{"name":"echo"}`) })
		}
		calls.Wait()
		want := []string{"initialize", "notifications/initialized", "tools/call", "tools/call", "tools/call"}
		if version != march2025 {
			done := make(chan struct{})
			go func() {
				defer close(done)
				c.mustCall("tools/call", `{"name":"ask"}`)
			}()
			question := c.next("elicitation/create")
			reply := &jsonrpc.Message{ID: question.ID, Result: json.RawMessage(`{"action":"decline"}`)}
			if err := c.Send(t.Context(), reply); err != nil {
				t.Fatal(err)
			}
			<-done
			want = append(want, "tools/call", "response")
		}
		if got := posts.kinds(); !slices.Equal(got, want) {
			t.Errorf("got POSTs of %q, want one for each of %q", got, want)
		}
	})
}

// Requirement: HTTP-07, HTTP-11, MHTTP-19
func TestModernClientPostsRequestsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := mcp.NewServer("test", "1", &mcp.ServerOptions{Logger: discardLogger})
		mcp.AddTool(s, &mcp.Tool{Name: "ask"}, func(ctx context.Context, _ struct{}) (string, error) {
			return mcp.Ask[string](ctx, "question", "What?", nil)
		})
		mcp.AddTool(s, &mcp.Tool{Name: "wait"}, func(ctx context.Context, _ struct{}) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		})
		f := start(t, s, nil)
		posts := &postRecorder{next: f.client.Transport}
		tr := f.transport(&mcphttp.TransportOptions{Client: &http.Client{Transport: posts}})
		c, err := mcp.Connect(t.Context(), tr, &mcp.ClientOptions{Revision: modern, Logger: discardLogger,
			Elicit: func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
				return &mcp.ElicitResult{Action: "decline"}, nil
			}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = c.CallTool(t.Context(), "ask", nil)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			synctest.Wait()
			cancel()
		}()
		if _, err := c.CallTool(ctx, "wait", nil); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled call: got %v, want Canceled", err)
		}
		synctest.Wait()
		got := posts.kinds()
		if want := []string{"server/discover", "tools/call", "tools/call", "tools/call"}; !slices.Equal(got, want) {
			t.Errorf("got POSTs of %q, want %q", got, want)
		}
	})
}

// The server writes the names in this form.
//
// Requirement: HTTP-18
func TestClientReadsHeaderNamesInAnyCase(t *testing.T) {
	for _, name := range []string{"mcp-session-id", "MCP-SESSION-ID"} {
		var got []string
		tr := newServerTransport(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPost {
				w.WriteHeader(http.StatusMethodNotAllowed)
				return
			}
			got = append(got, r.Header.Get("Mcp-Session-Id"))
			w.Header()[name] = []string{"s1"}
			w.Header()["content-type"] = []string{"application/json"}
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":`+idOf(r)+`,"result":{"protocolVersion":"`+june2025+`"}}`)
		}, nil)
		c := openSession(t, tr)
		c.mustCall("initialize", `{}`)
		c.mustCall("ping", `{}`)
		c.Close()
		if want := []string{"", "s1"}; !slices.Equal(got[:2], want) {
			t.Errorf("%s: got session ids %q, want %q", name, got, want)
		}
	}
}

// The client drops the session and initializes without its id.
//
// Requirement: LHTTP-30
func TestLostSessionIsInitializedAgain(t *testing.T) {
	forEach(t, streamableRevisions, func(t *testing.T, version string) {
		s := mcp.NewServer("test", "1", &mcp.ServerOptions{Logger: discardLogger})
		mcp.AddTool(s, &mcp.Tool{Name: "hello"},
			func(context.Context, struct{}) (string, error) { return "hello", nil })
		f := start(t, s, nil)
		posts := &postRecorder{next: f.client.Transport}
		tr := f.transport(&mcphttp.TransportOptions{Client: &http.Client{Transport: posts}})
		c, err := mcp.Connect(t.Context(), tr, &mcp.ClientOptions{Revision: version, Logger: discardLogger})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		first := posts.headers[1].Get("Mcp-Session-Id")
		f.do(http.MethodDelete, "", "Mcp-Session-Id: "+first)
		if got, err := mcp.CallTool[string](t.Context(), c, "hello", nil); err != nil || got != "hello" {
			t.Errorf("call after the session: got %q, %v; want hello", got, err)
		}
		want := []string{"initialize", "notifications/initialized", "tools/call", "initialize",
			"notifications/initialized", "tools/call"}
		if got := posts.kinds(); !slices.Equal(got, want) {
			t.Fatalf("got POSTs of %q, want %q", got, want)
		}
		if got := posts.headers[3]["Mcp-Session-Id"]; got != nil {
			t.Errorf("second initialize: got session id %q, want none", got)
		}
		if got := posts.headers[5].Get("Mcp-Session-Id"); got == "" || got == first {
			t.Errorf("second call: got session id %q, want another than %q", got, first)
		}
	})
}

// Requirement: LHTTP-32
func TestClientAcceptsThatDELETEIsRefused(t *testing.T) {
	forEach(t, streamableRevisions, func(t *testing.T, version string) {
		var log syncBuffer
		deleted := false
		s := &fakeServer{version: version, del: func(w http.ResponseWriter, _ *http.Request) {
			deleted = true
			w.WriteHeader(http.StatusMethodNotAllowed)
		}}
		c := initialized(t, newMemTransport(t, s.ServeHTTP,
			&mcphttp.TransportOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))}), version)
		if err := c.Close(); err != nil || !deleted || log.String() != "" {
			t.Errorf("Close: got %v, deleted %v, logged %q; want no error and nothing logged", err, deleted,
				log.String())
		}
	})
}
