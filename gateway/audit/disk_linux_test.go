package audit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/audit"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// mountDisk returns the folder of a disk of its own.
func mountDisk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skip("mounting a disk needs root: ", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir
}

// remount makes a disk read-only, or writable again.
func remount(t *testing.T, dir string, flags uintptr) {
	t.Helper()
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|flags, ""); err != nil {
		t.Fatal(err)
	}
}

// A countedServer is a host with a strict log in front of a server that counts its calls.
type countedServer struct {
	runs   atomic.Int64
	client *mcp.Client
	log    *audit.Log
}

func startCounted(t *testing.T, o *audit.Options) *countedServer {
	t.Helper()
	c := &countedServer{log: open(t, o)}
	server := mcp.NewServer("counter", "1", nil)
	mcp.AddTool(server, &mcp.Tool{Name: "run"}, func(_ context.Context, in struct{ N string }) (string, error) {
		c.runs.Add(1)
		return in.N, nil
	})
	f, err := config.Parse([]byte(`{"mcpServers": {"fs": {"command": "fs"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	h, err := host.Open(t.Context(), f, &host.Options{Recorder: c.log, Dial: func(context.Context, *config.Server) (mcp.Transport, error) {
		return mcp.InMemory(server), nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	if c.client, err = mcp.Connect(t.Context(), mcp.InMemory(h.For(&policy.Caller{})), nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.client.Close() })
	return c
}

// call calls the tool, and reports whether the call was refused because it could not be recorded.
func (c *countedServer) call(t *testing.T) (refused bool) {
	t.Helper()
	res, err := c.client.CallTool(t.Context(), "fs__run", map[string]any{"N": "x"})
	if err != nil {
		t.Fatal(err)
	}
	if text, err := json.Marshal(res); err != nil || res.IsError && !bytes.Contains(text, []byte("code unrecorded")) {
		t.Fatalf("got %s, %v", text, err)
	}
	return res.IsError
}

// check checks that each call that has run has an intent on the disk, and that the chain is valid.
func (c *countedServer) check(t *testing.T, dir string, min int64) {
	t.Helper()
	verify(t, dir)
	intents := int64(0)
	for _, e := range readAll(t, dir) {
		if e.Event == string(event.Intent) {
			intents++
		}
	}
	if runs := c.runs.Load(); runs > intents || runs < min {
		t.Errorf("%d calls have run, %d are recorded, want at least %d", runs, intents, min)
	}
}

// On a disk that is full, a strict log refuses calls, and none runs that is not recorded. With room, it
// records again.
func TestStrictLogOnFullDisk(t *testing.T) {
	dir := mountDisk(t, "256k")
	o := testOptions(filepath.Join(dir, "log"))
	o.Sync, o.Strict = audit.SyncSecond, true
	c := startCounted(t, o)
	filler := filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, make([]byte, 128<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	done, refused := int64(0), 0
	for refused < 20 {
		if c.call(t) {
			refused++
			continue
		}
		if done++; done > 10_000 {
			t.Fatal("the disk is never full")
		}
	}
	if done == 0 || c.runs.Load() != done || !errors.Is(c.log.Err(), syscall.ENOSPC) {
		t.Fatalf("%d calls of %d have run, %v", c.runs.Load(), done, c.log.Err())
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if c.call(t) {
			t.Fatal("a call is refused although the disk has room")
		}
	}
	closeLog(t, c.log)
	c.check(t, o.Dir, done+20)
}

// A disk with a file that is open for writing does not become read-only by a remount: TestFullDisk has
// writes that fail as on a disk that does.
func TestReadOnlyDisk(t *testing.T) {
	dir := mountDisk(t, "4m")
	o := testOptions(filepath.Join(dir, "log"))
	l := open(t, o)
	record(t, l, call(1))
	closeLog(t, l)
	remount(t, dir, syscall.MS_RDONLY)
	_, err := audit.Open(o)
	if _, ok := errors.AsType[*audit.StoreError](err); !ok || !errors.Is(err, syscall.EROFS) {
		t.Errorf("got %v, want a StoreError of a read-only disk", err)
	}
	verify(t, o.Dir)
	remount(t, dir, 0)
	l = open(t, o)
	record(t, l, call(2))
	closeLog(t, l)
	if chains := verify(t, o.Dir); len(chains) != 1 {
		t.Errorf("%d chains, want 1", len(chains))
	}
}
