package sandbox_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/internal/sandbox"
	"github.com/patchbay-mcp/patchbay/host/internal/sandbox/bubblewrap"
)

// A place contains folders of the machine: listed as readable and writable, and not listed.
type place struct{ read, write, hidden, binary string }

// newPlace returns a place. It skips the test without bubblewrap, except in CI, and on a machine that forbids namespaces.
func newPlace(t *testing.T) *place {
	t.Helper()
	bubblewrap.Need(t)
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	p := &place{filepath.Join(dir, "read"), filepath.Join(dir, "write"), filepath.Join(dir, "hidden"), binary}
	for _, folder := range []string{p.read, p.write, p.hidden} {
		if err := os.Mkdir(folder, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{filepath.Join(p.hidden, "key"), filepath.Join(p.read, "file")} {
		if err := os.WriteFile(file, []byte(secret), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// settings returns the settings of a sandbox with the folders of the place.
func (p *place) settings() *config.Sandbox {
	return &config.Sandbox{Read: []string{p.read, filepath.Dir(p.binary)}, Write: []string{p.write}}
}

// open returns a sandbox.
func (p *place) open(t *testing.T, s *config.Sandbox) *sandbox.Sandbox {
	t.Helper()
	box, err := sandbox.New(t.Context(), s, map[string]string{attemptVariable: "1",
		"GORACE": "atexit_sleep_ms=0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(box.Close)
	return box
}

// run runs an attempt in a sandbox.
func (p *place) run(t *testing.T, box *sandbox.Sandbox, stdin *os.File, words ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.binary, words...)
	if err := box.Prepare(cmd); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if stdin != nil {
		cmd.Stdin = stdin
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	box.Started()
	err := cmd.Wait()
	return strings.TrimSpace(strings.ReplaceAll(out.String(), "\n", " ") + fmt.Sprint(" ", err))
}

func TestEscapesFail(t *testing.T) {
	p := newPlace(t)
	t.Setenv("SANDBOX_TEST_TOKEN", secret)
	key, pid := filepath.Join(p.hidden, "key"), fmt.Sprint(os.Getpid())
	tcp := listen(t, "tcp", "127.0.0.1:0")
	abstract := listen(t, "unix", "@patchbay-sandbox-test-"+pid)
	socket := listen(t, "unix", filepath.Join(p.hidden, "socket"))
	setuid := setuidCat(t, p.read)
	box := p.open(t, p.settings())
	for _, e := range []struct {
		what, attempt string
		args          []string
	}{
		{"read a file of a folder that is not listed", "read", []string{key}},
		{"read the keys of the user", "list", []string{homeOf(t) + "/.ssh"}},
		{"list the home directory of the user", "list", []string{homeOf(t)}},
		{"read the passwords of the machine", "read", []string{"/etc/shadow"}},
		{"list the folders of users", "list", []string{"/root"}},
		{"write to a folder of the system", "write", []string{"/usr/escaped"}},
		{"write to the root", "write", []string{"/escaped"}},
		{"write to /etc", "write", []string{"/etc/escaped"}},
		{"write to /dev", "write", []string{"/dev/escaped"}},
		{"write to a folder that is not listed", "write", []string{p.hidden + "/escaped"}},
		{"write to a readable folder", "write", []string{p.read + "/escaped"}},
		{"change the mode of a readable file", "chmod", []string{p.read + "/file"}},
		{"read by a symbolic link", "read by a symbolic link", []string{key, p.write}},
		{"write by a symbolic link", "write by a symbolic link", []string{p.hidden + "/escaped", p.write}},
		{"read by ..", "read", []string{p.write + "/../hidden/key"}},
		{"read by .. of the process", "read", []string{"/proc/self/cwd/../../../../.." + key}},
		{"hard link to a hidden file", "hard link", []string{key, p.write}},
		{"hard link to a readable file", "hard link", []string{p.read + "/file", p.write}},
		{"move a readable file", "rename", []string{p.read + "/file", p.write}},
		{"root of process 1", "read", []string{"/proc/1/root" + key}},
		{"environment of the gateway", "read", []string{"/proc/" + pid + "/environ"}},
		{"memory of the gateway", "read memory", []string{pid}},
		{"signal to the gateway", "kill", []string{pid}},
		{"trace the gateway", "trace", []string{pid}},
		{"trace itself", "trace itself", nil},
		{"mount", "mount", nil},
		{"make a folder writable", "remount", nil},
		{"unmount", "unmount", nil},
		{"user namespace", "user namespace", nil},
		{"mount namespace", "mount namespace", nil},
		{"namespace of process 1", "namespace of 1", nil},
		{"loopback interface of the machine", "connect", []string{"tcp", tcp}},
		{"abstract socket", "connect", []string{"unix", abstract}},
		{"socket in a folder", "connect", []string{"unix", socket}},
		{"socket of Docker", "connect", []string{"unix", "/var/run/docker.sock"}},
		{"address of the internet", "connect", []string{"tcp", "192.0.2.1:80"}},
		{"DNS", "resolve", []string{"192.0.2.1:53"}},
		{"setuid program", "gain rights", []string{setuid}},
		{"device file", "device", []string{p.write}},
		{"chroot", "chroot", nil},
		{"keys of the session", "session keys", nil},
		{"add a key", "add a key", nil},
		{"program in the kernel", "program in the kernel", nil},
		{"measure the kernel", "measure the kernel", nil},
		{"log of the kernel", "log of the kernel", nil},
		{"socket of a virtual machine", "socket of a virtual machine", nil},
		{"io_uring", "ring of the kernel", nil},
		{"disk", "write", []string{"/dev/sda"}},
		{"memory of the machine", "write", []string{"/dev/mem"}},
		{"messages of the kernel", "write", []string{"/dev/kmsg"}},
		{"/sys", "list", []string{"/sys"}},
		{"settings of the kernel", "write", []string{"/proc/sys/kernel/domainname"}},
		{"settings of its process", "write", []string{"/proc/self/oom_score_adj"}},
		{"keys of the kernel", "write", []string{"/proc/sysrq-trigger"}},
		{"host name", "host name", nil},
		{"reboot", "reboot", nil},
		{"variables of the gateway", "variables", nil},
		{"terminal", "open the terminal", nil},
		{"memory in files of /tmp", "fill memory by files", nil},
	} {
		t.Run(e.what, func(t *testing.T) {
			if got := p.run(t, box, nil, append([]string{e.attempt}, e.args...)...); !strings.HasPrefix(got, "refused: ") ||
				strings.Contains(got, "unexpected") {
				t.Errorf("got %q, want a refusal", got)
			} else {
				t.Log(got)
			}
		})
	}
}

// Without an escape, the same process reads, writes and ends: a refusal above is not a failure of the helper.
func TestSandboxPermitsWhatIsListed(t *testing.T) {
	p := newPlace(t)
	real := filepath.Join(p.hidden, "linked")
	if err := os.Mkdir(real, 0o777); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(p.hidden, "link")
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	s := p.settings()
	s.Write = append(s.Write, link)
	box := p.open(t, s)
	for _, a := range [][]string{{"none"}, {"read", p.read + "/file"}, {"write", p.write + "/file"}, {"write", "/tmp/x"},
		{"write", "/home/sandbox/x"}, {"write", link + "/a"}, {"write", real + "/b"}, {"list", "/proc/self"}} {
		if got := p.run(t, box, nil, a...); !strings.HasPrefix(got, "escaped") {
			t.Errorf("%v: got %q", a, got)
		}
	}
	for _, file := range []string{p.write + "/file", real + "/a", real + "/b"} {
		if _, err := os.Stat(file); err != nil {
			t.Error(err)
		}
	}
	address := listen(t, "tcp", "127.0.0.1:0")
	s.Network = config.NetworkHost
	if got := p.run(t, p.open(t, s), nil, "connect", "tcp", address); !strings.HasPrefix(got, "escaped") {
		t.Errorf("network of the machine: got %q", got)
	}
}

func TestLimitsStopProcesses(t *testing.T) {
	p := newPlace(t)
	without := p.open(t, p.settings())
	for _, l := range []struct {
		words []string
		limit func(s *config.Sandbox)
		want  string
	}{
		{[]string{"much memory"}, func(s *config.Sandbox) { s.AddressSpace = 4 << 30 }, ""}, // the race detector needs more
		{[]string{"large file", p.write}, func(s *config.Sandbox) { s.FileSize = 1 << 20 }, "refused: write"},
		{[]string{"many files"}, func(s *config.Sandbox) { s.OpenFiles = 100 }, "too many open files"},
	} {
		if got := p.run(t, without, nil, l.words...); !strings.HasPrefix(got, "escaped") {
			t.Errorf("%v without limits: got %q", l.words, got)
		}
		s := p.settings()
		l.limit(s)
		got := p.run(t, p.open(t, s), nil, l.words...)
		if strings.HasPrefix(got, "escaped") || !strings.Contains(got, l.want) {
			t.Errorf("%v: got %q, want %q", l.words, got, l.want)
		}
		t.Log(l.words, got)
	}
	s := p.settings()
	s.FileSize = 1 << 20
	if got := p.run(t, p.open(t, s), nil, "larger limit"); !strings.HasPrefix(got, "refused: operation not permitted") {
		t.Errorf("larger limit: got %q", got)
	}
	s = p.settings()
	s.CPUTime = config.Duration(time.Second)
	if got := p.run(t, p.open(t, s), nil, "much time"); !strings.Contains(got, "137") { // 128 and SIGKILL
		t.Errorf("got %q, want the status of a killed process", got)
	}
}

func TestLimitStopsManyProcesses(t *testing.T) {
	p := newPlace(t)
	s := p.settings()
	s.Processes = 40
	if os.Getuid() == 0 {
		if _, err := sandbox.New(t.Context(), s, nil); err == nil || !strings.Contains(err.Error(), "root") {
			t.Errorf("got %v for root, to which Linux does not apply the limit", err)
		}
		return
	}
	got := p.run(t, p.open(t, s), nil, "many processes")
	if !strings.Contains(got, "temporarily unavailable") {
		t.Errorf("got %q, want no more processes", got)
	}
	t.Log(got)
}

// Files that this process inherited from its parent are not for its servers.
func TestInheritedFilesAreClosed(t *testing.T) {
	p := newPlace(t)
	fd, err := syscall.Open(filepath.Join(p.hidden, "key"), syscall.O_RDONLY, 0) // without O_CLOEXEC
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	if got := p.run(t, p.open(t, p.settings()), nil, "inherited files"); !strings.HasPrefix(got, "refused") {
		t.Errorf("got %q", got)
	}
}

func TestTerminalsReceiveNoInput(t *testing.T) {
	p := newPlace(t)
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	var locked, n int32
	for request, value := range map[uintptr]*int32{syscall.TIOCSPTLCK: &locked, syscall.TIOCGPTN: &n} {
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, master.Fd(), request,
			uintptr(unsafe.Pointer(value))); errno != 0 {
			t.Fatal(errno)
		}
	}
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	if got := p.run(t, p.open(t, p.settings()), terminal, "type into a terminal"); !strings.HasPrefix(got, "refused") {
		t.Errorf("got %q", got)
	}
}

// The processes of a sandbox end with bwrap, also if it is killed.
func TestSandboxEndsWithItsParent(t *testing.T) {
	p := newPlace(t)
	box := p.open(t, p.settings())
	cmd := exec.Command("/bin/sh", "-c", "echo started; sleep 1000; true")
	if err := box.Prepare(cmd); err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	box.Started()
	_ = w.Close()
	text := make([]byte, 100)
	if _, err := r.Read(text); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if n, err := r.Read(text); n > 0 || err == nil { // it ends when no process has the other end
		t.Errorf("got %q, %v, want the end of the processes", text[:n], err)
	}
}

// A gateway should not run as root. The tests of CI do, so they run again as another user.
func TestEscapesOfAnotherUserFail(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("the other tests run as another user")
	}
	p := newPlace(t)
	dir, err := os.MkdirTemp("/var/tmp", "sandbox-test-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	content, err := os.ReadFile(p.binary)
	if err != nil {
		t.Fatal(err)
	}
	const nobody = 65534
	for _, err := range []error{os.Chmod(dir, 0o755), os.Mkdir(dir+"/bin", 0o755),
		os.WriteFile(dir+"/bin/sandbox.test", content, 0o755),
		os.Mkdir(dir+"/tmp", 0o755), os.Chown(dir+"/tmp", nobody, nobody)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), dir+"/bin/sandbox.test", "-test.v", "-test.timeout=5m")
	cmd.Dir, cmd.Env = dir, []string{"PATH=" + os.Getenv("PATH"), "CI=true", "TMPDIR=" + dir + "/tmp", "HOME=" + dir + "/tmp",
		"GORACE=atexit_sleep_ms=0"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, test := range []string{"TestEscapesFail", "TestLimitsStopProcesses", "TestLimitStopsMany", "TestInheritedFilesAreClosed"} {
		if !strings.Contains(string(out), "--- PASS: "+test) {
			t.Errorf("%s did not run as another user", test)
		}
	}
	t.Logf("%s", out)
}

// listen accepts connections, and returns the address.
func listen(t *testing.T, network, address string) string {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	if c, err := net.Dial(network, l.Addr().String()); err != nil {
		t.Fatal(err) // the sandbox would be refused for another reason
	} else {
		_ = c.Close()
	}
	return l.Addr().String()
}

// setuidCat returns a program that runs as its owner, root if the test is root.
func setuidCat(t *testing.T, dir string) string {
	t.Helper()
	content, err := os.ReadFile("/bin/cat")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "cat")
	if err := os.WriteFile(path, content, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o755|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	return path
}

// homeOf returns the home directory of the user, with an SSH key.
func homeOf(t *testing.T) string {
	t.Helper()
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(home+"/.ssh", 0o700); err != nil {
		t.Fatal(err)
	}
	return home
}
