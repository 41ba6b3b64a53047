package authserver_test

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
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/bbolt"

	"github.com/patchbay-mcp/patchbay/oauth/authserver"
	"github.com/patchbay-mcp/patchbay/oauth/authserver/storetest"
)

func TestMemoryStore(t *testing.T) {
	storetest.Run(t, func(string) (authserver.Store, error) { return authserver.NewMemoryStore(), nil })
}

func TestFileStore(t *testing.T) {
	storetest.RunLasting(t, func(dir string) (authserver.Store, error) {
		return authserver.OpenFileStore(filepath.Join(dir, "store.db"))
	})
}

func openFile(t *testing.T, path string) authserver.Store {
	t.Helper()
	s, err := authserver.OpenFileStore(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestRecordsExpireAndTheirRoomIsUsedAgain(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) (authserver.Store, func() int){
		"memory": func(*testing.T) (authserver.Store, func() int) {
			s := authserver.NewMemoryStore()
			return s, func() int { return authserver.MemoryRecords(s) }
		},
		"file": func(t *testing.T) (authserver.Store, func() int) {
			s := openFile(t, filepath.Join(t.TempDir(), "store.db"))
			return s, func() int { return authserver.FileRecords(s) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, kept := open(t)
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				for i := range 50 {
					if err := s.Put(ctx, "code", strconv.Itoa(i), []byte("v"), time.Now().Add(time.Minute)); err != nil {
						t.Fatal(err)
					}
				}
				if err := s.Put(ctx, "grant", "lasts", []byte("v"), time.Now().Add(time.Hour)); err != nil {
					t.Fatal(err)
				}
				// A record whose time was put off must not go at its first one.
				if err := s.Put(ctx, "code", "7", []byte("v"), time.Now().Add(time.Hour)); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute - 1)
				if n, _ := s.Count(ctx, "code"); n != 50 {
					t.Errorf("%d codes a moment before their time is over, want 50", n)
				}
				time.Sleep(1)
				if n, _ := s.Count(ctx, "code"); n != 1 {
					t.Errorf("%d codes when their time is over, want 1", n)
				}
				time.Sleep(time.Minute)
				if err := s.Put(ctx, "grant", "new", []byte("v"), time.Time{}); err != nil {
					t.Fatal(err)
				}
				if n := kept(); n != 3 {
					t.Errorf("%d records are kept after the sweep, want 3", n)
				}
				for _, key := range []string{"lasts", "new"} {
					if v, err := s.Get(ctx, "grant", key); string(v) != "v" || err != nil {
						t.Errorf("grant %s reads %q, %v", key, v, err)
					}
				}
			})
		})
	}
}

func TestFileStoreIsItsOwnersAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s := openFile(t, path)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if mode := info.Mode().Perm(); mode != 0o600 {
		t.Errorf("the file has mode %04o, want 0600", mode)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := authserver.OpenFileStore(path); err == nil || !strings.Contains(err.Error(), "0640") {
		t.Errorf("a file that the group may read: %v, want an error with its mode", err)
	}
}

func TestFileStoreLeavesOtherFilesAlone(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, fill func(tx *bbolt.Tx) error) string {
		path := filepath.Join(dir, name)
		db, err := bbolt.Open(path, 0o600, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(db.Update(fill), db.Close()); err != nil {
			t.Fatal(err)
		}
		return path
	}
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte(strings.Repeat("no database\n", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{
		"a text":   text,
		"a folder": dir,
		"a database of something else": write("else", func(tx *bbolt.Tx) error {
			_, err := tx.CreateBucket([]byte("things"))
			return err
		}),
		"a later format": write("later", func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucket([]byte("format"))
			if err != nil {
				return err
			}
			return b.Put([]byte("format"), []byte("patchbay authserver store 2"))
		}),
	} {
		before, _ := os.ReadFile(path)
		if s, err := authserver.OpenFileStore(path); err == nil {
			_ = s.Close()
			t.Errorf("%s was opened", name)
		}
		if after, _ := os.ReadFile(path); string(after) != string(before) {
			t.Errorf("%s was changed", name)
		}
	}
}

const writerEnv = "PATCHBAY_TEST_WRITER"

// writeUntilKilled says each number after the store said that it has it.
func writeUntilKilled(path string) {
	s, err := authserver.OpenFileStore(path)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, value := context.Background(), strings.Repeat("x", 3000)
	for n := 0; ; n++ {
		key := strconv.Itoa(n)
		if err := s.Put(ctx, "grant", key, []byte(key+value), time.Now().Add(time.Hour)); err != nil {
			fmt.Println(err)
			return
		}
		if n%3 == 2 {
			if _, err := s.Take(ctx, "grant", strconv.Itoa(n-1)); err != nil {
				fmt.Println(err)
				return
			}
		}
		fmt.Println(n)
	}
}

func TestFileStoreSurvivesKill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	for round := range 5 {
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), writerEnv+"="+path)
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		said := -1
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			n, err := strconv.Atoi(lines.Text())
			if err != nil {
				t.Fatalf("the writer said %q", lines.Text())
			}
			if said = n; n == 20+round*7 {
				_ = child.Process.Kill() // SIGKILL, amid whatever it does next
			}
		}
		_ = child.Wait()
		checkWritten(t, openFile(t, path), said)
	}
}

