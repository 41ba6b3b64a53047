package oauthclient_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// The header of a 401 is enough: the client does not wait for the body.
func TestRefusalWithStalledBody(t *testing.T) {
	for name, length := range map[string]string{"unknown": "", "short": "20", "long": "1000000"} {
		t.Run(name, func(t *testing.T) {
			stop := make(chan struct{})
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/mcp" {
					http.NotFound(w, r)
					return
				}
				w.Header().Set("WWW-Authenticate", "Bearer")
				if length != "" {
					w.Header().Set("Content-Length", length)
				}
				w.WriteHeader(http.StatusUnauthorized)
				_ = http.NewResponseController(w).Flush()
				<-stop
			}))
			defer server.Close()
			defer close(stop)
			tr := oauthclient.NewTransport(server.URL+"/mcp", nil)
			defer tr.CloseIdleConnections()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			if _, _, err := send(tr, ctx, server.URL+"/mcp"); !errors.Is(err, oauthclient.ErrLoginRequired) {
				t.Errorf("got error %v, want ErrLoginRequired", err)
			}
		})
	}
}

// A short body of a 401 is read, so that the connection can be used again.
func TestConnectionIsReusedAfterRefusal(t *testing.T) {
	connections := map[string]bool{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		connections[r.RemoteAddr] = true
		w.Header().Set("WWW-Authenticate", "Bearer")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte(strings.Repeat("x", 10_000))) // in chunks
	}))
	defer server.Close()
	tr := oauthclient.NewTransport(server.URL+"/mcp", nil)
	defer tr.CloseIdleConnections()
	for range 3 {
		if _, _, err := send(tr, t.Context(), server.URL+"/mcp"); !errors.Is(err, oauthclient.ErrLoginRequired) {
			t.Errorf("got error %v, want ErrLoginRequired", err)
		}
	}
	if len(connections) != 1 {
		t.Errorf("got %d connections, want 1", len(connections))
	}
}
