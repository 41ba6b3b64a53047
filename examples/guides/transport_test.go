package guides

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"sync"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// serveSocket serves each connection of a listener until the listener is closed.
func serveSocket(ctx context.Context, l net.Listener, s *mcp.Server) {
	var serving sync.WaitGroup
	defer serving.Wait()
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		serving.Go(func() {
			defer conn.Close()
			if err := s.Run(ctx, mcp.NewStreamConn(conn, conn, nil)); err != nil {
				log.Print(err)
			}
		})
	}
}

func Example_unixSocket() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "mcp.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		log.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		serveSocket(ctx, l, newLibrary())
	}()

	conn, err := net.Dial("unix", socket)
	if err != nil {
		log.Fatal(err)
	}
	c, err := mcp.Connect(ctx, mcp.NewConnTransport(mcp.NewStreamConn(conn, conn, nil)), nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(mcp.CallTool[hits](ctx, c, "find", search{Query: "go", Limit: 3}))
	c.Close()
	l.Close()
	<-done
	// Output: {3 [go by rank]} <nil>
}

// A printer is a Conn that prints the messages of the Conn that it wraps.
type printer struct{ mcp.Conn }

func (p printer) Read(ctx context.Context) (*jsonrpc.Message, error) {
	m, err := p.Conn.Read(ctx)
	if err == nil {
		fmt.Println("<-", m.ID)
	}
	return m, err
}

func (p printer) Write(ctx context.Context, m *jsonrpc.Message) error {
	fmt.Println("->", m.ID, m.Method)
	return p.Conn.Write(ctx, m)
}

func Example_printMessages() {
	ctx := context.Background()
	client, server := mcp.Pipe()
	done := make(chan error)
	go func() { done <- newLibrary().Run(ctx, server) }()
	c, err := mcp.Connect(ctx, mcp.NewConnTransport(printer{client}), nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(mcp.CallTool[hits](ctx, c, "find", search{Query: "go", Limit: 3}))
	c.Close()
	fmt.Println(<-done)
	// Output:
	// -> 1 server/discover
	// <- 1
	// -> 2 tools/call
	// <- 2
	// {3 [go by rank]} <nil>
	// <nil>
}

// handle serves one request of a message queue and returns the response, or nil. caller is the
// sender, as the queue has authenticated it. Progress and log messages are not sent, because
// Request.Notify is nil.
func handle(ctx context.Context, h mcp.Handler, caller *mcp.Principal, message []byte) []byte {
	m, err := jsonrpc.Decode(message)
	if err != nil || m.Kind() != jsonrpc.Request {
		return nil
	}
	req, err := mcp.NewRequest(m)
	if invalid, ok := errors.AsType[*mcp.Error](err); ok {
		return jsonrpc.Append(nil, &jsonrpc.Message{ID: m.ID, Error: invalid})
	}
	req.Principal = caller
	return jsonrpc.Append(nil, mcp.Driver(h).Respond(mcp.WithPrincipal(ctx, caller), req))
}

func Example_messageQueue() {
	answer := handle(context.Background(), newLibrary(), &mcp.Principal{Subject: "ann"}, []byte(`{"jsonrpc": "2.0", "id": 1, "method": "tools/call",
		"params": {"name": "find", "arguments": {"query": "go"}, "_meta": {
			"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}}}`))
	fmt.Println(bytes.Contains(answer, []byte(`"structuredContent":{"total":10,"names":["go by rank"]}`)))
	// Output: true
}
