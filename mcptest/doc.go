// Package mcptest tests MCP servers as their clients see them.
//
// [RunClient] runs a test body over every transport and every revision of the protocol, with the
// client that programs use. A transport of [Replicas] is a server of three processes, as behind a
// load balancer:
//
//	func TestAdd(t *testing.T) {
//		s := mcp.NewServer("calc", "1.0.0", nil)
//		mcp.AddTool(s, &mcp.Tool{Name: "add"}, add)
//		mcptest.RunClient(t, s, nil, func(t *testing.T, c *mcp.Client) {
//			sum, err := mcp.CallTool[int](t.Context(), c, "add", map[string]any{"a": 1, "b": 2})
//			if err != nil || sum != 3 {
//				t.Errorf("got %d, %v, want 3", sum, err)
//			}
//		})
//	}
//
// [Run] does the same with a [Client] that shows the messages, for tests of the protocol itself:
//
//	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
//		got := c.Call("tools/call", map[string]any{"name": "add", "arguments": map[string]any{"a": 1, "b": 2}})
//		if !strings.Contains(string(got), `"text":"3"`) {
//			t.Errorf("got %s", got)
//		}
//	})
//
// Both validate every message of the server by the official schema of its revision: it must not
// contain members beyond the members that the schema names. The schemas are not part of this
// module. Download them once:
//
//	go run github.com/patchbay-mcp/patchbay/mcptest/schemas@latest
//
// Without them (see [SchemaDir]), all other rules are checked.
//
// A [Client] follows its revision exactly and hides only the differences between the eras: how the
// server asks for input, and how clients subscribe to changes. It fails the test if the server
// breaks the protocol:
//
//   - Every response belongs to a pending request, with the id as it was sent.
//   - In the modern era, the server sends no requests. It sends changes only on a subscription that
//     requested them and that it acknowledged.
//
// Each body runs in a bubble of package [testing/synctest], unless [Options.RealTime] is set: time
// advances only when all goroutines are blocked, so tests are fast, and a leaked goroutine fails
// the test. A handler that does not return is named in a line, with the time since its start.
// [synctest.Wait] waits until the server is idle, to test that something does not happen.
//
// [Golden] compares a [Client.Transcript], which contains all messages, with a file. [Main] and
// [NoLeaks] find goroutines that tests outside a bubble leak.
package mcptest
