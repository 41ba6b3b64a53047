package redis_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/stores/redis"
)

// startTasks starts a server with tasks in a store, and returns a client of the server. Runs of the
// tool "wait" send why they end.
func startTasks(t *testing.T, s *redis.Store, ended chan error) *mcp.Client {
	t.Helper()
	server := mcp.NewServer("press", "1.0.0", nil)
	m := tasks.NewServer(server, &tasks.Options{Store: s.Tasks("press"), PollInterval: 50 * time.Millisecond})
	tasks.AddTool(m, &mcp.Tool{Name: "ask"}, nil, func(ctx context.Context, _ struct{}) (string, error) {
		title, err := mcp.Ask[string](ctx, "title", "Which book?", nil)
		return "printed " + title, err
	})
	tasks.AddTool(m, &mcp.Tool{Name: "wait"}, nil, func(ctx context.Context, _ struct{}) (string, error) {
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return "", ctx.Err()
	})
	if err := m.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	answer := func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
		return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: []byte(`{"value":"Emma"}`)}, nil
	}
	c, err := mcp.Connect(t.Context(), mcp.InMemory(server), tasks.Declare(&mcp.ClientOptions{Elicit: answer}, nil))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Close()
		if err := m.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return c
}

// A task that one process runs is read, answered and cancelled at another process.
func TestTaskOfAnotherProcess(t *testing.T) {
	first, second := openTwo(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ended := make(chan error, 1)
	b := startTasks(t, second, nil)
	a := startTasks(t, first, ended)

	h, err := tasks.Start(ctx, a, "ask", nil)
	if err != nil {
		t.Fatal(err)
	}
	result, err := tasks.Resume(b, h.ID()).Wait(ctx)
	if err != nil || result.Text() != "printed Emma" {
		t.Errorf("the other process returned %v, %v", result, err)
	}

	if h, err = tasks.Start(ctx, a, "wait", nil); err != nil {
		t.Fatal(err)
	}
	other := tasks.Resume(b, h.ID())
	if state, err := other.Get(ctx); err != nil || state.Status != tasks.StatusWorking {
		t.Errorf("at the other process the task is %+v, %v", state, err)
	}
	if err := other.Cancel(ctx); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if !errors.Is(err, mcp.ErrCancelled) {
			t.Errorf("the run ended with %v, want it to be cancelled", err)
		}
	case <-ctx.Done():
		t.Error("the run of a cancelled task goes on")
	}
}
