package singleflight_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/internal/singleflight"
)

func TestCallersOfOneKeyShareACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g singleflight.Group[string, int]
		calls, release := 0, make(chan struct{})
		fn := func(context.Context) (int, error) { calls++; <-release; return calls, nil }
		var callers sync.WaitGroup
		for range 3 {
			callers.Go(func() {
				if v, err := g.Do(t.Context(), "a", fn); v != 1 || err != nil {
					t.Errorf("Do = %d, %v, want 1", v, err)
				}
			})
		}
		synctest.Wait()
		if !g.InProgress("a") || g.InProgress("b") {
			t.Errorf("InProgress(a) = %v, InProgress(b) = %v, want only a", g.InProgress("a"), g.InProgress("b"))
		}
		close(release)
		callers.Wait()
		if g.InProgress("a") {
			t.Error("InProgress(a) = true after the call has returned")
		}
		if v, err := g.Do(t.Context(), "a", fn); v != 2 || err != nil {
			t.Errorf("second Do = %d, %v, want 2", v, err)
		}
	})
}

func TestCanceledCallerReturnsAndTheCallContinues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g singleflight.Group[int, string]
		release, cause := make(chan struct{}), errors.New("cause")
		ctx, cancel := context.WithCancelCause(t.Context())
		first := make(chan error)
		go func() {
			_, err := g.Do(ctx, 1, func(ctx context.Context) (string, error) { <-release; return "shared", ctx.Err() })
			first <- err
		}()
		synctest.Wait()
		cancel(cause)
		if err := <-first; !errors.Is(err, cause) {
			t.Errorf("the first Do returned %v, want the cause of its context", err)
		}
		second := make(chan string)
		go func() {
			v, err := g.Do(t.Context(), 1, nil)
			if err != nil {
				t.Errorf("the second Do returned %v, want the result of the call", err)
			}
			second <- v
		}()
		synctest.Wait()
		close(release)
		if v := <-second; v != "shared" {
			t.Errorf("the second Do returned %q, want %q", v, "shared")
		}
	})
}

func TestGoexitInACallIsAnError(t *testing.T) {
	var g singleflight.Group[int, int]
	exit := func(context.Context) (int, error) { runtime.Goexit(); return 0, nil }
	if _, err := g.Do(t.Context(), 1, exit); err == nil {
		t.Error("Do of a call that did not return: got no error")
	}
}
