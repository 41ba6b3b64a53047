package inprocess

import (
	"context"
	"io"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/bench/internal/gosdk"
)

// A byteConn is a connection between the benchmark and the server. It is the
// lowest-level entry point of the SDK.
type byteConn struct {
	in, out chan []byte
	done    chan struct{}
}

func newByteConn() *byteConn {
	return &byteConn{in: make(chan []byte), out: make(chan []byte), done: make(chan struct{})}
}

func (c *byteConn) Connect(context.Context) (mcp.Connection, error) { return c, nil }

func (c *byteConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	select {
	case data := <-c.in:
		return jsonrpc.DecodeMessage(data)
	case <-c.done:
		return nil, io.EOF
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (c *byteConn) Write(_ context.Context, m jsonrpc.Message) error {
	data, err := jsonrpc.EncodeMessage(m)
	if err != nil {
		return err
	}
	c.out <- data
	return nil
}

func (c *byteConn) SessionID() string { return "" }

// Close is called by the SDK after the reader has returned io.EOF.
func (c *byteConn) Close() error { return nil }

func BenchmarkInProcess_Server_GoSDK(b *testing.B) {
	ctx := b.Context()
	conn := newByteConn()
	if _, err := gosdk.NewServer().Connect(ctx, conn, nil); err != nil {
		b.Fatal(err)
	}
	defer close(conn.done)
	benchmarkServer(b, func(message []byte) ([]byte, error) {
		conn.in <- message
		return <-conn.out, nil
	})
}

func BenchmarkInProcess_Client_GoSDK(b *testing.B) {
	ctx := b.Context()
	near, far := mcp.NewInMemoryTransports()
	if _, err := gosdk.NewServer().Connect(ctx, far, nil); err != nil {
		b.Fatal(err)
	}
	c, err := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1.0.0"}, nil).Connect(ctx, near, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	benchmarkClient(b, func(message string) (string, error) {
		r, err := c.CallTool(ctx, &mcp.CallToolParams{Name: echo.Tool, Arguments: map[string]any{"message": message}})
		if err != nil {
			return "", err
		}
		return r.Content[0].(*mcp.TextContent).Text, nil
	})
}
