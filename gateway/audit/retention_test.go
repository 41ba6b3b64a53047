package audit_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/audit"
	"github.com/patchbay-mcp/patchbay/gateway/internal/filelock"
	"github.com/patchbay-mcp/patchbay/host/event"
)

const day = 24 * time.Hour

// Segments are removed when their signed checkpoints are old. The modification times of files do not
// count: the test makes them old.
func TestRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, paths, lines := sampleOver(t, 10*day) // the last segment ends on day 70
		old := time.Now().Add(-1000 * day)
		for _, path := range paths {
			if err := os.Chtimes(path, old, old); err != nil {
				t.Fatal(err)
			}
		}
		closeLog(t, open(t, testOptions(dir)))
		if got := len(files(t, dir)); got < len(paths) {
			t.Fatalf("%d segments of %d are left, but none is old", got, len(paths))
		}
		time.Sleep(35 * day) // day 115: segments that end before day 25 are old
		closeLog(t, open(t, testOptions(dir)))
		for i, path := range paths {
			if _, err := os.Stat(path); (err == nil) != (i >= 3) {
				t.Errorf("segment %d: %v", i+1, err)
			}
		}
		removed := uint64(len(lines[0]) + len(lines[1]) + len(lines[2]))
		if chains := verify(t, dir); chains[0].Removed != removed {
			t.Errorf("%d records removed, want %d", chains[0].Removed, removed)
		}
		// The record of the removal does not hide the removal of another segment.
		if err := os.Remove(paths[3]); err != nil {
			t.Fatal(err)
		}
		if p := problem(t, dir); p == nil || p.Kind != audit.ProblemRemoved || p.Seq != removed+1 {
			t.Errorf("another segment removed: %v, want record %d", p, removed+1)
		}
	})
}

func TestRetentionKeepsWhatIsNotSigned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, paths, lines := sample(t)
		time.Sleep(day) // so that the next chain is the newest one, which is continued
		last := len(paths) - 1
		write(t, paths[last], lines[last][:len(lines[last])-1]...) // its process was killed before the checkpoint
		heads, _ := filepath.Glob(filepath.Join(dir, "*.head"))
		for _, path := range heads {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
		locked, err := filelock.Open(strings.TrimSuffix(heads[0], ".head") + ".lock") // so that it is not continued
		if err != nil {
			t.Fatal(err)
		}
		l := open(t, testOptions(dir))
		closeLog(t, l)
		locked.Close()
		time.Sleep(100 * day)
		closeLog(t, open(t, testOptions(dir)))
		for _, path := range paths {
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%v: want it to be kept: no checkpoint is stored for it", err)
			}
		}
	})
}

// sizeOf returns the size of all segments.
func sizeOf(t *testing.T, dir string) (size int64) {
	t.Helper()
	for _, path := range files(t, dir) {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
	}
	return size
}

// A log that has reached its maximum size removes its oldest segments, and records each removal in a signed record.
func TestOldestSegmentsMakeRoom(t *testing.T) {
	const most = 32 << 10
	dir := t.TempDir()
	o := testOptions(dir)
	o.MaxSize = most
	const records = 400
	for n := 0; n < records; n += 4 {
		l := open(t, o)
		record(t, l, call(n), call(n+1), call(n+2), call(n+3))
		closeLog(t, l)
		if got := sizeOf(t, dir); got > most+8<<10 {
			t.Fatalf("after %d records the log has %d bytes, want about %d", n, got, most)
		}
	}
	chains := verify(t, dir)
	last, removals := "", 0
	for _, e := range readAll(t, dir) {
		if e.Event == "retention" && strings.Contains(string(e.Raw), `"reason":"size"`) {
			removals++
		}
		if e.Event == string(event.End) {
			last = e.ID
		}
	}
	if len(chains) != 1 || chains[0].Removed == 0 || removals == 0 || last != "call-399" {
		t.Errorf("%d chains, %d records removed, %d records of removals, the last call is %s", len(chains), chains[0].Removed,
			removals, last)
	}
}

// With Strict, no segment is removed before Keep has passed: requests are refused until segments are
// old enough.
func TestStrictLogRefusesAtItsSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		o := testOptions(dir)
		o.MaxSize, o.Strict, o.Sync = 16<<10, true, audit.SyncRecord
		l := open(t, o)
		intent := call(1)
		intent.Event = event.Intent
		accepted := 0
		var err error
		for accepted < 1000 {
			if err = l.Record(intent); err != nil {
				break
			}
			accepted++
		}
		var store *audit.StoreError
		if !errors.As(err, &store) || !strings.Contains(err.Error(), "maximum size") || accepted < 10 {
			t.Fatalf("after %d intents: %v, want a StoreError", accepted, err)
		}
		intents := 0
		for _, e := range readAll(t, dir) {
			if e.Event == string(event.Intent) {
				intents++
			}
		}
		if chains := verify(t, dir); intents != accepted || chains[0].Removed != 0 {
			t.Errorf("%d intents are in the log, want %d; %d records are removed", intents, accepted, chains[0].Removed)
		}
		time.Sleep(91 * day)
		if err := l.Record(intent); err != nil {
			t.Errorf("when segments are old: %v", err)
		}
		closeLog(t, l)
		if chains := verify(t, dir); chains[0].Removed == 0 {
			t.Error("no segment was removed")
		}
	})
}

// If no segment can be removed because another process writes the only segment, records wait, and no
// record is lost.
func TestRecordsWaitForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		first := open(t, testOptions(dir))
		for n := range 40 {
			record(t, first, call(n))
		}
		time.Sleep(time.Second)
		o := testOptions(dir)
		o.MaxSize = 8 << 10
		second := open(t, o)
		record(t, second, call(100))
		time.Sleep(5 * time.Second)
		if waiting, lost := second.Backlog(); second.Err() == nil || waiting != 1 || lost != 0 {
			t.Errorf("%v, %d records wait, %d are lost, want 1 that waits", second.Err(), waiting, lost)
		}
		closeLog(t, first)
		time.Sleep(5 * time.Second)
		if waiting, lost := second.Backlog(); second.Err() != nil || waiting != 0 || lost != 0 {
			t.Errorf("with room: %v, %d records wait, %d are lost", second.Err(), waiting, lost)
		}
		closeLog(t, second)
		verify(t, dir)
	})
}
