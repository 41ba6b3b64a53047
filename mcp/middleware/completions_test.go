package middleware_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/middleware"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// Requirement: CMP-07
func TestClientDelaysAndCachesCompletions(t *testing.T) {
	const delay = 150 * time.Millisecond
	var served atomic.Int32
	s := mcp.NewServer("test", "1", nil)
	complete := func(_ context.Context, typed string, known map[string]string) ([]string, error) {
		served.Add(1)
		return []string{typed + known["y"] + "!"}, nil
	}
	mcp.AddPrompt(s, &mcp.Prompt{Name: "p", Complete: map[string]mcp.CompleteFunc{"x": complete, "y": complete}},
		func(context.Context, struct {
			X string `json:"x"`
			Y string `json:"y"`
		}) (string, error) {
			return "", nil
		})
	for _, on := range mcptest.Combinations() {
		t.Run(on.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				served.Store(0)
				c := mcptest.Dial(t, s, on, &mcp.ClientOptions{Middleware: []mcp.Middleware{middleware.Completions(delay)}})
				ask := func(name, typed string) (string, error) {
					got, err := c.Complete(t.Context(), &mcp.CompleteParams{Prompt: "p",
						Argument: name, Value: typed})
					if err != nil {
						return "", err
					}
					return got.Values[0], nil
				}
				failed := make(chan error, 3)
				for _, typed := range []string{"a", "ab"} {
					go func() {
						_, err := ask("x", typed)
						failed <- err
					}()
					time.Sleep(delay / 3)
				}
				go func() { // of another argument
					_, err := ask("y", "a")
					failed <- err
				}()
				if got, err := ask("x", "abc"); err != nil || got != "abc!" {
					t.Errorf("got %q, %v, want abc!", got, err)
				}
				for _, want := range []bool{true, true, false} {
					if err := <-failed; errors.Is(err, context.Canceled) != want || (err != nil) != want {
						t.Errorf("got %v, want a replaced request: %t", err, want)
					}
				}
				if n := served.Load(); n != 2 {
					t.Errorf("the server received %d requests, want 2", n)
				}
				began := time.Now()
				if got, err := ask("x", "abc"); err != nil || got != "abc!" || served.Load() != 2 || time.Since(began) != 0 {
					t.Errorf("again: got %q, %v after %v and %d requests, want it from the cache",
						got, err, time.Since(began), served.Load())
				}
				time.Sleep(time.Minute)
				if _, err := ask("x", "abc"); err != nil || served.Load() != 3 {
					t.Errorf("a minute later: got %v and %d requests, want 3", err, served.Load())
				}
				for n := range 300 {
					if _, err := ask("x", string(rune('a'+n))); err != nil {
						t.Fatal(err)
					}
				}
			})
		})
	}
}
