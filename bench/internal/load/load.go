package load

import "time"

// grace is how long answers may take beyond the end of a slice before the
// server counts as stuck.
const grace = 10 * time.Second

// A Load keeps one server busy. Its methods are called one at a time.
type Load interface {
	// Run makes calls for about d, at least one, and returns once every one of
	// them is answered. An answer that is wrong, or missing, is an error.
	Run(d time.Duration) (Slice, error)
	// Close ends the connections.
	Close() error
}

// A Slice is what one Run did.
type Slice struct {
	Calls int
	Wall  time.Duration // from the first request to the last answer
}
