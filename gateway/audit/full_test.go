package audit_test

import (
	"encoding/json"
	"errors"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/audit"
	"github.com/patchbay-mcp/patchbay/host/event"
)

// A fullDisk makes writes fail after some bytes, part of which are written.
type fullDisk struct {
	mu   sync.Mutex // guards the fields below
	left int        // bytes; negative for no limit
	err  error
}

func (d *fullDisk) create(path string) (audit.File, error) {
	f, err := audit.CreateOnDisk(path)
	if err != nil {
		return nil, err
	}
	return &fullFile{f, d}, nil
}

func (d *fullDisk) set(left int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left, d.err = left, err
}

type fullFile struct {
	audit.File
	disk *fullDisk
}

func (f *fullFile) Write(b []byte) (int, error) {
	d := f.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err == nil {
		return f.File.Write(b)
	}
	n, _ := f.File.Write(b[:min(len(b), d.left)])
	d.left -= n
	return n, d.err
}

func intent(n int) *event.Record {
	r := call(n)
	r.Event, r.Result = event.Intent, nil
	return r
}

// While the disk is full, a strict log refuses intents. Other records are written when it is not.
func TestFullDisk(t *testing.T) {
	for _, reason := range []error{syscall.ENOSPC, syscall.EROFS, syscall.EIO} {
		dir, disk := t.TempDir(), &fullDisk{}
		o := testOptions(dir)
		o.Sync, o.Strict = audit.SyncRecord, true
		l := open(t, audit.WithFiles(o, disk.create))
		record(t, l, intent(1), call(1))
		for left := range 5 {
			disk.set(left*100, reason)
			err := l.Record(intent(2))
			if failed, ok := errors.AsType[*audit.StoreError](err); !ok || failed.Dir != dir || !errors.Is(err, reason) {
				t.Errorf("%v: got %v, want a StoreError", reason, err)
			}
		}
		record(t, l, call(2)) // it is kept
		if err := l.Record(intent(3)); err == nil || l.Err() == nil {
			t.Errorf("%v: got %v and %v, want that it still fails", reason, err, l.Err())
		}
		disk.set(-1, nil)
		record(t, l, intent(4))
		closeLog(t, l)
		verify(t, dir)
		var got []string
		for _, e := range readAll(t, dir) {
			if e.ID != "" {
				got = append(got, e.Event+" "+e.ID)
			}
		}
		if want := "intent call-1, end call-1, end call-2, intent call-4"; strings.Join(got, ", ") != want {
			t.Errorf("%v: got %q, want %s", reason, got, want)
		}
	}
}

// What does not fit into memory is counted.
func TestDroppedRecordsAreCounted(t *testing.T) {
	dir, disk := t.TempDir(), &fullDisk{}
	const queue, more = 500, 1000
	l := open(t, audit.WithFiles(audit.WithQueue(testOptions(dir), queue), disk.create))
	disk.set(0, syscall.ENOSPC)
	record(t, l, call(0)) // with which the writer fails
	for l.Err() == nil {
		runtime.Gosched()
	}
	dropped := 0
	for n := range queue + more {
		if err := l.Record(call(n)); errors.Is(err, audit.ErrFull) {
			dropped++
		}
	}
	if waiting, lost := l.Backlog(); waiting < queue || lost < uint64(dropped) {
		t.Errorf("%d records wait and %d are lost, want at least %d and %d", waiting, lost, queue, dropped)
	}
	disk.set(-1, nil)
	closeLog(t, l)
	verify(t, dir)
	calls, counted := 0, 0
	for _, e := range readAll(t, dir) {
		switch e.Event {
		case "end":
			calls++
		case "dropped":
			var d struct{ Records int }
			if err := json.Unmarshal(e.Detail, &d); err != nil {
				t.Error(err)
			}
			counted += d.Records
		}
	}
	if dropped == 0 || counted < dropped || calls+counted != queue+more+1 {
		t.Errorf("%d calls, %d recorded as dropped, %d refused, want all of them", calls, counted, dropped)
	}
	if waiting, lost := l.Backlog(); waiting != 0 || lost != uint64(counted) {
		t.Errorf("%d records wait and %d are lost after the end, want none and %d", waiting, lost, counted)
	}
}

func TestReadOnlyFolder(t *testing.T) {
	file := t.TempDir() + "/file"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := audit.Open(testOptions(file + "/log")); err == nil {
		t.Error("opened a log below a file")
	}
	if os.Geteuid() == 0 {
		t.Skip("root writes to read-only folders")
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	_, err := audit.Open(testOptions(dir))
	if _, ok := errors.AsType[*audit.StoreError](err); !ok {
		t.Errorf("got %v, want a StoreError", err)
	}
}
