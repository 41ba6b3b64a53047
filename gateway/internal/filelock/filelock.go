// Package filelock locks files against other processes.
package filelock

import "errors"

// ErrLocked is returned by [Open] if another process, or another file of this process, holds the
// lock.
var ErrLocked = errors.New("locked")
