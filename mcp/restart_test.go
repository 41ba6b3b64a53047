package mcp_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// The process of a server of 2026-07-28 ends and is replaced by another version.
//
// Requirement: STDIO-18
func TestARestartedServerIsDiscoveredAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		version := 0
		var server mcp.Conn
		dial := func(context.Context) (mcp.Conn, error) {
			version++
			n := version
			h := mcp.HandlerFunc(func(_ context.Context, req *mcp.Request) (mcp.Result, error) {
				switch req.Method {
				case "server/discover":
					return mcp.RawResult(fmt.Sprintf(`{"resultType":"complete","supportedVersions":["2026-07-28"],`+
						`"capabilities":{"tools":{}},"instructions":"v%d","ttlMs":0,"cacheScope":"private"}`, n)), nil
				case "tools/list":
					return mcp.RawResult(fmt.Sprintf(`{"resultType":"complete","tools":[{"name":"t%d",`+
						`"inputSchema":{"type":"object"}}],"ttlMs":3600000,"cacheScope":"private"}`, n)), nil
				}
				return mcp.RawResult(emptyContent), nil
			})
			var client mcp.Conn
			client, server = mcp.Pipe()
			go func(conn mcp.Conn) { _ = mcp.Serve(context.Background(), h, conn, nil) }(server)
			return client, nil
		}
		c, err := mcp.Connect(t.Context(), mcp.NewDialTransport(dial), &mcp.ClientOptions{Logger: discardLogger()})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		want := func(version string) {
			t.Helper()
			for tool, err := range c.Tools(t.Context()) {
				if err != nil || tool.Name != "t"+version || c.Instructions() != "v"+version {
					t.Errorf("got tool %v, %v and instructions %q, want those of version %s", tool, err, c.Instructions(), version)
				}
			}
		}
		want("1")
		server.Close()
		synctest.Wait()
		if _, err := c.CallTool(t.Context(), "x", nil); err != nil {
			t.Fatal(err)
		}
		want("2")
		if version != 2 {
			t.Errorf("the server was started %d times, want 2", version)
		}
	})
}
