package capture_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/capture"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/network"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// openURL opens a host with a server at a URL that requires a header, and returns a client.
func openURL(t *testing.T, ring *capture.Ring, header http.Header) *mcp.Client {
	t.Helper()
	h := mcphttp.NewHandler(newServer(), nil)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Tenant") != "s3cret-header" {
			w.Header().Set("Set-Cookie", "a=s3cret-cookie")
			http.Error(w, "s3cret-body", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	f, err := config.Parse([]byte(`{"mcpServers":{"srv":{"url":"http://127.0.0.1"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	opened, err := host.Open(t.Context(), f, &host.Options{Logger: log, Recorder: ring.Recorder(nil),
		Dial: ring.Dial(func(ctx context.Context, _ *config.Server) (mcp.Transport, error) {
			client := capture.Observe(ctx, nil, (&network.Client{}).NewBase)
			t.Cleanup(client.CloseIdleConnections)
			return mcphttp.NewTransport(server.URL+"/mcp?key=s3cret-query",
				&mcphttp.TransportOptions{Header: header, Client: client, Logger: log}), nil
		})})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { opened.Close() })
	c, err := mcp.Connect(t.Context(), mcp.InMemory(opened.For(&policy.Caller{})), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestRequestsToURLsNameTheirCause(t *testing.T) {
	mcptest.NoLeaks(t)
	ring := capture.New(&capture.Options{Always: true})
	c := openURL(t, ring, http.Header{"X-Tenant": {"s3cret-header"}})
	if _, err := c.CallTool(t.Context(), "srv__add", map[string]any{"a": 1}); err != nil {
		t.Fatal(err)
	}
	call, messages := find(t, ring, "hop:upstream method:tools/call")
	if slices.ContainsFunc(messages, func(f capture.Frame) bool { return f.Kind == capture.Header }) {
		t.Errorf("the call repeats the headers of its HTTP request: %+v", messages)
	}
	var of []capture.Exchange
	for _, x := range ring.Find(nil, 0, 1000) {
		if x.Hop == capture.HTTP && x.Cause == call.ID {
			of = append(of, x)
		}
	}
	if len(of) != 1 || of[0].Method != "POST" || of[0].Status != "http 200" ||
		!strings.HasSuffix(of[0].Target, "/mcp?***") || of[0].Server != "srv" || of[0].Bytes == 0 ||
		!of[0].IsOver() || of[0].FirstByte == 0 {
		t.Fatalf("requests of the call: %+v", of)
	}
	_, frames, _ := ring.Get(of[0].ID)
	if len(frames) != 2 || frames[0].Kind != capture.Header ||
		!strings.Contains(frames[0].Text, "X-Tenant: [hidden]") || !strings.Contains(frames[1].Text, "Content-Type: ") {
		t.Errorf("frames %+v", frames)
	}
	checkNoSecret(t, ring)
}

func checkNoSecret(t *testing.T, ring *capture.Ring) {
	t.Helper()
	for _, x := range ring.Find(nil, 0, 1000) {
		_, frames, _ := ring.Get(x.ID)
		if text := fmt.Sprint(x, frames); x.Hop != capture.Upstream && strings.Contains(text, "s3cret") {
			t.Errorf("an exchange contains a secret: %s", text)
		}
	}
}

// Without a reader, only failed requests are recorded beside their messages.
func TestRequestsToURLsWithoutReader(t *testing.T) {
	mcptest.NoLeaks(t)
	ring := capture.New(nil)
	c := openURL(t, ring, http.Header{"X-Tenant": {"s3cret-header"}})
	if _, err := c.CallTool(t.Context(), "srv__add", map[string]any{"a": 1}); err != nil {
		t.Fatal(err)
	}
	for _, hop := range []string{"downstream", "upstream"} {
		x, frames := find(t, ring, "hop:"+hop+" method:tools/call")
		if len(frames) > 0 || x.Frames != 2 || x.Bytes == 0 || !x.IsOver() || x.Status != capture.StatusOK {
			t.Errorf("%s: %+v, want a counted request and its response", hop, x)
		}
	}
	posts := func(ring *capture.Ring) (status []string) {
		for _, x := range ring.Find(nil, 0, 1000) {
			if x.Hop == capture.HTTP && x.Method == http.MethodPost {
				status = append(status, x.Status)
			}
		}
		return slices.Compact(status)
	}
	if got := posts(ring); len(got) > 0 {
		t.Errorf("recorded %q for requests that succeeded", got)
	}
	refused := capture.New(nil)
	c = openURL(t, refused, nil)
	_, _ = c.CallTool(t.Context(), "srv__add", nil)
	if got := posts(refused); !slices.Equal(got, []string{"http 403"}) {
		t.Errorf("recorded %q, want http 403", got)
	}
	checkNoSecret(t, refused)
}
