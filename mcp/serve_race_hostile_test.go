package mcp_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// Sessions that replace each other during requests of every kind leave the stream whole: at its end
// each limit is free, and no goroutine is left.
func TestReplacedSessionsLeaveNothing(t *testing.T) {
	s := newTarget(nil)
	addTool(s.Server, "exit", func(context.Context) (string, error) { runtime.Goexit(); return "", nil })
	addTool(s.Server, "hang", func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() })
	addTool(s.Server, "progress", func(ctx context.Context) (string, error) {
		for n := range 20 {
			mcp.Progress(ctx, float64(n), 20, "step")
		}
		return "", nil
	})
	flaky := discoverWith(s, func(ctx context.Context) error {
		switch rand.IntN(4) {
		case 0:
			return mcp.Errorf(mcp.CodeBusy, "busy")
		case 1:
			runtime.Goexit()
		}
		return nil
	})
	before := runtime.NumGoroutine()
	in, w := io.Pipe()
	r, out := io.Pipe()
	served := make(chan error, 1)
	go func() {
		served <- mcp.Serve(t.Context(), flaky, mcp.NewStreamConn(in, out, nil),
			&mcp.ServeOptions{PingInterval: time.Second, Drain: time.Millisecond, MaxInFlight: 32, Logger: discardLogger()})
	}()
	read := make(chan struct{})
	go func() { defer close(read); io.Copy(io.Discard, r) }()
	tools := []string{"exit", "hang", "progress", "echo"}
	for n := range 3000 {
		id := fmt.Sprint(n % 40)
		tool := tools[rand.IntN(len(tools))]
		lines := []string{
			sessionRequest(id, "initialize", initializeParamsOf("2025-03-26")),
			bareCall(id, tool, ""), bareCall(id, tool, ""), envelopedCall(id, tool, ""),
			`[` + bareCall(id, tool, "") + `,` + bareCall(`"b"`, "hang", "") + `]`,
			`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`,
			sessionRequest(id, "resources/subscribe", `{"uri":"file:///x"}`),
		}
		if _, err := io.WriteString(w, lines[rand.IntN(len(lines))]+"\n"); err != nil {
			t.Fatalf("write %d: %v", n, err) // pings have no responses, so the stream may end
		}
	}
	w.Close()
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
	out.Close()
	<-read
	for end := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	if grown := runtime.NumGoroutine() - before; grown > 0 {
		buf := make([]byte, 1<<16)
		t.Errorf("%d goroutines are left:\n%s", grown, buf[:runtime.Stack(buf, true)])
	}
}
