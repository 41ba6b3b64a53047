package mcptest

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"testing"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// newConn connects a client to its handler.
func newConn(c *Client) conn {
	switch c.Transport {
	case HTTP, Replicas:
		return newHTTPConn(c)
	case Stdio:
		client, server := stdio()
		return newStreamConn(c, client, server)
	case InMemory:
		client, server := mcp.Pipe()
		return newStreamConn(c, client, server)
	}
	panic("mcptest: no transport " + c.Transport)
}

// stdio returns the two ends of a pair of byte pipes.
func stdio() (client, server mcp.Conn) {
	clientReads, serverWrites := io.Pipe()
	serverReads, clientWrites := io.Pipe()
	return mcp.NewStreamConn(clientReads, clientWrites, nil), mcp.NewStreamConn(serverReads, serverWrites, nil)
}

// logger returns a logger that writes to the test's output.
func logger(t testing.TB) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }

// A streamConn is a stream of messages to a server.
type streamConn struct {
	conn   mcp.Conn
	stop   context.CancelFunc // shuts down the server
	served chan struct{}      // closed when the server returned
	done   sync.WaitGroup
}

func newStreamConn(c *Client, client, server mcp.Conn) *streamConn {
	l := &streamConn{conn: client, served: make(chan struct{})}
	var ctx context.Context
	ctx, l.stop = context.WithCancel(c.ctx)
	if p := c.Options.Principal; p != nil {
		ctx = mcp.WithPrincipal(ctx, p)
	}
	l.done.Go(func() {
		defer close(l.served)
		h := c.handlers.track(c.handler)
		if err := mcp.Serve(ctx, h, server, &mcp.ServeOptions{Logger: logger(c.t)}); err != nil {
			c.fault("serve: %v", err)
		}
	})
	l.done.Go(func() { l.read(c) })
	return l
}

func (l *streamConn) read(c *Client) {
	defer c.lost(jsonrpc.ID{})
	for {
		m, err := l.conn.Read(c.ctx)
		switch {
		case err == nil:
			c.receive(m)
		case errors.Is(err, io.EOF), errors.Is(err, mcp.ErrClosed):
			return
		default:
			c.fault("the server sent: %v", err)
			return
		}
	}
}

func (l *streamConn) send(ctx context.Context, m *jsonrpc.Message) error { return l.conn.Write(ctx, m) }

func (l *streamConn) abandon(jsonrpc.ID) bool { return false }

func (l *streamConn) listen() {}

func (l *streamConn) shutdown() {
	l.stop()
	<-l.served
}

func (l *streamConn) close() {
	l.conn.Close()
	l.done.Wait()
	l.stop()
}
