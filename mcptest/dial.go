package mcptest

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// Dial returns an [mcp.Client] that is connected to h, and closes it when the test ends. Unlike
// [Connect], it returns the client that programs use. opts may be nil; Revision and Logger are
// overwritten. HTTP uses an in-memory network, so that time may be fake. Messages are validated by
// [RunClient] only.
func Dial(t testing.TB, h mcp.Handler, on Combination, opts *mcp.ClientOptions) *mcp.Client {
	t.Helper()
	h = newTracker(t).track(h)
	return dial(t, Transport(t, h, on.Transport), on, opts)
}

// dial connects a client to the server of a transport, and closes it when the test ends.
func dial(t testing.TB, transport mcp.Transport, on Combination, opts *mcp.ClientOptions) *mcp.Client {
	t.Helper()
	var full mcp.ClientOptions
	if opts != nil {
		full = *opts
	}
	full.Revision = on.Revision
	full.Logger = logger(t)
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	c, err := mcp.Connect(ctx, transport, &full)
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

// Transport returns a client's transport to h, of a kind in [Transports]. h is served
// until the test ends.
func Transport(t testing.TB, h mcp.Handler, kind string) mcp.Transport {
	t.Helper()
	switch kind {
	case InMemory:
		return mcp.InMemory(h)
	case Stdio:
		client, server := stdio()
		var served sync.WaitGroup
		served.Go(func() {
			err := mcp.Serve(context.Background(), h, server, &mcp.ServeOptions{Logger: logger(t)})
			// A client may close before it read everything.
			if err != nil && !errors.Is(err, mcp.ErrDisconnected) {
				t.Errorf("serve: %v", err)
			}
		})
		t.Cleanup(served.Wait)
		return mcp.NewConnTransport(client)
	case HTTP, Replicas:
		return overNetwork(t, newProcesses(t, h, kind))
	}
	panic("mcptest: no transport " + kind)
}

// overNetwork serves an HTTP handler in memory.
func overNetwork(t testing.TB, h *processes) mcp.Transport {
	client, stop := serveHTTP(h)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		if err := h.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		stop()
	})
	return mcphttp.NewTransport(endpoint, &mcphttp.TransportOptions{
		Client: client, Logger: logger(t),
	})
}
