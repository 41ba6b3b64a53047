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

	"github.com/patchbay-mcp/patchbay/cmd/patchbay/internal/vault"
)

// The test binary plays other programs that use the vault: roleEnv says which, dirEnv where.
const (
	roleEnv = "PATCHBAY_TEST_VAULT_ROLE"
	dirEnv  = "PATCHBAY_TEST_VAULT_DIR"

	roleCount = "count" // raises a number 100 times
	roleWrite = "write" // writes until it is killed, and says what it has written
	roleHold  = "hold"  // holds a lock until it is killed
	roleHang  = "hang"  // makes a vault where the keyring never answers
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

const raises = 100

func child(role string) int {
	ctx := context.Background()
	v, err := vault.New(&vault.Options{Dir: os.Getenv(dirEnv), KeyringTimeout: 300 * time.Millisecond})
	switch {
	case err != nil:
	case role == roleCount:
		for i := 0; i < raises && err == nil; i++ {
			err = v.Update(ctx, "n", raise)
		}
	case role == roleWrite:
		for err == nil {
			var n string
			err = v.Update(ctx, "n", func(old []byte) ([]byte, error) {
				changed, err := raise(old[:min(len(old), width)])
				n = string(changed)
				return []byte(strings.Repeat(n, repeats)), err
			})
			fmt.Println(n)
		}
	case role == roleHold:
		err = v.Update(ctx, "n", func([]byte) ([]byte, error) {
			fmt.Println("held")
			select {}
		})
	case role == roleHang:
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
	repeats = 2000 // so that a value takes some time to write
)

// raise adds one to a number.
func raise(old []byte) ([]byte, error) {
	n := 0
	if len(old) > 0 {
		var err error
		if n, err = strconv.Atoi(string(old)); err != nil {
			return nil, err
		}
	}
	return fmt.Appendf(nil, "%0*d", width, n+1), nil
}

func TestProcessesLoseNoUpdate(t *testing.T) {
	v, dir := inFile(t)
	put(t, v, "other", "") // the children have no mock of a keyring, so that the vault has to be there
	const processes = 4
	var running []*exec.Cmd
	for range processes {
		cmd := command(t, roleCount, dir)
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
	wants(t, v, "n", fmt.Sprintf("%0*d", width, processes*raises))
}

// Processes that find no vault make one, and not four.
func TestProcessesMakeOneVault(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "vault")
	var running []*exec.Cmd
	for range 4 {
		cmd := command(t, roleCount, dir)
		cmd.Env = append(cmd.Env, "DBUS_SESSION_BUS_ADDRESS=unix:path=/no/bus") // there is no keyring behind it
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
	noKeyring(t)
	wants(t, open(t, vault.Options{Dir: dir}), "n", fmt.Sprintf("%0*d", width, 4*raises))
}

// A process that is killed while it writes leaves the old value or the new one, and no lock.
func TestKilledWhileWriting(t *testing.T) {
	v, dir := inFile(t)
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
			if kill == 0 { // somewhere within the next few writes
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
			t.Fatalf("the value is %.40q…, %v", got, err)
		}
		// The last write may have been done and not said.
		if n < written || n > written+1 {
			t.Fatalf("%d was written, and there is %d", written, n)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		if err := v.Update(ctx, "n", func(old []byte) ([]byte, error) { return old, nil }); err != nil {
			t.Fatalf("a lock is left: %v", err)
		}
		cancel()
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) > 6 { // head, its lock, key, sealed, its lock, and what the last one left
		t.Errorf("killed writers leave %v, %v", files, err)
	}
}

func TestLockEndsWithItsProcess(t *testing.T) {
	v, dir := inFile(t)
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
		t.Errorf("the lock of another process is no lock: %v", err)
	}
	wants(t, v, "n", "1") // reading waits for nobody
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	put(t, v, "n", "2")
	wants(t, v, "n", "2")
}

// Where the bus takes calls and answers none, a vault is made without the keyring.
func TestKeyringThatHangs(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there is no D-Bus")
	}
	short, err := os.MkdirTemp("", "bus") // the path of a socket is short
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
	cmd := command(t, roleHang, dir)
	cmd.Env = append(cmd.Env, "DBUS_SESSION_BUS_ADDRESS=unix:path="+filepath.Join(short, "bus"))
	began := time.Now()
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	<-called
	noKeyring(t)
	v := open(t, vault.Options{Dir: dir})
	wants(t, v, "n", secret)
	if d, err := v.Describe(); err != nil || d.Key != vault.InFile {
		t.Errorf("the description is %+v, %v", d, err)
	}
}
