package vault

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

const (
	// firstPause and lastPause bound the time between two tries to get a lock: holders may talk to a server meanwhile.
	firstPause, lastPause = 2 * time.Millisecond, 50 * time.Millisecond
)

// errHeld says that somebody else has a lock.
var errHeld = errors.New("held")

// A lock is held by one at a time, of all goroutines of all processes. It ends with its process, whatever becomes of that.
type lock struct {
	file *os.File
}

// lockFile waits for the lock that belongs to a file, which is made and stays: were it removed, two could hold it.
func lockFile(ctx context.Context, path string) (*lock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := tryLock(f)
		if err == nil {
			return &lock{f}, nil
		}
		if !errors.Is(err, errHeld) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			f.Close()
			return nil, context.Cause(ctx)
		}
	}
}

// unlock ends the lock: the system does that when the file is closed.
func (l *lock) unlock() { l.file.Close() }
