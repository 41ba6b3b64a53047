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

// A deadlineWriter starts with the write deadline that an http.Server with WriteTimeout sets.
type deadlineWriter struct {
	http.ResponseWriter
	deadline      time.Time
	underDeadline int // number of writes with that deadline
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

// Each write has a deadline of its own instead.
func TestWriteDeadline_DoesNotApplyToStreamsAndLargeResponses(t *testing.T) {
	for name, core := range map[string]mcp.HandlerFunc{
		"stream": func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
			return mcp.RawResult(`{}`), req.Notify(ctx, "notifications/message",
				[]byte(`{"level":"info","data":"hello"}`))
		},
		"large response": func(context.Context, *mcp.Request) (mcp.Result, error) {
			return mcp.RawResult(`{"large":"` + strings.Repeat("x", 5000) + `"}`), nil
		},
	} {
		x := newRepeatedRequest(mcphttp.NewHandler(core, nil), modernBody, modernHeader())
		w := &deadlineWriter{ResponseWriter: x.writer, deadline: time.Now().Add(time.Hour)}
		x.handler.ServeHTTP(w, x.request)
		if w.underDeadline > 0 || !w.deadline.IsZero() {
			t.Errorf("%s: %d writes with the deadline of the http.Server, want none", name, w.underDeadline)
		}
	}
}

func TestWriteDeadline_DoesNotApplyToCachedLists(t *testing.T) {
	body, _ := modernCall("tools/list", "")
	header := modernHeader()
	header["Mcp-Method"], header["Mcp-Name"] = []string{"tools/list"}, nil
	x := newRepeatedRequest(mcphttp.NewHandler(newListServer(400, nil), nil), body, header)
	w := &deadlineWriter{ResponseWriter: x.writer, deadline: time.Now().Add(time.Hour)}
	x.handler.ServeHTTP(w, x.request)
	if x.check(t, "tool_0399"); w.underDeadline > 0 || !w.deadline.IsZero() {
		t.Errorf("%d writes with the deadline of the http.Server, want none", w.underDeadline)
	}
}
