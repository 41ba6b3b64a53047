package mcptest_test

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

type sumIn struct {
	A int `json:"a"`
	B int `json:"b"`
}

func newCalc() *mcp.Server {
	s := mcp.NewServer("calc", "1.0.0", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "add"}, func(_ context.Context, in sumIn) (int, error) { return in.A + in.B, nil })
	return s
}

// runTest runs an example's test as go test does, and prints whether it has passed.
func runTest(name string, test func(t *testing.T)) {
	verbose := flag.Lookup("test.v").Value.String()
	_ = flag.Set("test.v", "false") // -v prints to standard output, which is that of the example
	defer func() { _ = flag.Set("test.v", verbose) }()
	all := func(_, _ string) (bool, error) { return true, nil }
	fmt.Println(name, "passed:", testing.RunTests(all, []testing.InternalTest{{Name: name, F: test}}))
}

// RunClient tests a server over every transport and revision, with the client that programs use.
func ExampleRunClient() {
	runTest("TestAdd", func(t *testing.T) {
		clients := 0
		mcptest.RunClient(t, newCalc(), nil, func(t *testing.T, c *mcp.Client) {
			clients++
			sum, err := mcp.CallTool[int](t.Context(), c, "add", sumIn{A: 1, B: 2})
			if err != nil || sum != 3 {
				t.Errorf("got %d, %v, want 3", sum, err)
			}
		})
		fmt.Println("clients:", clients)
	})
	// Output:
	// clients: 20
	// TestAdd passed: true
}

// Run tests a server over every transport and revision, at the level of messages.
func ExampleRun() {
	runTest("TestAdd", func(t *testing.T) {
		mcptest.Run(t, newCalc(), func(t *testing.T, c *mcptest.Client) {
			result := c.Call("tools/call", map[string]any{"name": "add", "arguments": map[string]any{"a": 1, "b": 2}})
			if !strings.Contains(string(result), `"text":"3"`) {
				t.Errorf("got %s, want the text 3", result)
			}
		})
	})
	// Output: TestAdd passed: true
}

// RunOn tests some combinations, here with a short timeout.
func ExampleRunOn() {
	runTest("TestUnknown", func(t *testing.T) {
		opts := &mcptest.Options{Timeout: time.Second}
		mcptest.RunOn(t, newCalc(), mcptest.Since("2025-11-25"), opts, func(_ *testing.T, c *mcptest.Client) {
			_, err := c.Try("tools/call", map[string]any{"name": "unknown"})
			fmt.Println(c, err.Code)
		})
	})
	// Output:
	// in-memory/2025-11-25 -32602
	// in-memory/2026-07-28 -32602
	// stdio/2025-11-25 -32602
	// stdio/2026-07-28 -32602
	// http/2025-11-25 -32602
	// http/2026-07-28 -32602
	// replicas/2025-11-25 -32602
	// replicas/2026-07-28 -32602
	// TestUnknown passed: true
}

// Dial returns the client that programs use, for one combination.
func ExampleDial() {
	runTest("TestRevision", func(t *testing.T) {
		on := mcptest.Combination{Transport: mcptest.HTTP, Revision: "2025-06-18"}
		c := mcptest.Dial(t, newCalc(), on, nil)
		fmt.Println(c.Revision(), c.ServerInfo().Name)
	})
	// Output:
	// 2025-06-18 calc
	// TestRevision passed: true
}

// A transcript has all messages of a client; Golden compares it with a file.
func ExampleClient_Transcript() {
	runTest("TestTranscript", func(t *testing.T) {
		on := mcptest.Combination{Transport: mcptest.Stdio, Revision: "2025-11-25"}
		c := mcptest.Connect(t, newCalc(), on, nil)
		c.Call("ping", nil)
		_, messages, _ := strings.Cut(c.Transcript(), "notifications/initialized\"}\n")
		fmt.Print(messages)
	})
	// Output:
	// -- client --
	// {"jsonrpc":"2.0","id":2,"method":"ping"}
	// -- server --
	// {"jsonrpc":"2.0","id":2,"result":{}}
	// TestTranscript passed: true
}

// NoLeaks fails a test outside a bubble that leaves goroutines behind.
func ExampleNoLeaks() {
	runTest("TestNoLeaks", func(t *testing.T) {
		mcptest.NoLeaks(t)
		c := mcptest.Connect(t, newCalc(), mcptest.Combination{Transport: mcptest.Stdio, Revision: mcptest.Modern}, nil)
		c.Call("tools/list", nil)
	})
	// Output: TestNoLeaks passed: true
}
