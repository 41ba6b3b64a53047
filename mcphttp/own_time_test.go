package mcphttp_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// A timedWriter has the write deadline that an http.Server sets for a request.
type deadlineWriter struct {
	http.ResponseWriter
	deadline      time.Time
	underDeadline int // writes under the server's deadline
}

func (w *deadlineWriter) SetReadDeadline(time.Time) error    { return nil }
func (w *deadlineWriter) SetWriteDeadline(t time.Time) error { w.deadline = t; return nil }
func (w *deadlineWriter) Flush()                             {}
func (w *deadlineWriter) Write(p []byte) (int, error) {
	if !w.deadline.IsZero() {
		w.underDeadline++
	}
	return w.ResponseWriter.Write(p)
}

// Streams and large answers outlive http.Server.WriteTimeout: what they write has a time of its own.
func TestStreamsAndLargeAnswersHaveTheirOwnTime(t *testing.T) {
	for name, core := range map[string]mcp.HandlerFunc{
		"stream": func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
			return mcp.RawResult(`{}`), req.Notify(ctx, "notifications/message",
				[]byte(`{"level":"info","data":"hello"}`))
		},
		"large answer": func(context.Context, *mcp.Request) (mcp.Result, error) {
			return mcp.RawResult(`{"large":"` + strings.Repeat("x", 5000) + `"}`), nil
		},
	} {
		x := newRepeatedRequest(mcphttp.NewHandler(core, nil), modernBody, modernHeader())
		w := &deadlineWriter{ResponseWriter: x.writer, deadline: time.Now().Add(time.Hour)}
		x.handler.ServeHTTP(w, x.request)
		if w.underDeadline > 0 || !w.deadline.IsZero() {
			t.Errorf("%s: %d writes under the deadline of the server", name, w.underDeadline)
		}
	}
}
