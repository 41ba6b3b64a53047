package driver_test

import (
	"context"
	"fmt"
	"log"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A transport for servers decodes a message, serves it, and writes the bytes of the response.
func Example() {
	s := mcp.NewServer("calc", "1.0.0", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "add"}, func(_ context.Context, in struct{ A, B int }) (int, error) {
		return in.A + in.B, nil
	})
	var handler mcp.Handler = s
	ctx, buffer := context.Background(), make([]byte, 0, 512)
	message, invalid := jsonrpc.Decode([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{
		"name":"add","arguments":{"A":1,"B":2},"_meta":{
			"io.modelcontextprotocol/protocolVersion":"2026-07-28",
			"io.modelcontextprotocol/clientCapabilities":{}}}}`))
	if invalid != nil {
		log.Fatal(invalid)
	}
	server := mcp.Driver(handler)
	req, err := mcp.NewRequest(message)
	if err != nil {
		log.Fatal(err)
	}
	response, failure := server.AppendResponse(buffer, ctx, req)
	m, invalid := jsonrpc.Decode(response)
	fmt.Println(failure == nil, invalid == nil, m.ID, len(m.Result) > 0)
	// Output:
	// true true 1 true
}
