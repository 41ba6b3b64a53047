package mcp_test

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A pair of byte streams carries one message per line. Run returns when the input ends.
func ExampleNewStreamConn() {
	client := strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}` + "\n")

	s := mcp.NewServer("calc", "1.0.0", nil)
	if err := s.Run(context.Background(), mcp.NewStreamConn(client, os.Stdout, nil)); err != nil {
		fmt.Println(err)
	}
	// Output: {"jsonrpc":"2.0","id":1,"result":{}}
}

// A pipe connects a client and a server in one process.
func ExamplePipe() {
	ctx := context.Background()
	client, server := mcp.Pipe()
	done := make(chan error)
	go func() { done <- mcp.NewServer("calc", "1.0.0", nil).Run(ctx, server) }()

	if err := client.Write(ctx, &jsonrpc.Message{ID: jsonrpc.IntID(1), Method: "ping"}); err != nil {
		fmt.Println(err)
	}
	answer, err := client.Read(ctx)
	if err != nil {
		fmt.Println(err)
	}
	fmt.Println(answer.ID, string(answer.Result))

	client.Close()
	fmt.Println(<-done)
	// Output:
	// 1 {}
	// <nil>
}

// Serve serves any Handler. This one has a single method.
func ExampleServe() {
	hello := mcp.HandlerFunc(func(_ context.Context, req *mcp.Request) (mcp.Result, error) {
		if req.Method != "com.example/hello" {
			return nil, mcp.Errorf(mcp.CodeMethodNotFound, "no method %s", req.Method)
		}
		return mcp.RawResult(`{"resultType":"complete","hello":"world"}`), nil
	})
	client := strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"com.example/hello","params":{"_meta":{` +
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`)

	if err := mcp.Serve(context.Background(), hello, mcp.NewStreamConn(client, os.Stdout, nil), nil); err != nil {
		fmt.Println(err)
	}
	// Output: {"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","hello":"world"}}
}
