package mcphttp_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// A seenCore notes of whom the requests are that a server gets.
type seenCore struct {
	*mcp.Server
	mu  sync.Mutex
	got map[string]string // by method
}

func (c *seenCore) note(req *mcp.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.got[req.Method] = "nobody"
	if req.Principal != nil {
		c.got[req.Method] = req.Principal.Subject
	}
	if header := req.Header["X-Custom"]; len(header) == 1 {
		c.got[req.Method] += ", header " + header[0]
	}
}

func (c *seenCore) ServeMCP(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	c.note(req)
	return c.Server.ServeMCP(ctx, req)
}

func (c *seenCore) Listen(ctx context.Context, req *mcp.Request) (stop func(), err error) {
	c.note(req)
	return c.Server.Listen(ctx, req)
}

// A request of a session has the principal that has sent it, and so have the subscriptions of the
// session.
func TestRequestOfASessionIsAsTheTransportSawIt(t *testing.T) {
	for _, version := range []string{march2025, june2025, november2025} {
		for name, handler := range map[string]func(c *seenCore) mcp.Handler{
			"listens": func(c *seenCore) mcp.Handler { return c },
			"waits":   func(c *seenCore) mcp.Handler { return mcp.HandlerFunc(c.ServeMCP) },
		} {
			t.Run(version+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					server, _ := newChangingServer()
					core := &seenCore{Server: server, got: map[string]string{}}
					f := start(t, handler(core), &mcphttp.Options{})
					s := f.initialize(version, "Authorization: ann")
					if got := s.send(callBody(1, "tool1"), "X-Custom: 1"); got.status != 200 {
						t.Errorf("got %d %s", got.status, got.body)
					}
					f.stream(s.get(t.Context()))
					synctest.Wait()
					core.mu.Lock()
					defer core.mu.Unlock()
					if got := core.got["tools/call"]; got != "ann, header 1" {
						t.Errorf("the call is of %s", got)
					}
					if got := core.got["subscriptions/listen"]; got != "ann" {
						t.Errorf("the subscription is of %s", got)
					}
				})
			})
		}
	}
}
