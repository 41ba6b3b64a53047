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

// Bodies that are awaited at the same time are given up one by one, each after its own time, and one that has arrived
// leaves nothing behind.
func TestEachBodyHasItsOwnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, newTestCore(), nil)
		begin := time.Now()
		given := make(chan time.Duration)
		for _, pause := range []time.Duration{0, 10 * time.Second, 15 * time.Second} {
			time.Sleep(pause)
			conn := f.raw()
			conn.write(head("Content-Length: 100\r\n"), "{")
			go func() {
				if got := conn.readResponse(); got.status != 408 {
					t.Errorf("got %d %s, want 408", got.status, got.body)
				}
				given <- time.Since(begin)
			}()
			if got := f.modern("tools/call", `"name":"echo"`); got.status != 200 {
				t.Errorf("got %d %s", got.status, got.body)
			}
		}
		for _, want := range []time.Duration{30 * time.Second, 40 * time.Second, 55 * time.Second} {
			if got := <-given; got != want {
				t.Errorf("a body was given up after %v, want %v", got, want)
			}
		}
		if got := f.modern("tools/call", `"name":"echo"`); got.status != 200 {
			t.Errorf("got %d %s", got.status, got.body)
		}
	})
}

// The body of a POST that is refused by its header is not read here, and net/http does not wait for it for long either.
func TestUnreadBodyHasItsTime(t *testing.T) {
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
				t.Errorf("%s: got %d %s, want a refusal", name, got.status, got.body)
			}
			conn.expectClosed()
			if got := time.Since(begin); got > 31*time.Second {
				t.Errorf("%s: the connection ended after %v, want 30s", name, got)
			}
		})
	}
}

// Streams that are open at the same time are kept alive each at its own pace.
func TestEachStreamIsKeptAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := newTestCore()
		f := start(t, core, &mcphttp.Options{KeepAlive: time.Minute})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		heard := make(chan struct{})
		for range 3 {
			s := f.modernStream(ctx, "tools/call", `"name":"notifywait"`)
			s.next()
			go func() {
				for opened, n := time.Now(), 1; n <= 3; n++ {
					buf := make([]byte, 100)
					k, err := s.resp.Body.Read(buf)
					if got := time.Since(opened); err != nil || !strings.HasPrefix(string(buf[:k]), ": ") ||
						got != time.Duration(n)*time.Minute {
						t.Errorf("got %q, %v after %v; want a comment each minute", buf[:k], err, got)
					}
				}
				heard <- struct{}{}
			}()
			time.Sleep(7 * time.Second)
		}
		for range 3 {
			<-heard
		}
	})
}

// A goroutine that a handler has left behind finds its context at its end, whenever it looks.
func TestContextEndsWithTheCall(t *testing.T) {
	var left context.Context
	core := mcp.HandlerFunc(func(ctx context.Context, _ *mcp.Request) (mcp.Result, error) {
		left = ctx
		return mcp.RawResult(`{"resultType":"complete","content":[]}`), nil
	})
	newRepeatedRequest(mcphttp.NewHandler(core, nil), modernBody, modernHeader()).run()
	select {
	case <-left.Done():
	default:
		t.Error("the context goes on")
	}
	if left.Err() == nil {
		t.Error("the context has no error")
	}
}
