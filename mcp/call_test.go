package mcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// Middleware may serve a request twice. The second call does not reuse the state of the first one.
func TestRequestServedTwiceIsTwoCalls(t *testing.T) {
	again := func(next mcp.Handler) mcp.Handler {
		return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
			if _, err := next.ServeMCP(ctx, req); err != nil {
				return nil, err
			}
			return next.ServeMCP(ctx, req)
		})
	}
	s := newServer(t, nil)
	var calls []context.Context
	mcp.AddTool(s, &mcp.Tool{Name: "slow"}, func(ctx context.Context, _ struct{}) (string, error) {
		calls = append(calls, ctx)
		mcp.Progress(ctx, 1, 2, "")
		return "", nil
	})
	meta := strings.Replace(fmt.Sprintf(modernMeta, `{}`), "{", `{"progressToken":"p",`, 1)
	req := modernRequest(t, nil, "tools/call", object{"_meta": json.RawMessage(meta), "name": "slow"})
	notes := 0
	req.Notify = func(context.Context, string, json.RawMessage) error { notes++; return nil }
	if _, err := mcp.AppendResponse(nil, t.Context(), again(s), req); err != nil {
		t.Fatal(err)
	}
	if len(calls) != 2 || calls[0] == calls[1] || notes != 2 {
		t.Errorf("got %d calls with contexts %p and %d notifications, want 2 calls with 2 contexts and 2", len(calls),
			calls, notes)
	}
}
