package mcp

import "sync"

// maxParked is the number of goroutines that wait for the next turn instead of ending: their stacks have grown already,
// which costs more than a small request.
const maxParked = 16

// A crew is the goroutines that work on one stream. One of them at a time has the turn to read. Who has read a request
// leaves the turn, serves the request, and goes on reading if nobody else has begun to. Leaving calls another goroutine,
// which takes the turn as soon as it runs: a handler that blocks holds up nobody, and one that does not costs no change
// of goroutines.
type crew struct {
	start func() // starts a goroutine, which joins

	mu     sync.Mutex    // guards the fields below
	taken  bool          // somebody has the turn
	more   bool          // there is something to read at once; known while the turn is free
	over   bool          // there is nothing more to read
	called bool          // a goroutine without work is on its way to the turn
	parked int           // goroutines that wait for a call
	calls  chan struct{} // holds the call; closed when all is over
}

// open makes the turn free for the first time.
func (c *crew) open() {
	c.calls = make(chan struct{}, 1)
	c.leave(false)
}

// leave makes the turn free, and says whether there is something to read at once.
func (c *crew) leave(more bool) {
	c.mu.Lock()
	c.taken, c.more = false, more
	call, alone := !c.called, c.parked == 0
	c.called = true
	if alone && call {
		c.parked++
	}
	if call {
		c.calls <- struct{}{} // has room, since the call before was heard; under the lock, for whoever takes the turn may close it
	}
	c.mu.Unlock()
	if call && alone {
		c.start()
	}
}

// join waits for the turn, as a goroutine that was started. It reports false when all is over.
func (c *crew) join() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.await()
	return c.takeOrAwait()
}

// take waits for the turn, as one that has left it. It reports false when all is over, or enough others wait.
func (c *crew) take() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.takeOrAwait()
}

// takeAgain returns the turn to one that has left it, if it is free and there is something to read at once.
func (c *crew) takeAgain() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.taken || c.over || !c.more {
		return false
	}
	c.taken = true
	return true
}

func (c *crew) takeOrAwait() bool {
	for c.taken && !c.over {
		if c.parked == maxParked {
			return false
		}
		c.parked++
		c.await()
	}
	c.taken = true
	return !c.over
}

// await waits for a call, as one that is counted as parked.
func (c *crew) await() {
	c.mu.Unlock()
	<-c.calls
	c.mu.Lock()
	c.parked--
	c.called = false
}

// close ends the work of all. It is for who has the turn.
func (c *crew) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	close(c.calls)
}
