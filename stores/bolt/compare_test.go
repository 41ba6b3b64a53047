package bolt_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
)

// A step calls a store and returns all results.
type step func(ctx context.Context, s tasks.Store) []any

// randomStep returns a call with one of few owners and tasks, so that most calls find a record.
func randomStep(random *rand.Rand) (name string, call step) {
	owner := []string{"", "a", "a\x00b"}[random.IntN(3)]
	id := fmt.Sprint("task", random.IntN(40))
	r := tasks.Record{
		Owner: owner, ID: id, Created: noon.Add(time.Duration(random.IntN(9)-4) * time.Hour), Done: random.IntN(2) == 0,
		Expires: noon.Add(time.Duration(random.IntN(100)-50) * time.Minute), Version: uint64(random.IntN(4)),
		Data: []byte(strings.Repeat(id, random.IntN(1+[]int{10, 100, 30_000}[random.IntN(3)])/len(id))),
	}
	after := tasks.Cursor{Created: noon.Add(time.Duration(random.IntN(9)-4) * time.Hour), ID: id}
	now, limit := noon.Add(time.Duration(random.IntN(100)-70)*time.Minute), random.IntN(12)
	switch random.IntN(10) {
	case 0, 1, 2:
		return "create " + id, func(ctx context.Context, s tasks.Store) []any { return []any{s.Create(ctx, r)} }
	case 3, 4:
		return "update " + id, func(ctx context.Context, s tasks.Store) []any { return []any{s.Update(ctx, r)} }
	case 5:
		return "delete " + id, func(ctx context.Context, s tasks.Store) []any { return []any{s.Delete(ctx, owner, id)} }
	case 6:
		return "get " + id, func(ctx context.Context, s tasks.Store) []any { return results(s.Get(ctx, owner, id)) }
	case 7:
		return "list after " + id, func(ctx context.Context, s tasks.Store) []any {
			return results(s.List(ctx, owner, after, limit))
		}
	case 8:
		return "count", func(ctx context.Context, s tasks.Store) []any {
			if limit%2 == 0 {
				n, size, err := s.CountAll(ctx)
				return []any{n, size, err}
			}
			n, size, err := s.Count(ctx, owner)
			return []any{n, size, err}
		}
	}
	return fmt.Sprint("expire ", limit), func(ctx context.Context, s tasks.Store) []any {
		return results(s.DeleteExpired(ctx, now, limit))
	}
}

func results[T any](v T, err error) []any { return []any{v, err} }

// contents returns all records of a store.
func contents(ctx context.Context, s tasks.Store) []any {
	var ids []string
	for r, err := range s.Unfinished(ctx) {
		ids = append(ids, fmt.Sprint(r, err))
	}
	slices.Sort(ids)
	found := []any{ids}
	for _, owner := range []string{"", "a", "a\x00b"} {
		found = append(found, results(s.List(ctx, owner, tasks.Cursor{}, 1000)))
	}
	return found
}

// truncated formats results in at most 1000 bytes.
func truncated(v []any) string {
	text := fmt.Sprintf("%#v", v)
	return text[:min(len(text), 1000)]
}

// The implementations are independent.
func TestMemoryStoreAndFileStoreReturnTheSameResults(t *testing.T) {
	for seed := range uint64(4) {
		random := rand.New(rand.NewPCG(seed, 0))
		memory, file := tasks.NewMemory(), open(t, filepath.Join(t.TempDir(), "tasks.db"))
		var done []string
		for range 600 {
			name, call := randomStep(random)
			done = append(done, name)
			if a, b := call(t.Context(), memory), call(t.Context(), file); !reflect.DeepEqual(a, b) {
				t.Fatalf("seed %d, after %q\nmemory returned %s\nfile returned   %s", seed, done[max(0, len(done)-10):],
					truncated(a), truncated(b))
			}
		}
		if a, b := contents(t.Context(), memory), contents(t.Context(), file); !reflect.DeepEqual(a, b) {
			t.Fatalf("seed %d, at the end\nmemory has %s\nfile has   %s", seed, truncated(a), truncated(b))
		}
	}
}
