package peer

import (
	"errors"
	"fmt"
	"time"
)

// Errors that callers test for with [errors.Is].
var (
	// ErrClosed is within every error that reports the end of a connection.
	ErrClosed = errors.New("mcp: connection closed")
	// ErrDisconnected reports that the other side has ended the connection.
	ErrDisconnected = fmt.Errorf("%w: peer disconnected", ErrClosed)
)

// IsClosed reports whether a channel that carries no values is closed. A nil channel is not.
func IsClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// ClosedWithin waits until done is closed, or d has passed. It reports whether done is closed.
func ClosedWithin(done <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}
