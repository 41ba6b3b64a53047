package bolt_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/patchbay-mcp/patchbay/stores/bolt"
)

// fillState writes to a state that must not grow beyond a size, until a change is refused. It prints
// how many were confirmed.
func fillState(path string) {
	limit := syscall.Rlimit{Cur: 256 << 10, Max: 256 << 10}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		fmt.Println(err)
		return
	}
	s, err := bolt.OpenState(path, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(fill(s))
}

// fill returns how many entries were written before one had no room.
func fill(s *bolt.StateStore) string {
	for n := 0; ; n++ {
		err := s.CompareAndSet(context.Background(), "pins", fmt.Sprint(n), 0, bytes.Repeat([]byte{'x'}, 20_000))
		switch {
		case errors.Is(err, bolt.ErrFull):
			return fmt.Sprint(n)
		case err != nil || n > 1000:
			return fmt.Sprintf("entry %d: %v, want ErrFull", n, err)
		}
	}
}

// checkFilled tests that all confirmed entries are there.
func checkFilled(t *testing.T, s *bolt.StateStore, confirmed string) {
	t.Helper()
	n := 0
	for e, err := range s.List(t.Context(), "pins") {
		if err != nil || len(e.Value) != 20_000 {
			t.Fatalf("entry %s: %d bytes, %v", e.Key, len(e.Value), err)
		}
		n++
	}
	if fmt.Sprint(n) != confirmed || n == 0 {
		t.Errorf("%d entries, want the %s that were confirmed", n, confirmed)
	}
}

func TestStateBeyondSizeLimit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	child, lines := startChild(t, stateFillerVariable, path)
	lines.Scan()
	confirmed := lines.Text()
	_ = child.Wait()
	s := openState(t, path)
	checkFilled(t, s, confirmed)
	mustSet(t, s, "pins", "more", string(make([]byte, 20_000))) // without the limit
}

func TestStateOnFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Skip("mounting a disk needs root: ", err)
	}
	defer func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) }()
	s := openState(t, filepath.Join(dir, "state.db"))
	checkFilled(t, s, fill(s))
}

func TestStateOnReadOnlyDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skip("mounting a disk needs root: ", err)
	}
	defer func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) }()
	s := openState(t, filepath.Join(dir, "state.db"))
	mustSet(t, s, "pins", "a", "1")
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	checkReadOnly(t, s)
	empty := openState(t, filepath.Join(dir, "new", "state.db"))
	if err := empty.CompareAndSet(t.Context(), "a", "b", 0, []byte{}); !errors.Is(err, bolt.ErrReadOnly) {
		t.Errorf("a new file: %v, want ErrReadOnly", err)
	}
	if err := os.Remove(filepath.Join(dir, "state.db")); err == nil {
		t.Error("the disk can be written")
	}
}
