package servercard_test

import (
	"context"
	"net"
	"net/http"
	"testing"

	"github.com/patchbay-mcp/patchbay/ext/servercard"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// TestDocServe runs the code of the package comment.
func TestDocServe(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := newServer()
	handler := mcphttp.NewHandler(server, nil)
	serve := func() error {
		card, err := servercard.Describe(ctx, server, servercard.Card{
			Name:        "com.example/weather",
			Description: "Forecasts for every place",
			Remotes:     []servercard.Remote{{URL: "https://mcp.example.com/mcp"}},
		})
		if err != nil {
			return err
		}
		err = mcphttp.Serve(ctx, listener, "/mcp", handler, servercard.Serve(card))
		return err
	}
	done := make(chan error, 1)
	go func() { done <- serve(); listener.Close() }() // ends with ctx
	r, err := http.Get("http://" + listener.Addr().String() + "/mcp/server-card")
	if err != nil {
		t.Fatal(err, <-done)
	}
	_ = r.Body.Close()
	stop()
	if err := <-done; err != nil || r.StatusCode != http.StatusOK {
		t.Errorf("status %d, error %v, want the card", r.StatusCode, err)
	}
}

// TestDocFind runs the code of the package comment. The site does not exist.
func TestDocFind(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	claims, err := servercard.Find(ctx, nil, "https://example.com")
	if err == nil || claims != nil {
		t.Errorf("got %+v, %v, want the error of the context", claims, err)
	}
}
