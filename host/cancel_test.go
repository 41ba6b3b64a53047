package host_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// A call that a shutdown cancels fails with the error of its server, also while it waits to be sent:
// its caller may still be there, and learns whether the call may have run.
func TestCancelledCallSaysWhetherItMayHaveRun(t *testing.T) {
	for name, c := range map[string]struct {
		tool       string
		before     func(p *fakeProcess)
		mayHaveRun bool
	}{
		"in progress": {"slow", func(*fakeProcess) {}, true},
		"waits for a start": {"name", func(p *fakeProcess) {
			p.setStartup(time.Minute)
			p.exit()
			time.Sleep(2 * time.Second) // longer than the backoff
		}, false},
		"waits for its backoff": {"name", func(p *fakeProcess) { p.exit() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &fakeProcess{handler: simpleServer("s")}
				v := openFakes(t, map[string]*fakeProcess{"s": p}, "{}").For(&policy.Caller{})
				call := func(ctx context.Context, tool string) *mcp.CallToolResult {
					raw, err := v.ServeMCP(ctx, request(t, "tools/call", `"name":"s__`+tool+`","arguments":{}`))
					if err != nil {
						t.Fatalf("got %v, want a result", err)
					}
					text, _ := raw.(mcp.RawResult)
					res := new(mcp.CallToolResult)
					if err := json.Unmarshal(text, res); err != nil {
						t.Fatal(err)
					}
					return res
				}
				call(t.Context(), "name")
				c.before(p)
				synctest.Wait()
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Nanosecond, func() { cancel(mcp.ErrShutdown) })
				res := call(ctx, c.tool)
				f, _ := res.Meta["dev.patchbay/error"].(map[string]any)
				if f["server"] != "s" || f["mayHaveRun"] != c.mayHaveRun || f["code"] != string(hosterr.CodeUnavailable) {
					t.Errorf("got %+v, %q, want mayHaveRun %t", f, res.Text(), c.mayHaveRun)
				}
			})
		})
	}
}

// A call whose time limit ends while its client opens a lost session again fails with the error of its
// server.
func TestTimeoutOfANewSessionNamesTheServer(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	handler := mcphttp.NewHandler(simpleServer("s"), &mcphttp.Options{Logger: noLog})
	var hangs atomic.Bool
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !hangs.Load():
			handler.ServeHTTP(w, r)
		case r.Header.Get("Mcp-Session-Id") != "":
			http.NotFound(w, r)
		default:
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		}
	}))
	defer up.Close()
	// The time limit is long enough for all but the response that the server never sends, on a loaded machine.
	h := openFile(t, map[string]any{"s": map[string]string{"type": "http", "url": up.URL}},
		`{"servers": {"s": {"era": "session", "timeout": "2s"}}}`, &host.Options{})
	c := client(t, h, &policy.Caller{Principal: &mcp.Principal{Subject: "p"}})
	if f, text := failureOf(t, c, "s__name"); f != nil {
		t.Fatalf("got %+v, %q", f, text)
	}
	hangs.Store(true)
	for _, code := range []hosterr.Code{hosterr.CodeUnavailable, hosterr.CodeTimeout, hosterr.CodeTimeout} {
		if f, text := failureOf(t, c, "s__name"); f == nil || f.Server != "s" || f.Code != code {
			t.Errorf("got %+v, %q, want %s", f, text, code)
		}
	}
	_ = h.Close()
}
