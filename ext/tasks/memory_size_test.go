package tasks_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
)

func heapInUse() int {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc)
}

// A record costs little beside its data, and no operation grows with the number of records of an owner.
func TestMemoryStaysSmallAndFast(t *testing.T) {
	const n, data = 100_000, 300
	s, noon := tasks.NewMemory(), time.Date(2026, 7, 28, 12, 0, 0, 0, time.UTC)
	record := func(i int) tasks.Record {
		return tasks.Record{
			Owner: "alice", ID: fmt.Sprintf("task-%021d", i*7919%n), Created: noon.Add(time.Duration(i*31%n) * time.Millisecond),
			Expires: noon.Add(time.Hour), Version: 1, Done: true, Data: make([]byte, data),
		}
	}
	before, begun := heapInUse(), time.Now()
	for i := range n {
		if err := s.Create(t.Context(), record(i)); err != nil {
			t.Fatal(err)
		}
	}
	created := time.Since(begun)
	perRecord := (heapInUse()-before)/n - data
	if perRecord > 600 {
		t.Errorf("a record takes %d bytes beside its data, want up to 600", perRecord)
	}
	for _, op := range []struct {
		what string
		call func(ctx context.Context, r tasks.Record) error
	}{
		{"get", func(ctx context.Context, r tasks.Record) error { _, err := s.Get(ctx, "alice", r.ID); return err }},
		{"update", s.Update},
		{"list", func(ctx context.Context, r tasks.Record) error {
			got, err := s.List(ctx, "alice", tasks.Cursor{Created: r.Created, ID: r.ID}, 1)
			if err == nil && len(got) == 1 && !got[0].Created.After(r.Created) {
				err = fmt.Errorf("%v is listed behind %v", got[0].Created, r.Created)
			}
			return err
		}},
		{"delete", func(ctx context.Context, r tasks.Record) error { return s.Delete(ctx, "alice", r.ID) }},
	} {
		begun := time.Now()
		for i := 0; i < n; i += 10 {
			if err := op.call(t.Context(), record(i)); err != nil {
				t.Fatalf("%s: %v", op.what, err)
			}
		}
		// A descent takes microseconds, a walk through the records milliseconds.
		each := time.Since(begun) / (n / 10)
		if t.Logf("%s: %v", op.what, each); each > time.Millisecond {
			t.Errorf("%s takes %v with %d records of one owner", op.what, each, n)
		}
	}
	t.Logf("create: %v; %d bytes for each record beside its data", created/n, perRecord)
}
