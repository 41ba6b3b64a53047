package bolt_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/bbolt"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/stores/bolt"
)

func TestFileIsOnlyForItsOwner(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no permission bits")
	}
	path := filepath.Join(t.TempDir(), "tasks.db")
	s, err := bolt.OpenTasks(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if mode := info.Mode().Perm(); mode != 0o600 {
		t.Errorf("the file has mode %04o, want 0600", mode)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := bolt.OpenTasks(path, nil); err == nil || !strings.Contains(err.Error(), "0640") {
		t.Errorf("OpenTasks of a file that the group may read: %v, want an error with its mode", err)
	}
	if os.Geteuid() != 0 {
		return // only root can give the file to another user
	}
	if err := errors.Join(os.Chmod(path, 0o600), os.Chown(path, 12345, -1)); err != nil {
		t.Fatal(err)
	}
	if _, err := bolt.OpenTasks(path, nil); err == nil || !strings.Contains(err.Error(), "owned by another user") {
		t.Errorf("OpenTasks of a file of another user: %v, want an error", err)
	}
}

func TestOtherFilesAreNotModified(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, fill func(tx *bbolt.Tx) error) string {
		path := filepath.Join(dir, name)
		db, err := bbolt.Open(path, 0o600, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(db.Update(fill), db.Close()); err != nil {
			t.Fatal(err)
		}
		return path
	}
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte(strings.Repeat("no database\n", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	authorization := filepath.Join(dir, "auth")
	if err := openAuthorization(t, authorization).Close(); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{
		"text file": text,
		"folder":    dir,
		"another database": write("other", func(tx *bbolt.Tx) error {
			_, err := tx.CreateBucket([]byte("other"))
			return err
		}),
		"later format": write("later", func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucket([]byte("format"))
			if err != nil {
				return err
			}
			return b.Put([]byte("format"), []byte("patchbay tasks store 2"))
		}),
		"authorization store": authorization,
	} {
		before, _ := os.ReadFile(path)
		s, err := bolt.OpenTasks(path, nil)
		if err == nil {
			_ = s.Close()
			t.Errorf("%s: OpenTasks returned no error", name)
			continue
		}
		if !strings.Contains(err.Error(), path) {
			t.Errorf("%s: got %v, want an error with the path", name, err)
		}
		if after, _ := os.ReadFile(path); string(after) != string(before) {
			t.Errorf("%s: the file was modified", name)
		}
	}
}

func TestFileCanBeOpenedOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tasks.db")
	open(t, path)
	for wait, want := range map[time.Duration]time.Duration{0: 10 * time.Second, time.Minute: time.Minute, -1: 0} {
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			_, err := bolt.OpenTasks(path, &bolt.Options{Wait: wait})
			if !errors.Is(err, bolt.ErrInUse) || !strings.Contains(err.Error(), path) {
				t.Errorf("second OpenTasks: %v, want ErrInUse with the path", err)
			}
			if waited := time.Since(begun); waited < want-time.Second || waited > want+time.Second {
				t.Errorf("with Wait %v OpenTasks waited %v, want %v", wait, waited, want)
			}
		})
	}
}

