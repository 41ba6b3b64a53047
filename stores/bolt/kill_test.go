package bolt_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/stores/bolt"
)

// writeUntilKilled prints the version of each task after the store has confirmed it.
func writeUntilKilled(path string) {
	s, err := bolt.OpenTasks(path, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	var said sync.Mutex
	var all sync.WaitGroup
	for worker := range 4 {
		all.Go(func() {
			for n := 0; ; n++ {
				id := fmt.Sprint("task-", worker, "-", n)
				err := s.Create(context.Background(), killed(id, 1))
				for version := uint64(1); version <= 3 && err == nil; version++ {
					said.Lock()
					fmt.Println(id, version)
					said.Unlock()
					r := killed(id, version+1)
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

// killed is a version of a task, some of them in parts.
func killed(id string, version uint64) tasks.Record {
	r := task(id, []int{50, 20_000, 300, 100_000}[version-1])
	r.Version, r.Done = version, version == 4
	return r
}

func TestConfirmedTasksSurviveKill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tasks.db")
	for round := range 5 {
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), writerVariable+"="+path)
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		said, n := map[string]uint64{}, 0
		for lines := bufio.NewScanner(out); lines.Scan(); n++ {
			id, version, _ := strings.Cut(lines.Text(), " ")
			v, err := strconv.ParseUint(version, 10, 64)
			if err != nil {
				t.Fatalf("the writer said %q", lines.Text())
			}
			if said[id] = v; n == 40+round*17 {
				_ = child.Process.Kill() // SIGKILL, amid whatever it does next
			}
		}
		_ = child.Wait()
		s, err := bolt.OpenTasks(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for id, version := range said {
			r, err := s.Get(t.Context(), "alice", id)
			// The version that was being written may be there or not.
			if err != nil || r.Version != version && r.Version != version+1 {
				t.Errorf("%s has version %d, %v; it was said to have %d", id, r.Version, err, version)
				continue
			}
			if want := killed(id, r.Version); string(r.Data) != string(want.Data) || r.Done != want.Done {
				t.Errorf("%s has another version's data", id)
			}
			if err := s.Delete(t.Context(), "alice", id); err != nil {
				t.Error(err)
			}
		}
		// At most one task of each worker was written and not printed.
		left, _, err := s.CountAll(t.Context())
		if err != nil || left > 4 {
			t.Errorf("%d tasks, %v beside those that were spoken of, want 4 at most", left, err)
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
