package mcphttp_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// A pingDropper is a network whose pings get lost while drops is positive.
type pingDropper struct {
	handler      http.Handler
	drops        atomic.Int32
	pings, inits atomic.Int32
}

func (d *pingDropper) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
	}
	if bytes.Contains(body, []byte(`"method":"initialize"`)) {
		d.inits.Add(1)
	}
	if bytes.Contains(body, []byte(`"method":"ping"`)) {
		d.pings.Add(1)
		if d.drops.Add(-1) >= 0 {
			<-r.Context().Done()
			return nil, context.Cause(r.Context())
		}
	}
	w := httptest.NewRecorder()
	served := r.Clone(r.Context())
	served.Body, served.RequestURI = io.NopCloser(bytes.NewReader(body)), r.URL.RequestURI()
	d.handler.ServeHTTP(w, served)
	return w.Result(), nil
}

// A session survives two missed pings and ends after three, on Streamable HTTP.
//
// Requirement: PING-03
func TestClientsEndSilentSessions(t *testing.T) {
	for _, revision := range []string{"2025-03-26", "2025-06-18", "2025-11-25"} {
		for drops, wantSessions := range map[int32]int32{2: 1, 3: 2} {
			synctest.Test(t, func(t *testing.T) {
				s := mcp.NewServer("s", "1", nil)
				mcp.AddTool(s, &mcp.Tool{Name: "t"}, func(context.Context, struct{}) (string, error) { return "", nil })
				h := mcphttp.NewHandler(s, &mcphttp.Options{Logger: discardLogger, Sessions: mcphttp.SessionOptions{NoGET: true}})
				defer h.Shutdown(context.Background())
				network := &pingDropper{handler: h}
				transport := mcphttp.NewTransport("http://127.0.0.1/mcp", &mcphttp.TransportOptions{
					Client: &http.Client{Transport: network}, Logger: discardLogger,
				})
				c, err := mcp.Connect(t.Context(), transport, &mcp.ClientOptions{
					Revision: revision, KeepAlive: 10 * time.Second, Logger: discardLogger,
				})
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				network.drops.Store(drops)
				time.Sleep(45 * time.Second)
				if _, err := c.CallTool(t.Context(), "t", nil); err != nil {
					t.Errorf("%s: %v", revision, err)
				}
				if got := network.inits.Load(); got != wantSessions || network.pings.Load() < 3 {
					t.Errorf("%s: after %d lost of %d pings: got %d sessions, want %d", revision, drops, network.pings.Load(), got, wantSessions)
				}
			})
		}
	}
}
