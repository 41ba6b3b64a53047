package tasks_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// A restartingServer starts and stops servers with one store at one address.
type restartingServer struct {
	t       *testing.T
	store   tasks.Store
	handler atomic.Pointer[mcphttp.Handler]
	server  *testServer
}

func (h *restartingServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.handler.Load().ServeHTTP(w, r)
}

// open starts a server.
func (h *restartingServer) open() {
	h.server = newTestServer(h.t, &tasks.Options{Store: h.store, PollInterval: 50 * time.Millisecond}, nil)
	addTools(h.server, nil)
	if err := h.server.Recover(context.Background()); err != nil {
		h.t.Error(err)
	}
	h.handler.Store(mcphttp.NewHandler(h.server.server,
		&mcphttp.Options{Logger: slog.New(slog.NewTextHandler(h.t.Output(), nil))}))
}

// close stops the server and its requests.
func (h *restartingServer) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_ = h.handler.Load().Shutdown(ctx) // aborts the requests that are still open
	h.server.closeServer(h.t)
}

// The server restarts while Elicit runs. Sessions are lost, the task is not.
func TestCallSurvivesServerRestart(t *testing.T) {
	for _, revision := range []string{revision2025, mcptest.Modern} {
		t.Run(revision, func(t *testing.T) {
			h := &restartingServer{t: t, store: tasks.NewMemory()}
			h.open()
			server := httptest.NewServer(h)
			defer func() {
				h.close()
				server.Close()
			}()
			asked := 0
			opts := &mcp.ClientOptions{
				Revision: revision, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
				Elicit: func(_ context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
					if asked++; asked == 1 {
						h.close()
						h.open()
					}
					name := map[string]string{"who are you?": "Ada", "and your friend?": "Bob"}[p.Message]
					return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: json.RawMessage(`{"name":"` + name +
						`"}`)}, nil
				},
			}
			transport := mcphttp.NewTransport(server.URL, nil)
			c, err := mcp.Connect(t.Context(), transport, tasks.Declare(opts, nil))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			started := start(t, c, "meet")
			r, err := started.Wait(ctx)
			wantText(t, r, err, "Ada and Bob")
			if asked > 3 {
				t.Errorf("%d elicitations, want at most 3", asked)
			}
		})
	}
}
