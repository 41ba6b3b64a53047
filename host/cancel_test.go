package host_test

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/mcp"
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
				v := openFakes(t, map[string]*fakeProcess{"s": p}, "{}").For(&host.Caller{})
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
				if f["server"] != "s" || f["mayHaveRun"] != c.mayHaveRun || f["code"] != string(host.CodeUnavailable) {
					t.Errorf("got %+v, %q, want mayHaveRun %t", f, res.Text(), c.mayHaveRun)
				}
			})
		})
	}
}
