package bolt_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/stores/bolt"
)

var noon = time.Date(2026, 7, 28, 12, 0, 0, 0, time.UTC)

func task(id string, size int) tasks.Record {
	return tasks.Record{
		Owner: "alice", ID: id, Created: noon, Expires: noon.Add(time.Hour), Version: 1,
		Data: []byte(strings.Repeat(id, size/len(id)+1)[:size]),
	}
}

// sizes are the sizes of the tasks in the damaged file, some of them in parts.
var sizes = []int{0, 10, 300, 3000, 300, 10, 16 << 10, 5000, 300, 1, 70_000}

// wholeFile returns an undamaged file with tasks, some of them done and some deleted.
func wholeFile(t testing.TB) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tasks.db")
	s, err := bolt.OpenTasks(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, size := range sizes {
		r := task(fmt.Sprint("task", i), size)
		r.Done = i%3 == 0
		if err := errors.Join(s.Create(t.Context(), r), s.Create(t.Context(), task(fmt.Sprint("gone", i),
			size))); err != nil {
			t.Fatal(err)
		}
	}
	for i := range sizes {
		if err := s.Delete(t.Context(), "alice", fmt.Sprint("gone", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// useDamaged opens a file and calls all methods. They must return, and records must be unchanged or
// an error.
func useDamaged(t *testing.T, file []byte) (damaged bool) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tasks.db")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := bolt.OpenTasks(path, &bolt.Options{Wait: -1})
	if err != nil {
		checkReopens(t, path)
		return true
	}
	ctx := context.Background()
	see := func(err error) { damaged = damaged || err != nil }
	for i, size := range sizes {
		id := fmt.Sprint("task", i)
		r, err := s.Get(ctx, "alice", id)
		see(err)
		if want := task(id, size); err == nil && (!bytes.Equal(r.Data, want.Data) || !r.Created.Equal(noon) ||
			r.Version != 1) {
			t.Errorf("%s has other data than was written, and no error", id)
		}
	}
	list, err := s.List(ctx, "alice", tasks.Cursor{}, 100)
	damaged = damaged || len(list) != len(sizes)
	see(err)
	for _, err := range s.Unfinished(ctx) {
		see(err)
	}
	see(s.Create(ctx, task("new", 1000)))
	see(s.Update(ctx, task("task1", 100_000)))
	see(s.Delete(ctx, "alice", "task2"))
	_, err = s.DeleteExpired(ctx, noon.Add(time.Hour), 100)
	see(err)
	_, _, err = s.CountAll(ctx)
	see(err)
	see(s.Close())
	return damaged
}

// checkReopens checks that a failed Open released the file.
func checkReopens(t *testing.T, path string) {
	t.Helper()
	if _, err := bolt.OpenTasks(path, &bolt.Options{Wait: -1}); errors.Is(err, bolt.ErrInUse) {
		t.Errorf("after a failed Open: %v", err)
	}
}

func TestDamagedFilesAreErrors(t *testing.T) {
	file := wholeFile(t)
	if useDamaged(t, file) {
		t.Fatal("the whole file is damaged")
	}
	page := os.Getpagesize()
	for n := 0; n < len(file)-1; n += page / 2 {
		if n == 0 {
			continue // an empty file is a new one
		}
		if !useDamaged(t, file[:n:n]) && n < len(file)/2 {
			t.Errorf("a file of the first %d of %d bytes shows no damage", n, len(file))
		}
	}
}

// damageTime is the time limit of the child process of TestDamagedPages.
const damageTime = 30 * time.Second

// TestDamagedPages runs in a child process: bbolt trusts the offsets and sizes in pages, and a
// damaged one can make the runtime end the process, or make bbolt allocate gigabytes, which takes
// long (see docs/rough-edges.md). Only these outcomes are accepted.
func TestDamagedPages(t *testing.T) {
	if os.Getenv("PATCHBAY_DAMAGE") != "" {
		damagePages(t)
		return
	}
	args := []string{"-test.run=^TestDamagedPages$", "-test.v", fmt.Sprint("-test.short=", testing.Short())}
	ctx, cancel := context.WithTimeout(t.Context(), damageTime)
	defer cancel()
	child := exec.CommandContext(ctx, os.Args[0], args...)
	// A process that is ended leaves its files behind, which may be large.
	dir := t.TempDir()
	child.Env = append(os.Environ(), "PATCHBAY_DAMAGE=1", "TMPDIR="+dir, "TMP="+dir)
	out, err := child.CombinedOutput()
	switch {
	case err == nil && bytes.Contains(out, []byte("--- PASS: TestDamagedPages")):
	case endedByMemory.Match(out):
		t.Logf("the process was ended: %v", err)
	case ctx.Err() != nil:
		t.Logf("the process was ended after %v", damageTime)
	default:
		t.Errorf("%v\n%s\n…\n%s", err, out[:min(1000, len(out))], out[max(0, len(out)-2000):])
	}
}

// endedByMemory is how the runtime was seen to end a process in which bbolt has made pointers of
// what damaged pages say. The last two are said by builds with the race detector: of package
// unsafe, which this project does not use, and when the detector itself looks at such a pointer, on
// a stack that no panic finds its way out of.
var endedByMemory = regexp.MustCompile(`(?m)^fatal error: (found bad pointer in Go heap|found pointer to free object|checkptr: |` +
	`traceback did not unwind completely)|zombie`)

func damagePages(t *testing.T) {
	file, page := wholeFile(t), os.Getpagesize()
	seen := 0
	for n := 0; n+page <= len(file); n += page {
		if len(bytes.Trim(file[n:n+page], "\x00")) == 0 {
			continue // nothing is there yet
		}
		for _, with := range []byte{0x00, 0xff} {
			changed := bytes.Clone(file)
			copy(changed[n:], bytes.Repeat([]byte{with}, page))
			if useDamaged(t, changed) {
				seen++
			}
		}
	}
	t.Logf("%d of the damages to a page showed", seen)
	random := rand.New(rand.NewPCG(1, 2))
	changes := 200
	if testing.Short() {
		changes = 20
	}
	for range changes {
		changed := bytes.Clone(file)
		for range 1 + random.IntN(20) {
			changed[random.IntN(len(changed))] = byte(random.Uint32())
		}
		useDamaged(t, changed)
	}
}

func TestDamagedRecordDoesNotAffectOthers(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "tasks.db"))
	ctx := t.Context()
	for i, done := range []bool{false, true, false} {
		r := task(fmt.Sprint("task", i), 100)
		r.Done = done
		if err := s.Create(ctx, r); err != nil {
			t.Fatal(err)
		}
	}
	large := task("large", 200_000)
	if err := s.Create(ctx, large); err != nil {
		t.Fatal(err)
	}
	flip := func(bucket, key string, at int) {
		err := bolt.Change(s, func(tx *bbolt.Tx) error {
			b := tx.Bucket([]byte(bucket))
			stored := bytes.Clone(b.Get([]byte(key)))
			stored[at] ^= 1
			return b.Put([]byte(key), stored)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	flip("tasks", "task0", 10)
	flip("tasks", "task1", 60)
	flip("parts", "large/\x00\x00\x00\x01", 5)
	for _, id := range []string{"task0", "task1", "large"} {
		if _, err := s.Get(ctx, "alice", id); !errors.Is(err, bolt.ErrDamaged) || !strings.Contains(err.Error(), id) {
			t.Errorf("%s, which is damaged, returned %v", id, err)
		}
	}
	if r, err := s.Get(ctx, "alice", "task2"); err != nil || string(r.Data) != string(task("task2", 100).Data) {
		t.Errorf("task2, which is whole, returned %v", err)
	}
	// A list has the other records, and an entry for the damaged one.
	list, err := s.List(ctx, "alice", tasks.Cursor{}, 10)
	if err != nil || len(list) != 4 {
		t.Fatalf("%d tasks are listed, %v; want 4", len(list), err)
	}
	for _, r := range list {
		if whole := r.ID == "task2"; whole != (len(r.Data) > 0) || r.Owner != "alice" || !r.Created.Equal(noon) {
			t.Errorf("listed as %+v", r)
		}
	}
	broken := map[string]bool{}
	for r, err := range s.Unfinished(ctx) {
		broken[r.ID] = errors.Is(err, bolt.ErrDamaged)
	}
	if len(broken) != 3 || !broken["task0"] || !broken["large"] || broken["task2"] {
		t.Errorf("unfinished returned %v, want task0 and large as damaged, task2 not", broken)
	}
	// A damaged record that is done is deleted when it expires.
	if n, err := s.DeleteExpired(ctx, noon.Add(time.Hour), 10); n != 1 || err != nil {
		t.Errorf("%d, %v expired, want the damaged task1", n, err)
	}
	if _, err := s.Get(ctx, "alice", "task1"); !errors.Is(err, tasks.ErrUnknown) {
		t.Errorf("an expired task returned %v", err)
	}
	// Damaged data can be replaced.
	if err := s.Update(ctx, large); err != nil {
		t.Errorf("update of damaged data: %v", err)
	}
}

// Damage to the order of the keys must not make the iteration start over again and again.
func TestUnfinishedEndsIfIDsAreOutOfOrder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tasks.db")
	s, err := bolt.OpenTasks(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"task-one", "task-six", "task-two"} {
		if err := s.Create(t.Context(), task(id, 10)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// Only the index of unfinished tasks has the ids without anything between them.
	file = bytes.ReplaceAll(file, []byte("task-onetask-sixtask-two"), []byte("task-onetask-sixtask-abc"))
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	n := 0
	var last error
	for _, err := range open(t, path).Unfinished(t.Context()) {
		if last = err; n == 100 {
			break
		}
		n++
	}
	if n == 100 || !errors.Is(last, bolt.ErrDamaged) {
		t.Errorf("%d tasks and then %v, want %v", n, last, bolt.ErrDamaged)
	}
}

// A header under the ID of another task would give one principal the task of another.
func TestRecordUnderAnotherIDIsDamaged(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "tasks.db"))
	if err := errors.Join(s.Create(t.Context(), task("one", 10)), s.Create(t.Context(), task("two", 10))); err != nil {
		t.Fatal(err)
	}
	err := bolt.Change(s, func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte("tasks"))
		return b.Put([]byte("two"), bytes.Clone(b.Get([]byte("one"))))
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), "alice", "two"); !errors.Is(err, bolt.ErrDamaged) {
		t.Errorf("one's record under two's id returned %v", err)
	}
}

// FuzzRecord decodes arbitrary bytes: they are refused, or encode to the same bytes again.
func FuzzRecord(f *testing.F) {
	for _, size := range []int{0, 1, 300, 20_000} {
		r := task("task", size)
		r.Done = size > 0
		stored, _ := bolt.Encode(r)
		f.Add("task", stored)
	}
	f.Add("", []byte{})
	f.Fuzz(func(t *testing.T, id string, stored []byte) {
		again, err := bolt.Reencode(id, bytes.Clone(stored))
		switch {
		case err != nil && !errors.Is(err, bolt.ErrDamaged):
			t.Errorf("the error is %v", err)
		case err == nil && !bytes.Equal(again[5:], stored[5:]):
			t.Errorf("read %x, would write %x", stored, again)
		}
	})
}

// FuzzFile damages a file at one place and calls all methods.
func FuzzFile(f *testing.F) {
	file := wholeFile(f)
	f.Add(uint32(0), []byte{1}, false)
	f.Add(uint32(4096*3), []byte{0xff, 0xff}, false)
	f.Add(uint32(4096*5), []byte{}, true)
	f.Fuzz(func(t *testing.T, at uint32, with []byte, cut bool) {
		changed := bytes.Clone(file)
		n := int(at) % len(changed)
		copy(changed[n:], with)
		if cut {
			changed = changed[:n]
		}
		useDamaged(t, changed)
	})
}
