package mcp_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// discoverWith serves server/discover, and so initialize, with a function.
func discoverWith(h mcp.Handler, discover func(ctx context.Context) error) mcp.Handler {
	return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
		if req.Method == "server/discover" {
			if err := discover(ctx); err != nil {
				return nil, err
			}
		}
		return h.ServeMCP(ctx, req)
	})
}

func initializeParamsOf(revision string) string {
	return `{"protocolVersion":"` + revision + `","capabilities":{},"clientInfo":{"name":"c","version":"1"}}`
}

// A session whose initialize has failed is over: its client is not pinged, and the stream stays.
//
// Requirement: PING-02
func TestFailedInitializeHasNoPings(t *testing.T) {
	for _, revision := range sessionRevisions {
		for name, transport := range byteTransports {
			t.Run(revision+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					failing := discoverWith(newTarget(nil), func(context.Context) error {
						return mcp.Errorf(mcp.CodeBusy, "busy")
					})
					c := dialBytes(t, failing, transport, nil, &mcp.ServeOptions{PingInterval: time.Second})
					before := runtime.NumGoroutine()
					for range 50 {
						c.wantCode(c.ask(sessionRequest(`1`, "initialize", initializeParamsOf(revision))), `1`, mcp.CodeBusy)
					}
					time.Sleep(time.Hour)
					c.silent()
					if grown := runtime.NumGoroutine() - before; grown > 20 {
						t.Errorf("%d goroutines more, want none for failed sessions", grown)
					}
					c.good()
				})
			})
		}
	}
}

// Requests to initialize are limited as other requests are, also if the handler does not return.
func TestManyInitializeRequestsAreLimited(t *testing.T) {
	for _, revision := range sessionRevisions {
		for name, transport := range byteTransports {
			t.Run(revision+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var running atomic.Int32
					proceed := make(chan struct{})
					blocking := discoverWith(newTarget(nil), func(context.Context) error {
						running.Add(1)
						defer running.Add(-1)
						<-proceed // also after the end of its context
						return nil
					})
					c := dialBytes(t, blocking, transport, nil, nil)
					const requests, limit = 2000, 256
					for n := range requests {
						c.write(sessionRequest(fmt.Sprint(n), "initialize", initializeParamsOf(revision)))
					}
					synctest.Wait()
					if got := running.Load(); got > limit {
						t.Errorf("%d initialize requests are served at once, want at most %d", got, limit)
					}
					close(proceed)
					synctest.Wait()
					seen := map[string]bool{}
					for len(c.lines) > 0 {
						got := c.next()
						if seen[string(got.ID)] {
							t.Errorf("second response to request %s", got.ID)
						}
						seen[string(got.ID)] = true
					}
					if len(seen) != requests {
						t.Errorf("got %d responses, want %d", len(seen), requests)
					}
					c.open(revision)
					c.good()
				})
			})
		}
	}
}

// An initialize request ends when another one replaces it.
func TestReplacedInitializeEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := true
		slow := discoverWith(newTarget(nil), func(ctx context.Context) error {
			if !first {
				return nil
			}
			first = false
			<-ctx.Done()
			return ctx.Err()
		})
		c := dialBytes(t, slow, byteTransports["pipes"], nil, nil)
		c.write(sessionRequest(`1`, "initialize", initializeParams))
		c.silent()
		c.write(sessionRequest(`2`, "initialize", initializeParams))
		synctest.Wait()
		codes := map[string]int{}
		for len(c.lines) > 0 {
			got := c.next()
			codes[string(got.ID)] = got.code()
		}
		if len(codes) != 2 || codes["1"] == 0 || codes["2"] != 0 {
			t.Errorf("got the codes %v, want an error for request 1 and a result for request 2", codes)
		}
		c.good()
	})
}

// A handler that ends its goroutine leaves no initialize request without a response.
func TestInitializeWhoseHandlerExitsHasAResponse(t *testing.T) {
	for name, transport := range byteTransports {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				exits := true
				exiting := discoverWith(newTarget(nil), func(context.Context) error {
					if exits {
						runtime.Goexit()
					}
					return nil
				})
				c := dialBytes(t, exiting, transport, nil, nil)
				c.wantCode(c.ask(sessionRequest(`1`, "initialize", initializeParams)), `1`, mcp.CodeInternalError)
				exits = false
				if got := c.ask(sessionRequest(`2`, "initialize", initializeParams)); !strings.Contains(got.text, `"serverInfo"`) {
					t.Errorf("second initialize: got %s, want a result", got.text)
				}
				c.good()
			})
		})
	}
}
