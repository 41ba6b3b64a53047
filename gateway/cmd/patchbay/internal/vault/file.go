package vault

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/internal/filelock"
	"github.com/patchbay-mcp/patchbay/gateway/internal/private"
)

// readPrivate reads a file that only its owner may access, in such a directory.
func readPrivate(path string, limit int) ([]byte, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: %w: not a regular file", path, ErrDamaged)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return nil, err
	}
	if err := private.CheckOwner(path, info); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if err != nil {
		return nil, err
	}
	if len(text) > limit {
		return nil, fmt.Errorf("%s: %w: larger than %d bytes", path, ErrDamaged, limit)
	}
	return text, checkPrivate(filepath.Dir(path))
}

// checkPrivate returns an error for a directory that other users can access.
func checkPrivate(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s: %w: not a directory", dir, ErrDamaged)
	}
	return private.CheckOwner(dir, info)
}

// writeFile replaces a file atomically: after a crash it contains the old or the new content. The
// caller must hold the lock of the file.
func writeFile(path string, text []byte) error {
	temp := path + ".new" // overwrites a file left by a crash
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Sync())
	if err := errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(temp) // it is overwritten the next time
		return err
	}
	if err := replaceFile(temp, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// minBackoff and maxBackoff bound the time between attempts to lock. A holder may send a request.
const minBackoff, maxBackoff = 2 * time.Millisecond, 50 * time.Millisecond

// lockFile locks a file among all goroutines of all processes, until it is closed or the process
// exits. It waits until ctx ends.
func lockFile(ctx context.Context, path string) (*os.File, error) {
	for backoff := minBackoff; ; backoff = min(2*backoff, maxBackoff) {
		f, err := filelock.Open(path)
		if !errors.Is(err, filelock.ErrLocked) {
			return f, err
		}
		select {
		case <-time.After(backoff):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
