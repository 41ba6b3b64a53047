package mcphttp_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// subscribableCore is a handler whose clients can subscribe to any resource.
var subscribableCore = mcp.HandlerFunc(func(context.Context, *mcp.Request) (mcp.Result, error) {
	return mcp.RawResult(`{"supportedVersions":["2026-07-28"],"capabilities":{"resources":{"subscribe":true}}}`), nil
})

// The resources that the sessions of one principal subscribe to are limited together, and the end of
// a session releases its own.
func TestLimits_OfSubscribedResourcesPerPrincipal(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	const perSession, most = 30, 32 << 20 / (30 * 8000)
	forEach(t, streamableRevisions, func(t *testing.T, revision string) {
		f := start(t, subscribableCore, &mcphttp.Options{Sessions: mcphttp.SessionOptions{MaxPerPrincipal: 200}})
		subscribe := func(s *testSession, n int) response {
			uri := fmt.Sprintf("x:%d%s", n, strings.Repeat("x", 8000-len(fmt.Sprint("x:", n))))
			return s.send(`{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"` + uri + `"}}`)
		}
		var sessions []*testSession
		for range most + 1 {
			sessions = append(sessions, f.initialize(revision, "Authorization: ann"))
		}
		for i, s := range sessions[:most] {
			for n := range perSession {
				if got := subscribe(s, n); got.code() != 0 {
					t.Fatalf("resource %d of session %d: got %s, want no error", n, i, got.body)
				}
			}
		}
		last := sessions[most]
		refused := 0
		for n := range perSession {
			if subscribe(last, n).code() == mcp.CodeInvalidRequest {
				refused++
			}
		}
		if refused == 0 {
			t.Error("no resource beyond 32 MiB was refused")
		}
		if got := subscribe(f.initialize(revision, "Authorization: bob"), 0); got.code() != 0 {
			t.Errorf("another principal: got %s, want no error", got.body)
		}
		f.do(http.MethodDelete, "", sessions[0].headers...)
		if got := subscribe(last, perSession); got.code() != 0 {
			t.Errorf("after the end of a session: got %s, want no error", got.body)
		}
	})
}
