package mcphttp_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/freeport"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// The tests of this file run the code of the package comment.

func TestDocHandler(t *testing.T) {
	before := http.DefaultServeMux
	http.DefaultServeMux = http.NewServeMux()
	defer func() { http.DefaultServeMux = before }()

	s := mcp.NewServer("calc", "1.0.0", nil)
	http.Handle("/mcp", mcphttp.NewHandler(s, nil))

	server := httptest.NewServer(http.DefaultServeMux)
	defer server.Close()
	ctx, url := t.Context(), server.URL+"/mcp"
	c, err := mcp.Connect(ctx, mcphttp.NewTransport(url, nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if name := c.ServerInfo().Name; name != "calc" {
		t.Errorf("got server %q", name)
	}
}

func TestDocListenAndServe(t *testing.T) {
	addr := freeport.Addr(t)
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	connected := make(chan error, 1)
	go func() {
		defer stop()
		for {
			c, err := mcp.Connect(ctx, mcphttp.NewTransport("http://"+addr+"/mcp", nil), nil)
			if err == nil {
				c.Close()
			}
			if err == nil || ctx.Err() != nil {
				connected <- err
				return
			}
			time.Sleep(5 * time.Millisecond) // it does not listen yet
		}
	}()
	s := mcp.NewServer("calc", "1.0.0", nil)
	func() {
		err := mcphttp.ListenAndServe(ctx, addr, "/mcp", mcphttp.NewHandler(s, nil))
		if err != nil {
			t.Error(err)
		}
	}()
	if err := <-connected; err != nil {
		t.Error(err)
	}
}

// challengeError is sent as a challenge: see TestErrorWithAChallengeDecidesTheStatus.
var _ interface {
	RefuseHTTP() (status int, challenges []string)
} = (*challengeError)(nil)
