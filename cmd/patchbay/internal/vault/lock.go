package vault

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

const (
	// minBackoff and maxBackoff bound the time between two attempts to lock. A holder may be sending a
	// request to a server.
	minBackoff, maxBackoff = 2 * time.Millisecond, 50 * time.Millisecond
)

// errLocked is returned by tryLock if the file is locked.
var errLocked = errors.New("locked")

// A lock is an exclusive file lock among all goroutines of all processes. The system releases it
// when the process exits.
type lock struct {
	file *os.File
}

// lockFile waits for the lock of a file. The file is created, and never removed: two processes
// could then lock different files.
func lockFile(ctx context.Context, path string) (*lock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for backoff := minBackoff; ; backoff = min(2*backoff, maxBackoff) {
		err := tryLock(f)
		if err == nil {
			return &lock{f}, nil
		}
		if !errors.Is(err, errLocked) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		timer := time.NewTimer(backoff)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			f.Close()
			return nil, context.Cause(ctx)
		}
	}
}

// unlock releases the lock by closing the file.
func (l *lock) unlock() { l.file.Close() }
