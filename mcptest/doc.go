// Package mcptest tests MCP servers as their clients see them.
//
// [Run] runs one test body over every transport and every revision of the protocol:
//
//	func TestAdd(t *testing.T) {
//		s := mcp.NewServer("calc", "1.0.0", nil)
//		mcp.AddTool(s, &mcp.Tool{Name: "add"}, add)
//		mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
//			got := c.Call("tools/call", map[string]any{"name": "add", "arguments": map[string]any{"a": 1, "b": 2}})
//			...
//		})
//	}
//
// A [Client] speaks its revision by the letter and hides only what differs between the eras: who calls whom when the
// server asks for input, and how changes are listened to. It fails the test when the server breaks the protocol:
//
//   - Every message of the server is valid by the official schema of the revision and has no members but those that
//     the schema names, where the schemas can be found (see [SchemaDir]).
//   - A response is to a request that waits for one, with the id as it was sent.
//   - In the modern era the server sends no requests, and changes only to a subscription that was acknowledged and asked
//     for them.
//
// Each body runs in a bubble of package [testing/synctest], unless [Options.RealTime] says otherwise: time passes only when
// everything waits, so that nothing takes long, and a goroutine that is left behind fails the test. [synctest.Wait] waits
// until the server has done all there is to do, which is how to test that something does not happen.
//
// [Golden] compares a [Client.Transcript], which is what went over the wire, with a file. [Main] and [NoLeaks] look for goroutines that tests
// outside of a bubble leave behind.
package mcptest
