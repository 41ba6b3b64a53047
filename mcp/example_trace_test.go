package mcp_test

import (
	"context"
	"fmt"
	"log"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// A line for every message. jsonrpc.Append(nil, f.Message) returns the JSON of one.
func ExampleTrace() {
	ctx := context.Background()
	transport := mcp.Trace(mcp.InMemory(newCalculator()), func(f mcp.Frame) {
		arrow := "<-"
		if f.Sent {
			arrow = "->"
		}
		if f.Message != nil && f.Message.Method != "" {
			fmt.Println(arrow, f.Message.Method) // a request or notification
		} else if f.Message != nil {
			fmt.Println(arrow, "response to", f.Message.ID)
		}
	})
	c, err := mcp.Connect(ctx, transport, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	args := map[string]int{"a": 6, "b": 2}
	progress := mcp.CallOptions{Progress: func(mcp.ProgressUpdate) {}}
	if _, err := c.CallTool(mcp.WithCallOptions(ctx, progress), "divide", args); err != nil {
		log.Fatal(err)
	}
	// Output:
	// -> server/discover
	// <- response to 1
	// -> tools/call
	// <- notifications/progress
	// <- response to 2
}
