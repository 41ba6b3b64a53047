// Package storetest tests implementations of the stores that servers and hosts share:
// [mcphttp.EventStore], [replica.SessionStore], [replica.Bus], [replica.LeaseStore], [state.Store],
// [state.LimitStore] and [oauthclient.Store]. Stores of tasks and of authorization servers have suites of their own, in
// packages ext/tasks/storetest and oauth/authserver/storetest.
//
// Every suite opens two clients of the same store, as two processes do. A store in memory returns
// the same store twice:
//
//	func TestHostState(t *testing.T) {
//		storetest.RunHostState(t, func(*testing.T) (a, b state.Store) {
//			s := &state.Memory{}
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

const (
	// concurrentUsers is the number of goroutines that use a store at once.
	concurrentUsers = 64
	// patience limits how long a check waits. A busy machine takes seconds.
	patience = 30 * time.Second
)

// run runs each check with a new store, as a subtest.
func run[S any](t *testing.T, open func(t *testing.T) (a, b S), checks map[string]func(t *testing.T, a, b S)) {
	for name, check := range checks {
		t.Run(name, func(t *testing.T) {
			a, b := open(t)
			check(t, a, b)
		})
	}
}

// concurrently runs work in goroutines, half of them with each client, and waits for them.
func concurrently[S any](a, b S, work func(worker int, store S)) {
	var all sync.WaitGroup
	for worker := range concurrentUsers {
		all.Go(func() { work(worker, []S{a, b}[worker%2]) })
	}
	all.Wait()
}

// ended returns a canceled context.
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

// wantCanceled checks the error of a call with a canceled context.
func wantCanceled(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%s with a canceled context returned %v, want context.Canceled", what, err)
	}
}

// receive waits for a value.
func receive[T any](t *testing.T, values chan T) (value T) {
	t.Helper()
	select {
	case value = <-values:
	case <-time.After(patience):
		t.Fatalf("nothing arrived within %v", patience)
	}
	return value
}
