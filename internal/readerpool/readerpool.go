// Package readerpool runs the goroutines that read and serve the messages of a stream.
package readerpool

import "sync"

// maxParked is the number of goroutines that wait for the read lock instead of ending. Their stacks
// grew already, which costs more than a small request.
const maxParked = 16

// A Pool is the goroutines that serve a stream. The goroutine that holds the read lock reads; when
// it read a request, it releases the lock and serves the request itself, then continues to read
// unless another goroutine does. Releasing the lock wakes another goroutine, which acquires it when
// it is scheduled. So a handler that blocks does not delay other requests, and a handler that does
// not block costs no switch of goroutines.
type Pool struct {
	start func() // starts a goroutine, which calls Join

	mu      sync.Mutex    // guards the fields below
	locked  bool          // a goroutine holds the read lock
	more    bool          // a message can be read without waiting; valid while the lock is free
	closed  bool          // the end was read
	waking  bool          // a goroutine was woken and did not acquire the lock yet
	parked  int           // goroutines that wait for wakeups
	wakeups chan struct{} // holds the wakeup; closed with the Pool
}

// Open starts the first goroutine. start starts a goroutine that calls Join.
func (p *Pool) Open(start func()) {
	p.start, p.wakeups = start, make(chan struct{}, 1)
	p.Release(false)
}

// Release releases the read lock. more reports whether a message can be read without waiting.
func (p *Pool) Release(more bool) {
	p.mu.Lock()
	p.locked, p.more = false, more
	wake, start := !p.waking, !p.waking && p.parked == 0
	p.waking = true
	if start {
		p.parked++
	}
	if wake {
		// There is space, since the previous wakeup was received. It is sent with the mutex
		// held: the next holder of the read lock may close the channel.
		p.wakeups <- struct{}{}
	}
	p.mu.Unlock()
	if start {
		p.start()
	}
}

// Join waits for the read lock, in a goroutine that was just started. It reports false if the Pool
// is closed.
func (p *Pool) Join() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.park()
	return p.acquire()
}

// Acquire waits for the read lock, in a goroutine that released it. It reports false if the
// Pool is closed, or enough goroutines are parked.
func (p *Pool) Acquire() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.acquire()
}

// TryAcquire acquires the read lock if it is free and a message can be read without waiting.
func (p *Pool) TryAcquire() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.locked || p.closed || !p.more {
		return false
	}
	p.locked = true
	return true
}

func (p *Pool) acquire() bool {
	for p.locked && !p.closed {
		if p.parked == maxParked {
			return false
		}
		p.parked++
		p.park()
	}
	p.locked = true
	return !p.closed
}

// park waits for a wakeup. The caller is counted in parked, and holds the mutex.
func (p *Pool) park() {
	p.mu.Unlock()
	<-p.wakeups
	p.mu.Lock()
	p.parked--
	p.waking = false
}

// Close ends all goroutines. The caller holds the read lock.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	close(p.wakeups)
}
