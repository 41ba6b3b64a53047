package mcphttp_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// A slowLogin is an http.RoundTripper that waits before each request, as if the user had to log in.
type slowLogin struct {
	h      http.Handler
	wait   time.Duration
	pauses bool // calls driver.PauseTimeouts
}

func (l slowLogin) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodPost {
		return &http.Response{StatusCode: http.StatusMethodNotAllowed, Header: http.Header{}, Body: http.NoBody,
			Request: r}, nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if bytes.Contains(body, []byte("notifications/")) {
		l.wait = 0 // the server waits for notifications
	}
	if l.pauses {
		done := driver.PauseTimeouts(r.Context())
		defer done()
	}
	select {
	case <-time.After(l.wait):
	case <-r.Context().Done():
		return nil, context.Cause(r.Context())
	}
	w := httptest.NewRecorder()
	l.h.ServeHTTP(w, r)
	return w.Result(), nil
}

func connectWithLogin(t *testing.T, login slowLogin, revision string) (*mcp.Client, error) {
	s := mcp.NewServer("slow", "1", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "hello"}, func(context.Context, struct{}) (string, error) { return "hello", nil })
	h := mcphttp.NewHandler(s, nil)
	t.Cleanup(func() {
		if err := h.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	login.h = h
	transport := mcphttp.NewTransport("http://127.0.0.1/mcp",
		&mcphttp.TransportOptions{Client: &http.Client{Transport: login}})
	return mcp.Connect(context.Background(), transport, &mcp.ClientOptions{Revision: revision})
}

func TestTimeouts_ArePausedDuringALogin(t *testing.T) {
	for _, revision := range append(slices.Clone(mcptest.Revisions()), "") {
		if revision == "2024-11-05" {
			continue // the RoundTripper does not support its event stream
		}
		t.Run("revision "+revision, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, err := connectWithLogin(t, slowLogin{wait: 20 * time.Minute, pauses: true}, revision)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				if text, err := mcp.CallTool[string](t.Context(), c, "hello", nil); err != nil || text != "hello" {
					t.Errorf("call: got %q, %v; want hello", text, err)
				}
			})
		})
	}
}

func TestTimeouts_ApplyWhenNotPaused(t *testing.T) {
	for _, revision := range append(slices.Clone(mcptest.Revisions()), "") {
		t.Run("revision "+revision, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, err := connectWithLogin(t, slowLogin{wait: 20 * time.Minute}, revision)
				if !errors.Is(err, mcp.ErrTimeout) {
					t.Errorf("connect: got %v, want ErrTimeout", err)
				}
			})
		})
	}
}
