package shared_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/stores/redis"
	"github.com/patchbay-mcp/patchbay/stores/shared"
)

func open(t *testing.T, port string) *shared.Store {
	t.Helper()
	s, err := shared.Open(t.Context(), "redis://127.0.0.1:"+port)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func TestProcessesUseTheSameKey(t *testing.T) {
	port := start(t)
	a, b := open(t, port), open(t, port)
	if keys := a.StateKeys(); len(keys) != 1 || len(keys[0]) != 32 || !reflect.DeepEqual(keys, b.StateKeys()) {
		t.Errorf("got keys of %d and %d bytes, want the same 32", len(keys[0]), len(b.StateKeys()[0]))
	}
}

func TestReadyRestoresALostKey(t *testing.T) {
	port := start(t)
	a := open(t, port)
	command(t, port, "FLUSHALL")
	if err := a.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	if b := open(t, port); !reflect.DeepEqual(a.StateKeys(), b.StateKeys()) {
		t.Error("a process that starts after a loss of data uses another key")
	}
}

func TestReadyReportsAnotherKey(t *testing.T) {
	port := start(t)
	a := open(t, port)
	command(t, port, "FLUSHALL")
	b := open(t, port) // before a is ready again
	if err := a.Ready(t.Context()); !errors.Is(err, shared.ErrOtherKey) {
		t.Errorf("got %v, want ErrOtherKey", err)
	}
	if err := b.Ready(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestReadyReportsAnUnavailableServer(t *testing.T) {
	port := start(t)
	a := open(t, port)
	a.Close()
	if err := a.Ready(t.Context()); !errors.Is(err, redis.ErrClosed) {
		t.Errorf("got %v, want ErrClosed", err)
	}
}

func TestErrorsOfOpenContainNoPassword(t *testing.T) {
	port := start(t, "--requirepass", "right")
	for _, url := range []string{"redis://:hunter2@127.0.0.1:" + port, "redis://:hunter2@127.0.0.1:" + freePort(t),
		"redis://:hunter2@%zz"} {
		if s, err := shared.Open(t.Context(), url); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("got %v, %v, want an error without the password", s, err)
		}
	}
}

// TestDocOpen runs the code of the package comment.
func TestDocOpen(t *testing.T) {
	ctx, url := t.Context(), "redis://127.0.0.1:"+start(t)
	err := func() error {
		store, err := shared.Open(ctx, url)
		if err != nil {
			return err
		}
		defer store.Close()
		server := mcp.NewServer("press", "1.0.0", &mcp.ServerOptions{
			StateKeys: store.StateKeys(), StateStore: store.Redis.States(),
		})
		opts := &mcphttp.Options{}
		store.Configure(opts)
		handler := mcphttp.NewHandler(server, opts)
		return handler.Shutdown(ctx)
	}()
	if err != nil {
		t.Error(err)
	}
}
