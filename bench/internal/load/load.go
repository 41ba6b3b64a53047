package load

import "time"

// grace is the time after the end of a slice within which all responses must
// arrive.
const grace = 10 * time.Second

// A Load keeps one server busy. Its methods are called one at a time.
type Load interface {
	// Run makes calls for about d, at least one, and returns after all
	// responses. A wrong or missing response is an error.
	Run(d time.Duration) (Slice, error)
	// Close ends the connections.
	Close() error
}

// A Slice is the result of one Run.
type Slice struct {
	Calls int
	Wall  time.Duration // from the first request to the last response
}
