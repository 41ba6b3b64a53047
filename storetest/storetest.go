// Package storetest tests implementations of the stores that servers share: [mcphttp.EventStore],
// [mcp.StateStore] and [mcp.OnceStore]. Stores of tasks and of authorization servers have suites of
// their own, in packages ext/tasks/storetest and oauth/authserver/storetest.
//
// Every suite opens two clients of the same store, as two processes do. A store in memory returns the same
// store twice:
//
//	func TestStates(t *testing.T) {
//		storetest.RunStates(t, func(*testing.T) (a, b mcp.OnceStore) {
//			s := newMemory()
//			return s, s
//		})
//	}
package storetest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

// concurrentUsers is the number of goroutines that use a store at once.
const concurrentUsers = 64

// patience bounds the time in which a record must expire. A busy machine takes seconds.
const patience = 30 * time.Second

// concurrently runs work in goroutines, half of them with each client, and waits for them.
func concurrently[S any](a, b S, work func(worker int, store S)) {
	var all sync.WaitGroup
	for worker := range concurrentUsers {
		all.Go(func() { work(worker, []S{a, b}[worker%2]) })
	}
	all.Wait()
}

// await polls until done returns true.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !done() {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not happen within %v", what, patience)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// ended returns a context that was canceled.
func ended(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantCanceled checks the error of a call with a context that was canceled.
func wantCanceled(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%s with a canceled context returned %v, want context.Canceled", what, err)
	}
}
