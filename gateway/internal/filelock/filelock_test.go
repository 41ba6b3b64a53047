package filelock_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/internal/filelock"
)

func TestAFileIsLockedUntilItIsClosed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := filelock.Open(path)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		t.Skip("this system has no locks")
	case err != nil:
		t.Fatal(err)
	}
	if _, err := filelock.Open(path); !errors.Is(err, filelock.ErrLocked) {
		t.Errorf("while it is locked: %v, want %v", err, filelock.ErrLocked)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := filelock.Open(path)
	if err != nil {
		t.Fatalf("after it was closed: %v", err)
	}
	_ = second.Close()
	if _, err := filelock.Open(filepath.Join(path, "none")); err == nil || errors.Is(err, filelock.ErrLocked) {
		t.Errorf("below a file: %v", err)
	}
}
