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

// sizes are the sizes of the tasks in the damaged file. Large ones are stored in parts.
var sizes = []int{0, 10, 300, 3000, 300, 10, 16 << 10, 5000, 300, 1, 70_000}

// undamagedFile returns a file with tasks, some of them done and some deleted.
func undamagedFile(t testing.TB) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tasks.db")
	s, err := bolt.OpenTasks(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, size := range sizes {
		r := task(fmt.Sprint("task", i), size)
		r.Done = i%3 == 0
		deleted := task(fmt.Sprint("deleted", i), size)
		if err := errors.Join(s.Create(t.Context(), r), s.Create(t.Context(), deleted)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range sizes {
		if err := s.Delete(t.Context(), "alice", fmt.Sprint("deleted", i)); err != nil {
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

// useDamaged opens a file and calls all methods. They must return, and return either unchanged
// records or errors. It reports whether a call failed.
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
	note := func(err error) { damaged = damaged || err != nil }
	for i, size := range sizes {
		id := fmt.Sprint("task", i)
		r, err := s.Get(ctx, "alice", id)
		note(err)
		if want := task(id, size); err == nil && (!bytes.Equal(r.Data, want.Data) || !r.Created.Equal(noon) ||
			r.Version != 1) {
			t.Errorf("Get of %s returned other data than was written, and no error", id)
		}
	}
	list, err := s.List(ctx, "alice", tasks.Cursor{}, 100)
	damaged = damaged || len(list) != len(sizes)
	note(err)
	for _, err := range s.Unfinished(ctx) {
		note(err)
	}
	note(s.Create(ctx, task("new", 1000)))
	note(s.Update(ctx, task("task1", 100_000)))
	note(s.Delete(ctx, "alice", "task2"))
	_, err = s.DeleteExpired(ctx, noon.Add(time.Hour), 100)
	note(err)
	_, _, err = s.CountAll(ctx)
	note(err)
	note(s.Close())
	return damaged
}

// checkReopens checks that a failed Open released the file.
func checkReopens(t *testing.T, path string) {
	t.Helper()
	if _, err := bolt.OpenTasks(path, &bolt.Options{Wait: -1}); errors.Is(err, bolt.ErrInUse) {
		t.Errorf("Open after a failed Open: %v, want the file not in use", err)
	}
}

func TestDamagedFilesAreErrors(t *testing.T) {
	file := undamagedFile(t)
	if useDamaged(t, file) {
		t.Fatal("a call failed with the undamaged file")
	}
	page := os.Getpagesize()
	for n := 0; n < len(file)-1; n += page / 2 {
		if n == 0 {
			continue // an empty file is a new store
		}
		if !useDamaged(t, file[:n:n]) && n < len(file)/2 {
			t.Errorf("no call failed with the first %d of %d bytes of the file", n, len(file))
		}
	}
}

// damageTime is the time limit of the child process of TestDamagedPages.
const damageTime = 30 * time.Second

// TestDamagedPages runs in a child process, because bbolt trusts the offsets and sizes in pages. A
// damaged one can make the runtime end the process, or make bbolt allocate gigabytes, which takes
// long (see docs/rough-edges.md). The test accepts these outcomes and success.
func TestDamagedPages(t *testing.T) {
	if os.Getenv("PATCHBAY_DAMAGE") != "" {
		damagePages(t)
		return
	}
	args := []string{"-test.run=^TestDamagedPages$", "-test.v", fmt.Sprint("-test.short=", testing.Short())}
	ctx, cancel := context.WithTimeout(t.Context(), damageTime)
	defer cancel()
	child := exec.CommandContext(ctx, os.Args[0], args...)
	// A process that is killed does not remove its files, which may be large. A pointer outside of a
	// damaged page may point to memory that another goroutine has written, which the race detector
	// would report.
	dir := t.TempDir()
	child.Env = append(os.Environ(), "PATCHBAY_DAMAGE=1", "TMPDIR="+dir, "TMP="+dir, "GORACE=report_bugs=0")
	out, err := child.CombinedOutput()
	switch {
	case err == nil && bytes.Contains(out, []byte("--- PASS: TestDamagedPages")):
	case endedByMemory.Match(out):
		t.Logf("the runtime ended the process: %v", err)
	case ctx.Err() != nil:
		t.Logf("the process was killed after %v", damageTime)
	default:
		t.Errorf("the process failed: %v\n%s\n…\n%s", err, out[:min(1000, len(out))], out[max(0, len(out)-2000):])
	}
}

// endedByMemory matches the known errors of the runtime after bbolt has computed pointers from
// damaged pages. The last two are from builds with the race detector: the first is a check of
// package unsafe, which only bbolt uses, and the second occurs when the detector reads such a
// pointer.
var endedByMemory = regexp.MustCompile(`(?m)^fatal error: (found bad pointer in Go heap|` +
	`found pointer to free object|checkptr: |traceback did not unwind completely)|zombie`)

func damagePages(t *testing.T) {
	file, page := undamagedFile(t), os.Getpagesize()
	failed := 0
	for n := 0; n+page <= len(file); n += page {
		if len(bytes.Trim(file[n:n+page], "\x00")) == 0 {
			continue // an unused page
		}
		for _, with := range []byte{0x00, 0xff} {
			changed := bytes.Clone(file)
			copy(changed[n:], bytes.Repeat([]byte{with}, page))
			if useDamaged(t, changed) {
				failed++
			}
		}
	}
	t.Logf("%d damaged pages made a call fail", failed)
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
			t.Errorf("Get of the damaged %s: %v, want ErrDamaged with its ID", id, err)
		}
	}
	if r, err := s.Get(ctx, "alice", "task2"); err != nil || string(r.Data) != string(task("task2", 100).Data) {
		t.Errorf("Get of the undamaged task2 = %q, %v, want its data", r.Data, err)
	}
	// A list has the other records, and an entry for the damaged one.
	list, err := s.List(ctx, "alice", tasks.Cursor{}, 10)
	if err != nil || len(list) != 4 {
		t.Fatalf("%d tasks are listed, %v; want 4", len(list), err)
	}
	for _, r := range list {
		if ok := r.ID == "task2"; ok != (len(r.Data) > 0) || r.Owner != "alice" || !r.Created.Equal(noon) {
			t.Errorf("listed as %+v, want its owner and time, and data only of task2", r)
		}
	}
	damaged := map[string]bool{}
	for r, err := range s.Unfinished(ctx) {
		damaged[r.ID] = errors.Is(err, bolt.ErrDamaged)
	}
	if len(damaged) != 3 || !damaged["task0"] || !damaged["large"] || damaged["task2"] {
		t.Errorf("Unfinished returned %v, want task0 and large as damaged, task2 not", damaged)
	}
	// A damaged record that is done is deleted when it expires.
	if n, err := s.DeleteExpired(ctx, noon.Add(time.Hour), 10); n != 1 || err != nil {
		t.Errorf("DeleteExpired = %d, %v, want 1 for the damaged task1", n, err)
	}
	if _, err := s.Get(ctx, "alice", "task1"); !errors.Is(err, tasks.ErrUnknown) {
		t.Errorf("Get of an expired task: %v, want ErrUnknown", err)
	}
	// Damaged data can be replaced.
	if err := s.Update(ctx, large); err != nil {
		t.Errorf("Update of damaged data: %v", err)
	}
}

// Damage to the order of the keys must not make the iteration endless.
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
	// Only the index of unfinished tasks has the IDs without bytes between them.
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
		t.Errorf("got %d tasks and then %v, want %v", n, last, bolt.ErrDamaged)
	}
}

// A record under the ID of another task would give one principal the task of another.
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
		t.Errorf("Get of the record of one under the ID two: %v, want ErrDamaged", err)
	}
}

// FuzzRecord checks that arbitrary bytes are either an error or encode to the same bytes again.
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
			t.Errorf("got %v, want ErrDamaged", err)
		case err == nil && !bytes.Equal(again[5:], stored[5:]):
			t.Errorf("%x is encoded as %x", stored, again)
		}
	})
}

// FuzzFile overwrites or truncates a file at one offset and calls all methods.
func FuzzFile(f *testing.F) {
	file := undamagedFile(f)
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
