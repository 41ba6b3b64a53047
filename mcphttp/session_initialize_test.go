package mcphttp_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// hangingCore is a handler whose server/discover returns only when its context ends.
func hangingCore(causes chan<- error) mcp.Handler {
	return mcp.HandlerFunc(func(ctx context.Context, _ *mcp.Request) (mcp.Result, error) {
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return nil, ctx.Err()
	})
}

// initializers send an initialize request and return once its response, or the end of the stream, has
// arrived.
var initializers = map[string]func(f *fixture, revision string){
	"Streamable HTTP": func(f *fixture, revision string) {
		got := f.do(http.MethodPost, initializeBody(revision))
		if got.code() == 0 || got.header.Get("Mcp-Session-Id") != "" {
			f.t.Errorf("got %d %s %s, want an error and no session", got.status, got.header, got.body)
		}
	},
	"HTTP+SSE": func(f *fixture, revision string) {
		c := f.openSSE(f.t.Context())
		c.post(initializeBody(revision))
		for err := error(nil); err == nil; _, err = c.Next() {
		}
	},
}

func TestInitialize_HandlerThatHangsIsCanceled(t *testing.T) {
	for name, initialize := range initializers {
		t.Run(name, func(t *testing.T) {
			forEach(t, sessionRevisions, func(t *testing.T, revision string) {
				causes := make(chan error, 2)
				f := start(t, hangingCore(causes), &mcphttp.Options{Sessions: mcphttp.SessionOptions{Max: 2}})
				for range 2 { // the second one needs the place of the first
					begin := time.Now()
					initialize(f, revision)
					if got := time.Since(begin); got != 30*time.Second {
						t.Errorf("initialize took %v, want 30s", got)
					}
					<-causes
					synctest.Wait()
				}
			})
		})
	}
}

func TestInitialize_HandlerThatHangsDelaysNoShutdown(t *testing.T) {
	for name, initialize := range initializers {
		t.Run(name, func(t *testing.T) {
			forEach(t, sessionRevisions, func(t *testing.T, revision string) {
				causes, done := make(chan error, 1), make(chan struct{})
				f := start(t, hangingCore(causes), nil)
				go func() {
					initialize(f, revision)
					close(done)
				}()
				synctest.Wait()
				ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
				defer cancel()
				begin := time.Now()
				if err := f.handler.Shutdown(ctx); err != nil || time.Since(begin) != 10*time.Second {
					t.Errorf("Shutdown returned %v after %v, want no error after 10s", err, time.Since(begin))
				}
				if cause := <-causes; !errors.Is(cause, mcp.ErrShutdown) {
					t.Errorf("cause of the call's end: got %v, want ErrShutdown", cause)
				}
				<-done
			})
		})
	}
}
