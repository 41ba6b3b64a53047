package mcphttp_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// A list that cannot be encoded is an error on a stream as well, and the stream contains no part of
// the list.
func TestListThatCannotBeEncodedIsAnError(t *testing.T) {
	s := mcp.NewServer("s", "1", &mcp.ServerOptions{Logger: discardLogger,
		Middleware: []mcp.Middleware{func(next mcp.Handler) mcp.Handler {
			return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
				res, err := next.ServeMCP(ctx, req)
				if list, ok := res.(*mcp.ListToolsResult); ok {
					_ = req.Notify(ctx, "notifications/message", []byte(`{"level":"info","data":"hello"}`))
					list.Scope = "\xff"
				}
				return res, err
			})
		}}})
	mcp.AddTool(s, &mcp.Tool{Name: "t"}, func(context.Context, struct{}) (string, error) { return "", nil })
	f := start(t, s, nil)
	for _, id := range []string{"1", `"` + strings.Repeat("x", 250) + `"`} {
		body, headers := modernCall("tools/list", "")
		body = strings.Replace(body, `"id":1`, `"id":`+id, 1)
		resp, err := f.client.Do(f.request(t.Context(), http.MethodPost, body, headers...))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		want := "data: " + `{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32603,"message":"internal error"}}` +
			"\n\n"
		if err != nil || !strings.HasSuffix(string(got), want) {
			t.Errorf("%v\n%s", err, got)
		}
	}
}
