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
					t.Errorf("got %d, %v, want 1", v, err)
				}
			})
		}
		synctest.Wait()
		if !g.InProgress("a") || g.InProgress("b") {
			t.Error("want a call in progress for a only")
		}
		close(release)
		callers.Wait()
		if g.InProgress("a") {
			t.Error("the call for a has ended and is still in progress")
		}
		if v, err := g.Do(t.Context(), "a", fn); v != 2 || err != nil {
			t.Errorf("a later call got %d, %v, want 2", v, err)
		}
	})
}

func TestACallerWaitsAsLongAsItsContextLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g singleflight.Group[int, string]
		release, gone := make(chan struct{}), errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		first := make(chan error)
		go func() {
			_, err := g.Do(ctx, 1, func(ctx context.Context) (string, error) { <-release; return "shared", ctx.Err() })
			first <- err
		}()
		synctest.Wait()
		cancel(gone)
		if err := <-first; !errors.Is(err, gone) {
			t.Errorf("the first caller got %v, want the cause of its context", err)
		}
		second := make(chan string)
		go func() {
			v, err := g.Do(t.Context(), 1, nil)
			if err != nil {
				t.Errorf("the second caller got %v: the call must outlast the caller that started it", err)
			}
			second <- v
		}()
		synctest.Wait()
		close(release)
		if v := <-second; v != "shared" {
			t.Errorf("the second caller got %q", v)
		}
	})
}

func TestACallThatDoesNotReturnIsAnError(t *testing.T) {
	var g singleflight.Group[int, int]
	if _, err := g.Do(t.Context(), 1, func(context.Context) (int, error) { runtime.Goexit(); return 0, nil }); err == nil {
		t.Error("want an error of a call that did not return")
	}
}
