package vault_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/vault"
)

// The test binary acts as another program that uses the vault dirEnv: roleEnv selects which.
const (
	roleEnv = "PATCHBAY_TEST_VAULT_ROLE"
	dirEnv  = "PATCHBAY_TEST_VAULT_DIR"

	roleCount = "count" // increments a number 100 times
	roleWrite = "write" // writes until it is killed, and prints what it has written
	roleHold  = "hold"  // holds a lock until it is killed
	roleRekey = "rekey" // changes the key until it is killed
	roleStall = "stall" // creates a vault with a keyring that never answers
)

func command(t *testing.T, role, dir string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), roleEnv+"="+role, dirEnv+"="+dir)
	cmd.Stderr = os.Stderr
	return cmd
}

const increments = 100 // by a process with roleCount

func child(role string) int {
	ctx := context.Background()
	v, err := vault.New(&vault.Options{Dir: os.Getenv(dirEnv), KeyringTimeout: 300 * time.Millisecond})
	switch {
	case err != nil:
	case role == roleCount:
		for i := 0; i < increments && err == nil; i++ {
			err = v.Update(ctx, "n", increment)
		}
	case role == roleWrite:
		for err == nil {
			var n string
			err = v.Update(ctx, "n", func(old []byte) ([]byte, error) {
				changed, err := increment(old[:min(len(old), width)])
				n = string(changed)
				return []byte(strings.Repeat(n, repeats)), err
			})
			fmt.Println(n)
		}
	case role == roleRekey:
		for err == nil {
			fmt.Println("changing")
			err = v.ChangeKey(ctx, "", "")
		}
	case role == roleHold:
		err = v.Update(ctx, "n", func([]byte) ([]byte, error) {
			fmt.Println("locked")
			select {}
		})
	case role == roleStall:
		err = v.Update(ctx, "n", func([]byte) ([]byte, error) { return []byte(secret), nil })
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

const (
	width   = 8    // of a number, in digits
	repeats = 2000 // large, so that a write takes time
)

// increment adds one to a number.
func increment(old []byte) ([]byte, error) {
	n := 0
	if len(old) > 0 {
		var err error
		if n, err = strconv.Atoi(string(old)); err != nil {
			return nil, err
		}
	}
	return fmt.Appendf(nil, "%0*d", width, n+1), nil
}

// runConcurrently runs n commands and waits until all have exited successfully.
func runConcurrently(t *testing.T, n int, newCommand func() *exec.Cmd) {
	t.Helper()
	var running []*exec.Cmd
	for range n {
		cmd := newCommand()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		running = append(running, cmd)
	}
	for _, cmd := range running {
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
}

func TestConcurrentProcessesLoseNoUpdate(t *testing.T) {
	v, dir := newFileVault(t)
	put(t, v, "other", "") // create the vault: the child processes have no mock keyring
	const processes = 4
	runConcurrently(t, processes, func() *exec.Cmd { return command(t, roleCount, dir) })
	checkValue(t, v, "n", fmt.Sprintf("%0*d", width, processes*increments))
}

func TestConcurrentProcessesCreateOneVault(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "vault")
	const processes = 4
	runConcurrently(t, processes, func() *exec.Cmd {
		cmd := command(t, roleCount, dir)
		cmd.Env = append(cmd.Env, "DBUS_SESSION_BUS_ADDRESS=unix:path=/no/bus") // without a keyring
		return cmd
	})
	disableKeyring(t)
	checkValue(t, open(t, vault.Options{Dir: dir}), "n", fmt.Sprintf("%0*d", width, processes*increments))
}

// A process killed during a write leaves the old or the new value, and no lock.
func TestKilledWriterLeavesAValidValue(t *testing.T) {
	v, dir := newFileVault(t)
	put(t, v, "n", "")
	for round := range 25 {
		cmd := command(t, roleWrite, dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		written, kill := 0, time.Duration(0)
		for lines.Scan() {
			if kill == 0 { // within the next few writes
				kill = time.Duration(1+round*137) * time.Microsecond
				time.AfterFunc(kill, func() { _ = cmd.Process.Kill() })
			}
			if written, err = strconv.Atoi(lines.Text()); err != nil {
				t.Fatal(err)
			}
		}
		_ = cmd.Wait() // it was killed
		got, err := v.Load(t.Context(), "n")
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.Atoi(string(got[:width]))
		if err != nil || string(got) != strings.Repeat(string(got[:width]), repeats) {
			t.Fatalf("value %.40q…, %v, want a repeated number", got, err)
		}
		// The last write may have been done and not printed.
		if n < written || n > written+1 {
			t.Fatalf("value %d, want %d or one more", n, written)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // only a lock that stays takes so long
		if err := v.Update(ctx, "n", func(old []byte) ([]byte, error) { return old, nil }); err != nil {
			t.Fatalf("Update after the kill: %v, want the lock released", err)
		}
		cancel()
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) > 6 { // metadata, its lock, the key, a value, its lock, and a temporary file
		t.Errorf("files after the kills: %v, %v, want at most 6", files, err)
	}
}

func TestLockIsReleasedOnExit(t *testing.T) {
	v, dir := newFileVault(t)
	put(t, v, "n", "1")
	cmd := command(t, roleHold, dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := v.Update(ctx, "n", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Update while another process holds the lock: %v, want %v", err, context.DeadlineExceeded)
	}
	checkValue(t, v, "n", "1") // Load does not wait for the lock
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	put(t, v, "n", "2")
	checkValue(t, v, "n", "2")
}

// If D-Bus does not answer, the vault is created without the keyring.
func TestUnresponsiveKeyringIsNotUsed(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has D-Bus")
	}
	short, err := os.MkdirTemp("", "bus") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(short)
	bus, err := net.Listen("unix", filepath.Join(short, "bus"))
	if err != nil {
		t.Fatal(err)
	}
	defer bus.Close()
	called := make(chan struct{})
	go func() {
		conn, err := bus.Accept()
		if err == nil {
			close(called)
			<-t.Context().Done()
			conn.Close()
		}
	}()
	dir := filepath.Join(t.TempDir(), "vault")
	cmd := command(t, roleStall, dir)
	cmd.Env = append(cmd.Env, "DBUS_SESSION_BUS_ADDRESS=unix:path="+filepath.Join(short, "bus"))
	began := time.Now()
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > time.Minute { // the bus would not answer before the end of the test
		t.Errorf("creating the vault took %v, want at most a minute", took)
	}
	<-called
	disableKeyring(t)
	v := open(t, vault.Options{Dir: dir})
	checkValue(t, v, "n", secret)
	if d, err := v.Describe(); err != nil || d.Key != vault.InFile {
		t.Errorf("description %+v, %v, want the key in a file", d, err)
	}
}
