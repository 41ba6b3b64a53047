package oauthclient_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
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

// A short body of a 401 is read, so that the connection can be used again. The time to read it is
// limited, and so is the time that package net/http waits for the end of the request.
func TestConnectionIsReusedAfterRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listener := make(pipeListener)
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("WWW-Authenticate", "Bearer")
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write([]byte(strings.Repeat("x", 10_000))) // in chunks
		})}
		go func() { _ = server.Serve(listener) }() // ends with Close
		defer server.Close()
		connections := 0
		tr := oauthclient.NewTransport(clientMCP, &oauthclient.TransportOptions{Base: &http.Transport{
			DialTLSContext: func(context.Context, string, string) (net.Conn, error) {
				connections++
				client, server := net.Pipe()
				listener <- server
				return client, nil
			},
		}})
		defer tr.CloseIdleConnections()
		for range 3 {
			if _, _, err := send(tr, t.Context(), clientMCP); !errors.Is(err, oauthclient.ErrLoginRequired) {
				t.Errorf("got error %v, want ErrLoginRequired", err)
			}
		}
		if connections != 1 {
			t.Errorf("got %d connections, want 1", connections)
		}
	})
}

// A pipeListener accepts the connections that are sent to it, until it is closed.
type pipeListener chan net.Conn

func (l pipeListener) Accept() (net.Conn, error) {
	if c, ok := <-l; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (l pipeListener) Close() error { close(l); return nil }
func (pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }
