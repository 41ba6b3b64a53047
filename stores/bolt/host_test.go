package bolt_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/stores/bolt"
)

func openState(t *testing.T, path string) *bolt.StateStore {
	t.Helper()
	s, err := bolt.OpenState(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustSet(t *testing.T, s state.Store, kind, key, value string) {
	t.Helper()
	_, version, err := s.Get(t.Context(), kind, key)
	if err == nil {
		err = s.CompareAndSet(t.Context(), kind, key, version, []byte(value))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestStateIsLikeMemory makes the same random calls to a file and to a state.Memory.
func TestStateIsLikeMemory(t *testing.T) {
	ctx := t.Context()
	file, memory := openState(t, filepath.Join(t.TempDir(), "new", "state.db")), &state.Memory{}
	random := rand.New(rand.NewPCG(1, 2))
	entries := func(s state.Store, kind string) map[string]string {
		all := map[string]string{}
		for e, err := range s.List(ctx, kind) {
			if err != nil {
				t.Fatal(err)
			}
			all[e.Key] = string(e.Value)
		}
		return all
	}
	for range 120 {
		kind, key := []string{"pins", "lists"}[random.IntN(2)], fmt.Sprint("key", random.IntN(6))
		a, versionA, errA := file.Get(ctx, kind, key)
		b, versionB, errB := memory.Get(ctx, kind, key)
		if errA != nil || errB != nil || !bytes.Equal(a, b) || (a == nil) != (b == nil) || (versionA == 0) != (versionB == 0) {
			t.Fatalf("Get: %q, %d, %v and %q, %d, %v", a, versionA, errA, b, versionB, errB)
		}
		wrong := uint64(random.IntN(4) / 3 * 1000)
		value := [][]byte{nil, {}, []byte(key), bytes.Repeat([]byte{1}, 100_000)}[random.IntN(4)]
		errA = file.CompareAndSet(ctx, kind, key, versionA+wrong, value)
		errB = memory.CompareAndSet(ctx, kind, key, versionB+wrong, value)
		if !errors.Is(errA, errB) {
			t.Fatalf("CompareAndSet: %v and %v", errA, errB)
		}
		if a, b := entries(file, kind), entries(memory, kind); !maps.Equal(a, b) {
			t.Fatal("the entries differ")
		}
	}
}

func TestStateOfManyProcessesLosesNoChange(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	const processes, changes = 4, 50
	var all sync.WaitGroup
	for range processes { // stores of one process lock the file like processes
		s := openState(t, path)
		for range 2 {
			all.Go(func() {
				for n := 0; n < changes; {
					value, version, err := s.Get(context.Background(), "counts", "n")
					if err != nil {
						t.Error(err)
						return
					}
					count, _ := strconv.Atoi(string(value))
					err = s.CompareAndSet(context.Background(), "counts", "n", version, strconv.AppendInt(nil, int64(count)+1, 10))
					switch {
					case err == nil:
						n++
					case !errors.Is(err, state.ErrConflict):
						t.Error(err)
						return
					}
				}
			})
		}
	}
	all.Wait()
	value, _, err := openState(t, path).Get(t.Context(), "counts", "n")
	if want := strconv.Itoa(processes * 2 * changes); err != nil || string(value) != want {
		t.Errorf("counted %s, %v, want %s", value, err, want)
	}
}

// writeStateUntilKilled prints each change once the store has confirmed it.
func writeStateUntilKilled(path string) {
	s, err := bolt.OpenState(path, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	var mu sync.Mutex // guards the output
	var all sync.WaitGroup
	for worker := range 4 {
		all.Go(func() {
			key := fmt.Sprint("key", worker, "-", os.Getpid())
			for n := 1; ; n++ {
				_, version, err := s.Get(context.Background(), "pins", key)
				if err == nil {
					value := strconv.Itoa(n) + strings.Repeat(" ", n%7*3000)
					err = s.CompareAndSet(context.Background(), "pins", key, version, []byte(value))
				}
				mu.Lock()
				if err != nil {
					fmt.Println(err)
				}
				fmt.Println(key, n)
				mu.Unlock()
			}
		})
	}
	all.Wait()
}

var killRounds = flag.Int("kill-rounds", 6, "rounds of the test that kills writers of a state")

func TestConfirmedStateSurvivesKill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	for round := range *killRounds {
		confirmed := map[string]int{} // keys have the id of the process
		var mu sync.Mutex
		var both sync.WaitGroup
		for range 2 { // two processes that use the file at the same time, both killed
			both.Go(func() {
				child, lines := startChild(t, stateWriterVariable, path)
				for n := 0; lines.Scan(); n++ {
					key, count, _ := strings.Cut(lines.Text(), " ")
					c, err := strconv.Atoi(count)
					if err != nil {
						t.Errorf("the writer printed %q", lines.Text())
					}
					mu.Lock()
					confirmed[key] = c
					mu.Unlock()
					if n == 10+round%10*7 {
						_ = child.Process.Kill()
					}
				}
				_ = child.Wait()
			})
		}
		both.Wait()
		found := map[string]int{}
		state := openState(t, path)
		for e, err := range state.List(t.Context(), "pins") {
			if err != nil {
				t.Fatal(err)
			}
			found[e.Key], _ = strconv.Atoi(strings.TrimSpace(string(e.Value)))
		}
		for key, n := range confirmed {
			if got := found[key]; got != n && got != n+1 { // the next one may have been written
				t.Errorf("round %d: %s has %d, want the confirmed %d or the next one", round, key, got, n)
			}
		}
		for key := range found { // else the file grows with the rounds
			_, version, err := state.Get(t.Context(), "pins", key)
			if err == nil {
				err = state.CompareAndSet(t.Context(), "pins", key, version, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestStateOfReadOnlyFile(t *testing.T) {
	if runtime.GOOS == "windows" || os.Geteuid() == 0 {
		t.Skip("a permission has no effect here: TestStateOnReadOnlyDisk is the test for root")
	}
	path := filepath.Join(t.TempDir(), "state.db")
	s := openState(t, path)
	mustSet(t, s, "pins", "a", "1")
	if err := os.Chmod(path, 0o400); err != nil {
		t.Fatal(err)
	}
	checkReadOnly(t, s)
}

// checkReadOnly tests that the entry a is 1 and cannot be changed.
func checkReadOnly(t *testing.T, s *bolt.StateStore) {
	t.Helper()
	value, version, err := s.Get(t.Context(), "pins", "a")
	if err != nil || string(value) != "1" {
		t.Errorf("Get: %q, %v", value, err)
	}
	if err := s.CompareAndSet(t.Context(), "pins", "a", version, []byte("2")); !errors.Is(err, bolt.ErrReadOnly) {
		t.Errorf("CompareAndSet: %v, want ErrReadOnly", err)
	}
}

func TestStateChecksFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s := openState(t, path)
	if _, err := os.Stat(path); err == nil {
		t.Error("OpenState has created a file that has nothing")
	}
	mustSet(t, s, "pins", "a", "1")
	if info, err := os.Stat(path); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info.Mode(), err)
	}
	db, err := bbolt.Open(path, 0o600, nil) // another process
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bolt.OpenState(path, &bolt.Options{Wait: -1}); !errors.Is(err, bolt.ErrInUse) {
		t.Errorf("OpenState of a locked file: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, _, err := s.Get(ctx, "pins", "a"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Get with a locked file: %v", err)
	}
	err = db.Update(func(tx *bbolt.Tx) error { // damage
		b := tx.Bucket([]byte("kind pins"))
		stored := bytes.Clone(b.Get([]byte("a")))
		stored[len(stored)-1] ^= 1
		return b.Put([]byte("a"), stored)
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Get(t.Context(), "pins", "a"); !errors.Is(err, bolt.ErrDamaged) {
		t.Errorf("Get of a damaged entry: %v", err)
	}
	if err := os.WriteFile(path, bytes.Repeat([]byte("text"), 5000), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := bolt.OpenState(path, nil); !errors.Is(err, bolt.ErrDamaged) {
		t.Errorf("OpenState of text: %v", err)
	}
	tasksPath := filepath.Join(t.TempDir(), "tasks.db")
	tasks, err := bolt.OpenTasks(tasksPath, nil)
	if err := errors.Join(err, tasks.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := bolt.OpenState(tasksPath, nil); err == nil || !strings.Contains(err.Error(), "format") {
		t.Errorf("OpenState of a store of tasks: %v", err)
	}
}

func TestStateRefusesInvalidEntries(t *testing.T) {
	s := openState(t, filepath.Join(t.TempDir(), "state.db"))
	for name, err := range map[string]error{
		"empty kind":  s.CompareAndSet(t.Context(), "", "a", 0, []byte{}),
		"empty key":   s.CompareAndSet(t.Context(), "a", "", 0, []byte{}),
		"long kind":   s.CompareAndSet(t.Context(), strings.Repeat("k", 65), "a", 0, []byte{}),
		"long key":    s.CompareAndSet(t.Context(), "a", strings.Repeat("k", 1025), 0, []byte{}),
		"not UTF-8":   s.CompareAndSet(t.Context(), "a", "\xff", 0, []byte{}),
		"large value": s.CompareAndSet(t.Context(), "a", "b", 0, make([]byte, 32<<20+1)),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// FuzzState writes any entry, and reads it.
func FuzzState(f *testing.F) {
	f.Add("pins", "a", []byte("value"))
	f.Add("\x00", "\xff", []byte{})
	path := filepath.Join(f.TempDir(), "state.db")
	f.Fuzz(func(t *testing.T, kind, key string, value []byte) {
		s := openState(t, path)
		_, version, err := s.Get(t.Context(), kind, key)
		if err != nil {
			t.Fatal(err)
		}
		if value == nil {
			value = []byte{}
		}
		if err := s.CompareAndSet(t.Context(), kind, key, version, value); err != nil {
			return // invalid
		}
		got, now, err := s.Get(t.Context(), kind, key)
		if err != nil || !bytes.Equal(got, value) || now <= version {
			t.Fatalf("%q, version %d after %d, %v", got, now, version, err)
		}
		var keys []string
		for e, err := range s.List(t.Context(), kind) {
			if err != nil {
				t.Fatal(err)
			}
			keys = append(keys, e.Key)
		}
		if !slices.IsSorted(keys) || !slices.Contains(keys, key) {
			t.Fatalf("the keys are %q", keys)
		}
	})
}
