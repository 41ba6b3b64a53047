package capture_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/capture"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/recording"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

func newServer() *mcp.Server {
	s := mcp.NewServer("captured", "1", &mcp.ServerOptions{Logger: slog.New(slog.DiscardHandler)})
	type sum struct {
		A int `json:"a"`
	}
	mcp.AddTool(s, &mcp.Tool{Name: "add"}, func(_ context.Context, in sum) (int, error) { return in.A + 1, nil })
	mcp.AddTool(s, &mcp.Tool{Name: "fail"}, func(context.Context, struct{}) (string, error) {
		return "", errors.New("no")
	})
	mcp.AddTool(s, &mcp.Tool{Name: "refuse"}, func(context.Context, struct{}) (string, error) {
		return "", &mcp.Error{Code: 4001, Message: "refused"}
	})
	mcp.AddTool(s, &mcp.Tool{Name: "ask"}, func(ctx context.Context, _ struct{}) (string, error) {
		return mcp.Ask[string](ctx, "name", "Your name?", nil)
	})
	return s
}

// find returns the only exchange that matches a query, and its frames.
func find(t *testing.T, r *capture.Ring, query string) (capture.Exchange, []capture.Frame) {
	t.Helper()
	q, err := capture.ParseQuery(query)
	if err != nil {
		t.Fatal(err)
	}
	found := r.Find(q, 0, 10)
	if len(found) != 1 {
		t.Fatalf("%s: got %d exchanges, want 1: %+v", query, len(found), r.Find(nil, 0, 100))
	}
	x, frames, _ := r.Get(found[0].ID)
	return x, frames
}

// TestExchanges calls tools over every transport in every revision, and replays the exported recording.
func TestExchanges(t *testing.T) {
	for _, on := range mcptest.Combinations() {
		t.Run(fmt.Sprint(on), func(t *testing.T) {
			mcptest.NoLeaks(t)
			ring := capture.New(&capture.Options{Always: true})
			transport := ring.Connect(mcptest.Transport(t, newServer(), on.Transport), "srv", "ann")
			c, err := mcp.Connect(t.Context(), transport, &mcp.ClientOptions{Revision: on.Revision,
				Elicit: func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
					return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: []byte(`{"value":"Ann"}`)}, nil
				}})
			if err != nil {
				t.Fatal(err)
			}
			for range c.Tools(t.Context()) {
			}
			_, _ = c.CallTool(t.Context(), "add", map[string]any{"a": 1})
			_, _ = c.CallTool(t.Context(), "fail", nil)
			_, _ = c.CallTool(t.Context(), "refuse", nil)
			_, _ = c.CallTool(t.Context(), "ask", nil)
			c.Close()
			asked := "ok 2"
			if on.Revision < "2025-06-18" { // without elicitation
				asked = "error -32600 1"
			}
			for query, want := range map[string]string{
				// With its quotes, a name is not part of a random state.
				`text::"add" method:tools/call`:              "ok 1",
				`text::"fail" method:tools/call`:             "tool error 1",
				`text::"refuse" method:tools/call`:           "error 4001 1",
				`text::"ask" hop:upstream method:tools/call`: asked,
			} {
				x, frames := find(t, ring, query)
				if got := fmt.Sprint(x.Status, " ", x.Rounds); got != want || x.Revision != on.Revision ||
					x.Server != "srv" || x.Caller != "ann" || x.Bytes == 0 || x.Frames != len(frames) || !x.IsOver() {
					t.Errorf("%s: got %+v, want %s", query, x, want)
				}
				first, last := frames[0], frames[len(frames)-1]
				if on.OverHTTP() {
					first = frames[1]
				}
				if !first.Sent || !strings.Contains(first.Text, `"method":"tools/call"`) || last.Sent {
					t.Errorf("%s: got frames %+v", query, frames)
				}
			}
			checkReplay(t, ring)
		})
	}
}

// checkReplay exports all exchanges as a recording and serves it.
func checkReplay(t *testing.T, ring *capture.Ring) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "recording")
	w, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := ring.WriteRecording(w, ids(ring)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Seek(0, 0); err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	rec, err := recording.Read(w)
	if err != nil {
		t.Fatal(err)
	}
	c := mcptest.Dial(t, rec.Handler(false), mcptest.Combinations()[0], nil)
	sum, err := mcp.CallTool[int](t.Context(), c, "add", map[string]any{"a": 1})
	if err != nil || sum != 2 {
		t.Errorf("replay: got %d, %v, want 2", sum, err)
	}
}

func ids(ring *capture.Ring) (all []uint64) {
	for _, x := range ring.Find(nil, 0, 1_000_000) {
		all = append([]uint64{x.ID}, all...)
	}
	return all
}
