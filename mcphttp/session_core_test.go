package mcphttp_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// A principalRecorder records the principal of each request that a server receives.
type principalRecorder struct {
	*mcp.Server
	mu  sync.Mutex
	got map[string]string // by method
}

func (c *principalRecorder) record(req *mcp.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.got[req.Method] = "no principal"
	if req.Principal != nil {
		c.got[req.Method] = req.Principal.Subject
	}
	if header := req.Header["X-Custom"]; len(header) == 1 {
		c.got[req.Method] += ", header " + header[0]
	}
}

func (c *principalRecorder) ServeMCP(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	c.record(req)
	return c.Server.ServeMCP(ctx, req)
}

func (c *principalRecorder) Listen(ctx context.Context, req *mcp.Request) (stop func(), err error) {
	c.record(req)
	return c.Server.Listen(ctx, req)
}

// The principal that sent a request is also that of the subscriptions of its session.
func TestRequestOfASessionHasItsPrincipalAndHeader(t *testing.T) {
	for _, version := range streamableRevisions {
		for name, handler := range map[string]func(c *principalRecorder) mcp.Handler{
			"Listener":    func(c *principalRecorder) mcp.Handler { return c },
			"HandlerFunc": func(c *principalRecorder) mcp.Handler { return mcp.HandlerFunc(c.ServeMCP) },
		} {
			t.Run(version+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					server, _ := newChangingServer()
					core := &principalRecorder{Server: server, got: map[string]string{}}
					f := start(t, handler(core), &mcphttp.Options{})
					s := f.initialize(version, "Authorization: ann")
					if got := s.send(callBody(1, "tool1"), "X-Custom: 1"); got.status != 200 {
						t.Errorf("got %d %s, want 200", got.status, got.body)
					}
					f.stream(s.get(t.Context()))
					synctest.Wait()
					core.mu.Lock()
					defer core.mu.Unlock()
					if got := core.got["tools/call"]; got != "ann, header 1" {
						t.Errorf("tools/call has %s, want ann, header 1", got)
					}
					if got := core.got["subscriptions/listen"]; got != "ann" {
						t.Errorf("subscriptions/listen has %s, want ann", got)
					}
				})
			})
		}
	}
}
