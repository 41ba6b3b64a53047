package mcphttp_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

func TestBodyTimeout_AppliesToEachBodyAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, newTestCore(), nil)
		begin := time.Now()
		timedOut := make(chan time.Duration)
		for _, pause := range []time.Duration{0, 10 * time.Second, 15 * time.Second} {
			time.Sleep(pause)
			conn := f.raw()
			conn.write(head("Content-Length: 100\r\n"), "{")
			go func() {
				if got := conn.readResponse(); got.status != 408 {
					t.Errorf("got %d %s, want 408", got.status, got.body)
				}
				timedOut <- time.Since(begin)
			}()
			if got := f.modern("tools/call", `"name":"echo"`); got.status != 200 {
				t.Errorf("got %d %s, want 200", got.status, got.body)
			}
		}
		for _, want := range []time.Duration{10 * time.Second, 20 * time.Second, 35 * time.Second} {
			if got := <-timedOut; got != want {
				t.Errorf("a body timed out after %v, want %v", got, want)
			}
		}
		if got := f.modern("tools/call", `"name":"echo"`); got.status != 200 {
			t.Errorf("got %d %s, want 200", got.status, got.body)
		}
	})
}

// The handler does not read the body of a POST that it refuses, and net/http does not wait long for it.
func TestBodyTimeout_AppliesToRefusedRequests(t *testing.T) {
	for name, headers := range map[string]string{
		"media type": "Content-Encoding: gzip\r\nContent-Length: 100\r\n",
		"origin":     "Origin: https://evil.example\r\nContent-Length: 100\r\n",
		"too large":  "Content-Length: 4194305\r\n",
		"no length":  "Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n",
	} {
		synctest.Test(t, func(t *testing.T) {
			f := start(t, newTestCore(), nil)
			conn, begin := f.raw(), time.Now()
			conn.write(head(headers))
			if got := conn.readResponse(); got.status < 400 || got.status == 408 {
				t.Errorf("%s: got %d %s, want an error other than 408", name, got.status, got.body)
			}
			conn.expectClosed()
			if got := time.Since(begin); got > 31*time.Second {
				t.Errorf("%s: the connection was closed after %v, want at most 31s", name, got)
			}
		})
	}
}

// The keep-alive period of each stream starts when the stream is opened.
//
// Requirement: MHTTP-06
func TestEachStreamHasItsOwnKeepAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := newTestCore()
		f := start(t, core, &mcphttp.Options{KeepAlive: time.Minute})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan struct{})
		for range 3 {
			s := f.modernStream(ctx, "tools/call", `"name":"notifywait"`)
			s.next()
			go func() {
				for opened, n := time.Now(), 1; n <= 3; n++ {
					buf := make([]byte, 100)
					k, err := s.resp.Body.Read(buf)
					if got := time.Since(opened); err != nil || !strings.HasPrefix(string(buf[:k]), ": ") ||
						got != time.Duration(n)*time.Minute {
						t.Errorf("got %q, %v after %v; want a comment every minute", buf[:k], err, got)
					}
				}
				done <- struct{}{}
			}()
			time.Sleep(7 * time.Second)
		}
		for range 3 {
			<-done
		}
	})
}

// A goroutine that outlives its handler finds its context ended.
func TestContextEndsWithTheCall(t *testing.T) {
	var callCtx context.Context
	core := mcp.HandlerFunc(func(ctx context.Context, _ *mcp.Request) (mcp.Result, error) {
		callCtx = ctx
		return mcp.RawResult(`{"resultType":"complete","content":[]}`), nil
	})
	newRepeatedRequest(mcphttp.NewHandler(core, nil), modernBody, modernHeader()).run()
	select {
	case <-callCtx.Done():
	default:
		t.Error("the context has not ended")
	}
	if callCtx.Err() == nil {
		t.Error("the context has no error")
	}
}
