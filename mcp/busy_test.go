package mcp_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// Requirement: RPC-27, RPC-29
func TestBusyServersUseACodeOutsideTheReservedRange(t *testing.T) {
	s := newServer(t, &mcp.ServerOptions{MaxInFlight: 1})
	proceed := make(chan struct{})
	addTool(s, "wait", func(context.Context) (string, error) { <-proceed; return "", nil })
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		proceed = make(chan struct{})
		first := c.Send("tools/call", object{"name": "wait"})
		synctest.Wait()
		_, err := c.Try("tools/call", object{"name": "wait"})
		close(proceed)
		first.Wait()
		if err == nil || err.Code != mcp.CodeBusy || string(err.Data) != `{"retryAfterMs":1000}` {
			t.Fatalf("got %v, want code %d and retryAfterMs in data", err, mcp.CodeBusy)
		}
		if -32768 <= err.Code && err.Code <= -32000 {
			t.Errorf("code %d is in the range that JSON-RPC reserves", err.Code)
		}
	})
}

// capabilityOfResources reports whether the server declares resources to the client.
func capabilityOfResources(t *testing.T, on mcptest.Combination, s *mcp.Server) bool {
	t.Helper()
	c := mcptest.Dial(t, s, on, nil)
	return c.Capabilities().Resources != nil
}

// Before the first result, only the type of the function can show that a tool embeds resources.
//
// Requirement: TOOL-19
func TestToolsThatEmbedResourcesDeclareResources(t *testing.T) {
	embedded := &mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "file:///a", Text: "a"}}
	for _, on := range mcptest.Combinations() {
		t.Run(on.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				typed := newServer(t, nil)
				mcp.AddTool(typed, &mcp.Tool{Name: "a"}, func(context.Context, struct{}) (*mcp.EmbeddedResource, error) {
					return embedded, nil
				})
				if !capabilityOfResources(t, on, typed) {
					t.Error("a tool that returns *EmbeddedResource does not declare resources")
				}
				mixed := newServer(t, nil)
				mcp.AddTool(mixed, &mcp.Tool{Name: "a"}, func(context.Context, struct{}) ([]mcp.ContentBlock, error) {
					return []mcp.ContentBlock{mcp.Text("a"), embedded}, nil
				})
				if capabilityOfResources(t, on, mixed) {
					t.Error("a tool that has embedded no resource declares resources")
				}
				c := mcptest.Dial(t, mixed, on, nil)
				if _, err := c.CallTool(t.Context(), "a", nil); err != nil {
					t.Fatal(err)
				}
				if !capabilityOfResources(t, on, mixed) {
					t.Error("a tool that has embedded a resource does not declare resources")
				}
				c = mcptest.Dial(t, mixed, on, nil)
				if _, err := c.Do(t.Context(), "resources/list", nil); err != nil {
					t.Errorf("resources/list: %v", err)
				}
			})
		})
	}
}
