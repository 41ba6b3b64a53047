package bolt_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/stores/bolt"
)

// writeUntilKilled prints the version of each task once the store has confirmed it.
func writeUntilKilled(path string) {
	s, err := bolt.OpenTasks(path, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	var mu sync.Mutex // guards the output
	var all sync.WaitGroup
	for worker := range 4 {
		all.Go(func() {
			for n := 0; ; n++ {
				id := fmt.Sprint("task-", worker, "-", n)
				err := s.Create(context.Background(), taskVersion(id, 1))
				for version := uint64(1); version <= 3 && err == nil; version++ {
					mu.Lock()
					fmt.Println(id, version)
					mu.Unlock()
					r := taskVersion(id, version+1)
					r.Version = version
					err = s.Update(context.Background(), r)
				}
				if err != nil {
					fmt.Println(err)
					return
				}
			}
		})
	}
	all.Wait()
}

// taskVersion returns a version of a task. Two of the four versions are stored in parts.
func taskVersion(id string, version uint64) tasks.Record {
	r := task(id, []int{50, 20_000, 300, 100_000}[version-1])
	r.Version, r.Done = version, version == 4
	return r
}

func TestConfirmedTasksSurviveKill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tasks.db")
	for round := range 5 {
		child, lines := startChild(t, writerVariable, path)
		confirmed, n := map[string]uint64{}, 0
		for ; lines.Scan(); n++ {
			id, version, _ := strings.Cut(lines.Text(), " ")
			v, err := strconv.ParseUint(version, 10, 64)
			if err != nil {
				t.Fatalf("the writer printed %q", lines.Text())
			}
			if confirmed[id] = v; n == 40+round*17 {
				_ = child.Process.Kill() // SIGKILL, at any point of its next write
			}
		}
		_ = child.Wait()
		s, err := bolt.OpenTasks(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for id, version := range confirmed {
			r, err := s.Get(t.Context(), "alice", id)
			// The version after the confirmed one may have been written.
			if err != nil || r.Version != version && r.Version != version+1 {
				t.Errorf("%s has version %d, %v; want %d or the next one", id, r.Version, err, version)
				continue
			}
			if want := taskVersion(id, r.Version); string(r.Data) != string(want.Data) || r.Done != want.Done {
				t.Errorf("%s does not have the data of its version %d", id, r.Version)
			}
			if err := s.Delete(t.Context(), "alice", id); err != nil {
				t.Error(err)
			}
		}
		// At most one task of each worker was written and not printed.
		left, _, err := s.CountAll(t.Context())
		if err != nil || left > 4 {
			t.Errorf("%d tasks, %v besides the confirmed ones, want at most 4", left, err)
		}
		for r, err := range s.Unfinished(t.Context()) {
			if err = errors.Join(err, s.Delete(t.Context(), r.Owner, r.ID)); err != nil {
				t.Error(err)
			}
		}
		if _, err := s.DeleteExpired(t.Context(), noon.Add(time.Hour), 100); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
