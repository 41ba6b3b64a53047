package mcp

import (
	"context"
	"io"
	"sync"

	"github.com/patchbay-mcp/patchbay/internal/peer"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// pipeQueue is the number of messages that wait in one direction of a pipe before writing blocks: enough that both sides
// can work at once, few enough that a side that does not read is soon noticed.
const pipeQueue = 64

// Pipe returns the two ends of a connection within the process. Messages cross it in their encoded form, so that neither
// side can change what the other holds. What was written before an end was closed can still be read; then reading gives
// io.EOF. Both ends are closed by their owners.
func Pipe() (client, server Conn) {
	toServer, toClient := make(chan []byte, pipeQueue), make(chan []byte, pipeQueue)
	c := &pipeConn{in: toClient, out: toServer, closed: make(chan struct{})}
	s := &pipeConn{in: toServer, out: toClient, closed: make(chan struct{})}
	c.peerClosed, s.peerClosed = s.closed, c.closed
	return c, s
}

// A pipeConn is one end of a pipe.
type pipeConn struct {
	in         <-chan []byte
	out        chan<- []byte
	once       sync.Once
	closed     chan struct{}
	peerClosed <-chan struct{}
}

func (c *pipeConn) Read(ctx context.Context) (*jsonrpc.Message, error) {
	select {
	case data := <-c.in:
		return jsonrpc.Decode(data)
	case <-c.closed:
		return nil, ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-c.peerClosed:
	}
	select {
	case data := <-c.in:
		return jsonrpc.Decode(data)
	default:
		return nil, io.EOF
	}
}

func (c *pipeConn) Write(ctx context.Context, m *jsonrpc.Message) error {
	switch {
	case peer.IsClosed(c.closed):
		return ErrClosed
	case peer.IsClosed(c.peerClosed):
		return ErrDisconnected
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	select {
	case c.out <- jsonrpc.Append(nil, m):
		return nil
	case <-c.closed:
		return ErrClosed
	case <-c.peerClosed:
		return ErrDisconnected
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *pipeConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return nil
}
