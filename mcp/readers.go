package mcp

import "sync"

// maxParked is the number of goroutines that wait for the read lock instead of ending. Their stacks
// have grown already, which costs more than a small request.
const maxParked = 16

// readers are the goroutines that serve one stream. The one that holds the read lock reads; when it
// has read a request, it releases the lock and serves the request itself, then continues to read
// unless another goroutine does. Releasing the lock wakes another goroutine, which acquires it when
// it is scheduled. So a handler that blocks does not delay other requests, and one that does not
// block costs no switch of goroutines.
type readers struct {
	start func() // starts a goroutine, which calls join

	mu      sync.Mutex    // guards the fields below
	locked  bool          // a goroutine holds the read lock
	more    bool          // a message can be read without waiting; valid while the lock is free
	closed  bool          // there is nothing more to read
	waking  bool          // a goroutine has been woken and has not acquired the lock yet
	parked  int           // goroutines that wait for wakeups
	wakeups chan struct{} // holds the wakeup; closed with the readers
}

// open starts the first goroutine.
func (r *readers) open() {
	r.wakeups = make(chan struct{}, 1)
	r.release(false)
}

// release releases the read lock. more reports whether a message can be read without waiting.
func (r *readers) release(more bool) {
	r.mu.Lock()
	r.locked, r.more = false, more
	wake, start := !r.waking, r.parked == 0
	r.waking = true
	if wake && start {
		r.parked++
	}
	if wake {
		// There is space, since the previous wakeup has been received. It is sent with the mutex
		// held: the next holder of the read lock may close the channel.
		r.wakeups <- struct{}{}
	}
	r.mu.Unlock()
	if wake && start {
		r.start()
	}
}

// join waits for the read lock, in a goroutine that was just started. It reports false if the
// readers are closed.
func (r *readers) join() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.park()
	return r.acquireLocked()
}

// acquire waits for the read lock, in a goroutine that has released it. It reports false if the
// readers are closed, or enough goroutines are parked.
func (r *readers) acquire() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.acquireLocked()
}

// tryAcquire acquires the read lock if it is free and a message can be read without waiting.
func (r *readers) tryAcquire() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.locked || r.closed || !r.more {
		return false
	}
	r.locked = true
	return true
}

// acquireLocked is acquire with the mutex held.
func (r *readers) acquireLocked() bool {
	for r.locked && !r.closed {
		if r.parked == maxParked {
			return false
		}
		r.parked++
		r.park()
	}
	r.locked = true
	return !r.closed
}

// park waits for a wakeup. The caller is counted in parked, and holds the mutex.
func (r *readers) park() {
	r.mu.Unlock()
	<-r.wakeups
	r.mu.Lock()
	r.parked--
	r.waking = false
}

// close ends all goroutines. The caller holds the read lock.
func (r *readers) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	close(r.wakeups)
}
