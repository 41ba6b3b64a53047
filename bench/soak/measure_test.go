package main

import (
	"sync"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/internal/readerpool"
)

// TestParked pins the name of the function by which parked recognizes a goroutine.
func TestParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := parked(goroutineStacks())
		var pool readerpool.Pool
		var running sync.WaitGroup
		end := make(chan struct{})
		pool.Open(func() {
			running.Go(func() {
				pool.Join() // reads
				<-end
				pool.Close()
			})
		})
		synctest.Wait()
		for range 3 {
			running.Go(func() { pool.Acquire() }) // wait to read
		}
		synctest.Wait()
		if n := parked(goroutineStacks()) - before; n != 3 {
			t.Errorf("got %d parked goroutines, want 3", n)
		}
		close(end)
		running.Wait()
		if n := parked(goroutineStacks()) - before; n != 0 {
			t.Errorf("got %d parked goroutines after the end, want 0", n)
		}
	})
}