func TestClosedTaskStoreReturnsErrClosed(t *testing.T) {
	s, err := bolt.OpenTasks(filepath.Join(t.TempDir(), "tasks.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Create(t.Context(), task("task", 10)), s.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	_, got := s.Get(t.Context(), "alice", "task")
	_, listed := s.List(t.Context(), "alice", tasks.Cursor{}, 1)
	_, _, counted := s.CountAll(t.Context())
	_, expired := s.DeleteExpired(t.Context(), noon, 1)
	for method, err := range map[string]error{
		"Get": got, "List": listed, "Count": counted, "DeleteExpired": expired,
		"Create": s.Create(t.Context(), task("new", 1)), "Update": s.Update(t.Context(), task("task", 1)),
		"Delete": s.Delete(t.Context(), "alice", "task"),
	} {
		if !errors.Is(err, bolt.ErrClosed) {
			t.Errorf("%s returned %v, want ErrClosed", method, err)
		}
	}
	for _, err := range s.Unfinished(t.Context()) {
		if !errors.Is(err, bolt.ErrClosed) {
			t.Errorf("Unfinished returned %v, want ErrClosed", err)
		}
	}
}

func TestConcurrentTaskChangesShareCommits(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "tasks.db"))
	const n = 100
	before, begun := bolt.Commits(s), time.Now()
	for i := range n {
		if err := s.Create(t.Context(), task(fmt.Sprint("one", i), 300)); err != nil {
			t.Fatal(err)
		}
	}
	sequential, took := bolt.Commits(s)-before, time.Since(begun)
	if sequential != n {
		t.Errorf("%d sequential creations made %d transactions, want %d", n, sequential, n)
	}
	var all sync.WaitGroup
	before, begun = bolt.Commits(s), time.Now()
	release := bolt.Together(t, s, n) // else a change could end before the next one begins
	for i := range n {
		all.Go(func() {
			if err := s.Create(t.Context(), task(fmt.Sprint("all", i), 300)); err != nil {
				t.Error(err)
			}
		})
	}
	release()
	all.Wait()
	concurrent := bolt.Commits(s) - before
	t.Logf("%d creations: sequential %v in %d transactions, concurrent %v in %d", n, took, sequential,
		time.Since(begun), concurrent)
	if concurrent > n/4 {
		t.Errorf("%d concurrent creations made %d transactions, want at most %d", n, concurrent, n/4)
	}
	// A change without effect makes no commit.
	before = bolt.Commits(s)
	if err := s.Create(t.Context(), task("one0", 1)); !errors.Is(err, tasks.ErrConflict) {
		t.Errorf("Create of an existing task: %v, want ErrConflict", err)
	}
	if _, err := s.DeleteExpired(t.Context(), noon, 100); err != nil {
		t.Error(err)
	}
	if n := bolt.Commits(s) - before; n != 0 {
		t.Errorf("calls without changes made %d transactions, want 0", n)
	}
}

// A refused change must not affect others in the same commit.
func TestRefusedChangeDoesNotAffectOthers(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "tasks.db"))
	if err := s.Create(t.Context(), task("existing", 1)); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range 60 {
		all.Go(func() {
			var err, want error
			switch i % 3 {
			case 0:
				err = s.Create(t.Context(), task(fmt.Sprint("task", i), 10))
			case 1:
				err, want = s.Create(t.Context(), task("existing", 10)), tasks.ErrConflict
			case 2:
				err, want = s.Update(t.Context(), task("unknown", 10)), tasks.ErrUnknown
			}
			if !errors.Is(err, want) {
				t.Errorf("change %d returned %v, want %v", i, err, want)
			}
		})
	}
	all.Wait()
	if n, _, err := s.Count(t.Context(), "alice"); n != 21 || err != nil {
		t.Errorf("Count = %d, %v; want 21", n, err)
	}
}

func TestSpaceOfDeletedRecordsIsReused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tasks.db")
	s := open(t, path)
	var sizes []int64
	for range 20 {
		for i := range 20 {
			r := task(fmt.Sprint("task", i), 100_000)
			r.Done = true
			if err := s.Create(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		if n, err := s.DeleteExpired(t.Context(), noon.Add(time.Hour), 100); n != 20 || err != nil {
			t.Fatalf("DeleteExpired = %d, %v; want 20", n, err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		sizes = append(sizes, info.Size())
	}
	if first, last := sizes[1], sizes[len(sizes)-1]; last > 2*first {
		t.Errorf("the file grew from %d to %d bytes, want at most twice the size", first, last)
	}
	err := bolt.View(s, func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
			if n := b.Stats().KeyN; n != 0 && string(name) != "format" {
				t.Errorf("bucket %q has %d entries after all records were deleted, want 0", name, n)
			}
			return nil
		})
	})
	if err != nil {
		t.Error(err)
	}
}
