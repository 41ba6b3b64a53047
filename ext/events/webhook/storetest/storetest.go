// Package storetest tests implementations of [webhook.Store].
//
// A test of an implementation calls [Run], or [RunLasting] if its records outlive the process:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(*testing.T) webhook.Store { return webhook.NewMemory() })
//	}
package storetest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/patchbay-mcp/patchbay/ext/events/webhook"
)

// Run tests that a store fulfils the contract of [webhook.Store], with a subtest for each clause.
// open returns a new empty store for each of them. A store that implements [io.Closer] is closed at
// the end of its subtest.
func Run(t *testing.T, open func(t *testing.T) webhook.Store) {
	for _, c := range []struct {
		name  string
		check func(t *testing.T, s webhook.Store)
	}{
		{"All returns the records that Put added", checkPut},
		{"Delete removes a record", checkDelete},
		{"Data may have any size up to MaxRecord", checkSizes},
		{"an invalid record is not stored", checkRefused},
		{"Data is copied", checkCopies},
		{"the loop body may call the store", checkLoop},
		{"a context that ended changes nothing", checkContext},
		{"all methods may be called concurrently", checkConcurrent},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := open(t)
			defer end(t, s)
			c.check(t, s)
		})
	}
}

// RunLasting calls [Run], and tests that the store is durable and that records survive when it is
// closed and opened again. Stores that open returns for the same dir must contain the same records;
// a store is closed before the next is opened. dir is an empty directory at first; a store that
// keeps its records elsewhere uses it as a name.
func RunLasting(t *testing.T, open func(t *testing.T, dir string) webhook.Store) {
	Run(t, func(t *testing.T) webhook.Store { return open(t, t.TempDir()) })
	t.Run("records survive closing and opening", func(t *testing.T) {
		dir := t.TempDir()
		s := open(t, dir)
		if !s.Durable() {
			t.Error("Durable returned false, want true")
		}
		put(t, s, "sub_1", "one")
		put(t, s, "sub_2", "two")
		put(t, s, "sub_2", "three")
		put(t, s, "sub_3", "four")
		remove(t, s, "sub_3")
		end(t, s)
		s = open(t, dir)
		defer end(t, s)
		want(t, s, map[string]string{"sub_1": "one", "sub_2": "three"})
	})
}

func end(t *testing.T, s webhook.Store) {
	t.Helper()
	c, ok := s.(io.Closer)
	if !ok {
		return
	}
	if err := c.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

func put(t *testing.T, s webhook.Store, id, data string) {
	t.Helper()
	if err := s.Put(t.Context(), webhook.Record{ID: id, Data: []byte(data)}); err != nil {
		t.Errorf("Put of %s: %v", id, err)
	}
}

func remove(t *testing.T, s webhook.Store, id string) {
	t.Helper()
	if err := s.Delete(t.Context(), id); err != nil {
		t.Errorf("Delete of %s: %v", id, err)
	}
}

func want(t *testing.T, s webhook.Store, records map[string]string) {
	t.Helper()
	n := 0
	for r, err := range s.All(t.Context()) {
		data, ok := records[r.ID]
		if err != nil || !ok || string(r.Data) != data {
			t.Errorf("All returned %q with %.40q, %v; want %.40q", r.ID, r.Data, err, data)
		}
		n++
	}
	if n != len(records) {
		t.Errorf("All returned %d records, want %d", n, len(records))
	}
}

func checkPut(t *testing.T, s webhook.Store) {
	want(t, s, nil)
	put(t, s, "sub_1", "one")
	put(t, s, "sub_2", "two")
	want(t, s, map[string]string{"sub_1": "one", "sub_2": "two"})
	put(t, s, "sub_1", "three")
	want(t, s, map[string]string{"sub_1": "three", "sub_2": "two"})
}

func checkDelete(t *testing.T, s webhook.Store) {
	put(t, s, "sub_1", "one")
	put(t, s, "sub_12", "two")
	remove(t, s, "sub_1")
	want(t, s, map[string]string{"sub_12": "two"})
	remove(t, s, "sub_1")
	remove(t, s, "")
	put(t, s, "sub_1", "three")
	want(t, s, map[string]string{"sub_1": "three", "sub_12": "two"})
}

func checkSizes(t *testing.T, s webhook.Store) {
	records := map[string]string{}
	for _, n := range []int{0, 1, 4 << 10, 60_000, webhook.MaxRecord} {
		id := fmt.Sprint("sub_", n)
		records[id] = strings.Repeat("\x00x", n)[:n]
		put(t, s, id, records[id])
	}
	want(t, s, records)
}

func checkRefused(t *testing.T, s webhook.Store) {
	for _, r := range []webhook.Record{
		{ID: ""}, {ID: "sub/1"}, {ID: "sub 1"}, {ID: "s\u00fcb"}, {ID: strings.Repeat("x", 65)},
		{ID: "sub_1", Data: make([]byte, webhook.MaxRecord+1)},
	} {
		if err := s.Put(t.Context(), r); err == nil {
			t.Errorf("Put of %.20q with %d bytes succeeded, want an error", r.ID, len(r.Data))
		}
	}
	put(t, s, strings.Repeat("x", 64), "one")
	want(t, s, map[string]string{strings.Repeat("x", 64): "one"})
}

func checkCopies(t *testing.T, s webhook.Store) {
	data := []byte("one")
	if err := s.Put(t.Context(), webhook.Record{ID: "sub_1", Data: data}); err != nil {
		t.Fatal(err)
	}
	copy(data, "two")
	for r, err := range s.All(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		copy(r.Data, "two")
	}
	want(t, s, map[string]string{"sub_1": "one"})
}

func checkLoop(t *testing.T, s webhook.Store) {
	for n := range 5 {
		put(t, s, fmt.Sprint("sub_", n), "one")
	}
	for r, err := range s.All(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		put(t, s, r.ID, "two")
		if r.ID == "sub_3" {
			remove(t, s, r.ID)
		}
	}
	want(t, s, map[string]string{"sub_0": "two", "sub_1": "two", "sub_2": "two", "sub_4": "two"})
	for _, err := range s.All(t.Context()) {
		if err != nil {
			t.Error(err)
		}
		break
	}
}

func checkContext(t *testing.T, s webhook.Store) {
	put(t, s, "sub_1", "one")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	changed := s.Put(ctx, webhook.Record{ID: "sub_1", Data: []byte("two")}) == nil
	deleted := s.Delete(ctx, "sub_1") == nil
	if !changed && !deleted {
		want(t, s, map[string]string{"sub_1": "one"})
	}
	for _, err := range s.All(ctx) {
		if err == nil {
			return // a store may ignore the context
		}
	}
}

func checkConcurrent(t *testing.T, s webhook.Store) {
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			id := fmt.Sprint("sub_", worker)
			for n := range 10 {
				put(t, s, id, fmt.Sprint(n))
				put(t, s, "sub_shared", strings.Repeat(fmt.Sprint(worker), 1000))
				for r, err := range s.All(t.Context()) {
					if err != nil || len(r.Data) > 1 && !bytes.Equal(r.Data, bytes.Repeat(r.Data[:1], 1000)) {
						t.Errorf("All returned %q with %.20q, %v; want a whole record", r.ID, r.Data, err)
					}
				}
			}
			remove(t, s, id)
		})
	}
	all.Wait()
	n := 0
	for _, err := range s.All(t.Context()) {
		if n++; err != nil {
			t.Error(err)
		}
	}
	if n != 1 {
		t.Errorf("All returned %d records, want the shared record", n)
	}
}