func TestFileStoreSweepsAsMuchAsExpires(t *testing.T) {
	s := openFile(t, filepath.Join(t.TempDir(), "store.db"))
	synctest.Test(t, func(t *testing.T) {
		for minute := range 4 {
			for i := range 2 * authserver.SweepAtMost {
				if err := s.Put(t.Context(), "grant", fmt.Sprint(minute, i), []byte("v"), time.Now().Add(time.Second)); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(61 * time.Second)
			for key := range 3 { // the third sweep finds nothing left
				if err := s.Put(t.Context(), "client", strconv.Itoa(key), []byte("v"), time.Time{}); err != nil {
					t.Fatal(err)
				}
			}
			if n := authserver.FileRecords(s); n != 3 {
				t.Errorf("minute %d: %d records take room, want 3", minute, n)
			}
		}
	})
}

func TestRefusedUpdateBringsNothingBack(t *testing.T) {
	s := openFile(t, filepath.Join(t.TempDir(), "store.db"))
	synctest.Test(t, func(t *testing.T) {
		for i := range 100 {
			if err := s.Put(t.Context(), "grant", strconv.Itoa(i), []byte("v"), time.Now().Add(time.Second)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Minute)
		refused := errors.New("refused")
		err := s.Update(t.Context(), "grant", "a", func([]byte) ([]byte, time.Time, error) { return nil, time.Time{}, refused })
		if !errors.Is(err, refused) {
			t.Errorf("Update gave %v", err)
		}
		if n := authserver.FileRecords(s); n != 0 {
			t.Errorf("%d records take room, want 0", n)
		}
	})
}

// Who waits for the number to fall calls Count alone, and must not wait for ever.
func TestCountFallsByItself(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) authserver.Store{
		"memory": func(*testing.T) authserver.Store { return authserver.NewMemoryStore() },
		"file":   func(t *testing.T) authserver.Store { return openFile(t, filepath.Join(t.TempDir(), "store.db")) },
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			synctest.Test(t, func(t *testing.T) {
				const many = 2*authserver.SweepAtMost + 10
				for i := range many {
					if err := s.Put(t.Context(), "interaction", strconv.Itoa(i), []byte("v"), time.Now().Add(time.Minute)); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(2 * time.Minute)
				calls := 0
				for n := many; n > 0; calls++ {
					before, err := n, error(nil)
					if n, err = s.Count(t.Context(), "interaction"); err != nil || n >= before {
						t.Fatalf("call %d gave %d after %d, %v", calls+1, n, before, err)
					}
				}
				if calls > 3 {
					t.Errorf("it took %d calls", calls)
				}
			})
		})
	}
}

func TestFileWithoutCounts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s := openFile(t, path)
	for _, key := range []string{"a", "b", "c"} {
		if err := s.Put(t.Context(), "grant", key, []byte("v"), time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(authserver.FileForgetsCounts(s), s.Close()); err != nil {
		t.Fatal(err)
	}
	s = openFile(t, path)
	if n, err := s.Count(t.Context(), "grant"); n != 3 || err != nil {
		t.Errorf("Count gave %d, %v; want 3", n, err)
	}
}

// checkWritten wants all that was said to be there, whole, and nothing that was said to be gone.
func checkWritten(t *testing.T, s authserver.Store, said int) {
	t.Helper()
	if n := authserver.FileRecords(s); n < 0 {
		t.Errorf("after %d records: the index or the counts of the file are not those of its records (%d)", said, n)
	}
	value := strings.Repeat("x", 3000)
	for n := range said + 1 {
		key, wanted := strconv.Itoa(n), ""
		// Of three, the second is taken when the third is there.
		if taken := n%3 == 1 && n+1 <= said; !taken {
			wanted = key + value
		}
		got, err := s.Get(t.Context(), "grant", key)
		switch {
		case err != nil:
			t.Errorf("record %d of %d: %v", n, said, err)
		case n == said && n%3 == 1: // it may have been taken already
		case string(got) != wanted:
			t.Errorf("record %d of %d has %d bytes, want %d", n, said, len(got), len(wanted))
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestFileStoreHasOneProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	openFile(t, path)
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		_, err := authserver.OpenFileStore(path)
		if err == nil || !strings.Contains(err.Error(), "another process") {
			t.Errorf("a second process: %v, want an error that says so", err)
		}
		if waited := time.Since(begun); waited < 5*time.Second || waited > 15*time.Second {
			t.Errorf("it waited %v", waited)
		}
	})
}
