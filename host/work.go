package host

import "sync"

// A workGroup counts the goroutines of a host. Its zero value is empty, and it is safe for concurrent use.
type workGroup struct {
	mu      sync.Mutex // guards the fields below
	running sync.WaitGroup
	ending  bool
}

// run runs f in a goroutine. After wait was called, the context of the host has ended, and nothing
// waits for f, which returns at once.
func (w *workGroup) run(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ending {
		go f()
		return
	}
	w.running.Go(f)
}

// wait waits until the functions have returned.
func (w *workGroup) wait() {
	w.mu.Lock()
	w.ending = true
	w.mu.Unlock()
	w.running.Wait()
}
