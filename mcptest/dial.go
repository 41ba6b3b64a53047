package mcptest

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// Dial returns an [mcp.Client] that is connected to h, and closes it when the test ends. Unlike
// [Connect], it returns the client that programs use. opts may be nil; Revision and Logger are
// overwritten. HTTP uses an in-memory network, so that time may be fake.
func Dial(t testing.TB, h mcp.Handler, on Combination, opts *mcp.ClientOptions) *mcp.Client {
	t.Helper()
	var full mcp.ClientOptions
	if opts != nil {
		full = *opts
	}
	full.Revision = on.Revision
	full.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	c, err := mcp.Connect(ctx, Transport(t, h, on.Transport), &full)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return c
}

// Transport returns a client's transport to h, of one of the kinds in [Transports]. h is served
// until the test ends.
func Transport(t testing.TB, h mcp.Handler, kind string) mcp.Transport {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	switch kind {
	case InMemory:
		return mcp.InMemory(h)
	case Stdio:
		clientReads, serverWrites := io.Pipe()
		serverReads, clientWrites := io.Pipe()
		var served sync.WaitGroup
		served.Go(func() {
			err := mcp.Serve(context.Background(), h, mcp.NewStreamConn(serverReads, serverWrites, nil),
				&mcp.ServeOptions{Logger: log})
			// A client may close before it has read everything.
			if err != nil && !errors.Is(err, mcp.ErrDisconnected) {
				t.Errorf("serve: %v", err)
			}
		})
		t.Cleanup(served.Wait)
		return mcp.NewConnTransport(mcp.NewStreamConn(clientReads, clientWrites, nil))
	case HTTP:
		return overNetwork(t, mcphttp.NewHandler(h, &mcphttp.Options{Logger: log}))
	}
	panic("mcptest: no transport " + kind)
}

// overNetwork serves an HTTP handler in memory.
func overNetwork(t testing.TB, h *mcphttp.Handler) mcp.Transport {
	network := newNetwork()
	server := &http.Server{Handler: h}
	var done sync.WaitGroup
	done.Go(func() { _ = server.Serve(network) })
	client := &http.Client{Transport: &http.Transport{DialContext: network.dial}}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		if err := h.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		client.CloseIdleConnections()
		server.Close()
		done.Wait()
	})
	return mcphttp.NewTransport(endpoint, &mcphttp.TransportOptions{
		Client: client, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
}
