package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// secret is the text of files and variables that the sandbox must not reveal.
const secret = "the secret of the machine"

func init() { attempt = try }

// try prints whether an attempt succeeded.
func try(name string, args []string) {
	f, ok := attempts[name]
	if !ok {
		fmt.Println("unknown attempt")
		return
	}
	if err := f(args); err != nil {
		fmt.Println("refused:", err)
		return
	}
	fmt.Println("escaped")
}

var errNothing = errors.New("it has no effect")

// attempts returns nil if the process escapes. The arguments are of the test.
var attempts = map[string]func(args []string) error{
	"none":  func([]string) error { return nil },
	"read":  func(args []string) error { return read(args[0]) },
	"write": func(args []string) error { return write(args[0]) },
	"read by a symbolic link": func(args []string) error {
		link := filepath.Join(args[1], "link")
		return then(os.Symlink(args[0], link), func() error { return read(link) })
	},
	"write by a symbolic link": func(args []string) error {
		link := filepath.Join(args[1], "link-to-write")
		return then(os.Symlink(args[0], link), func() error { return write(link) })
	},
	"hard link":    func(args []string) error { return os.Link(args[0], filepath.Join(args[1], "hard")) },
	"rename":       func(args []string) error { return os.Rename(args[0], filepath.Join(args[1], "renamed")) },
	"chmod":        func(args []string) error { return os.Chmod(args[0], 0o777) },
	"list":         func(args []string) error { _, err := os.ReadDir(args[0]); return err },
	"kill":         func(args []string) error { return syscall.Kill(number(args[0]), 0) },
	"trace":        func(args []string) error { return syscall.PtraceAttach(number(args[0])) },
	"trace itself": func([]string) error { return call(syscall.SYS_PTRACE, syscall.PTRACE_TRACEME, 0, 0) },
	"read memory":  func(args []string) error { return call(310, uintptr(number(args[0])), 0, 0) },
	"mount":        func([]string) error { return syscall.Mount("none", "/tmp", "tmpfs", 0, "") },
	"remount": func([]string) error {
		return syscall.Mount("", "/usr", "", syscall.MS_REMOUNT|syscall.MS_BIND, "")
	},
	"unmount":                     func([]string) error { return syscall.Unmount("/tmp", syscall.MNT_DETACH) },
	"user namespace":              func([]string) error { return inNamespaces(syscall.CLONE_NEWUSER) },
	"mount namespace":             func([]string) error { return inNamespaces(syscall.CLONE_NEWNS) },
	"namespace of 1":              enterNamespace,
	"connect":                     func(args []string) error { return dial(args[0], args[1]) },
	"resolve":                     resolveName,
	"gain rights":                 gainRights,
	"device":                      func(args []string) error { return syscall.Mknod(args[0]+"/mem", syscall.S_IFCHR|0o600, 0x101) },
	"chroot":                      func([]string) error { return syscall.Chroot("/tmp") },
	"session keys":                func([]string) error { return call(syscall.SYS_KEYCTL, 6, ^uintptr(2), 0) },
	"add a key":                   addKey,
	"program in the kernel":       func([]string) error { return call(321, 0, 0, 0) },
	"measure the kernel":          func([]string) error { return call(syscall.SYS_PERF_EVENT_OPEN, 0, 0, 0) },
	"log of the kernel":           func([]string) error { return call(syscall.SYS_SYSLOG, 10, 0, 0) },
	"socket of a virtual machine": func([]string) error { return call(syscall.SYS_SOCKET, 40, syscall.SOCK_STREAM, 0) },
	"ring of the kernel":          func([]string) error { return call(425, 1, 0, 0) },
	"inherited files":             inheritedFiles,
	"variables":                   variables,
	"type into a terminal":        typeInto,
	"open the terminal":           func([]string) error { _, err := os.OpenFile("/dev/tty", os.O_RDWR, 0); return err },
	"many processes":              manyProcesses,
	"much memory":                 func([]string) error { _, err := syscall.Mmap(-1, 0, 8<<30, 3, 0x22); return err },
	"large file":                  largeFile,
	"many files":                  manyFiles,
	"much time":                   muchTime,
	"host name":                   func([]string) error { return syscall.Sethostname([]byte("other")) },
	"reboot":                      func([]string) error { return syscall.Reboot(syscall.LINUX_REBOOT_CMD_CAD_OFF) },
	"larger limit": func([]string) error {
		return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 1 << 40, Max: 1 << 40})
	},
	"fill memory by files": fillFiles,
}

func then(err error, next func() error) error {
	if err != nil {
		return fmt.Errorf("unexpected: %w", err)
	}
	return next()
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return n
}

// call makes a system call. A fault of the arguments would mean that the kernel has accepted the call itself.
func call(number, a, b, c uintptr) error {
	_, _, errno := syscall.Syscall(number, a, b, c)
	if errno == syscall.EPERM || errno == syscall.EACCES || errno == syscall.ESRCH {
		return errno
	}
	return nil
}

func read(path string) error {
	text, err := os.ReadFile(path)
	if err == nil && !strings.Contains(string(text), secret) && !strings.Contains(string(text), "root:") {
		return fmt.Errorf("%w: the content is harmless", errNothing)
	}
	return err
}

func write(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString("1")
	return errors.Join(err, f.Close())
}

func inNamespaces(flags uintptr) error {
	cmd := exec.Command("/bin/true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
	return cmd.Run()
}

func enterNamespace([]string) error {
	f, err := os.Open("/proc/1/ns/mnt")
	if err != nil {
		return err
	}
	return call(308, f.Fd(), 0, 0)
}

func dial(network, address string) error {
	c, err := net.DialTimeout(network, address, 5*time.Second)
	if err != nil {
		return err
	}
	return c.Close()
}

func resolveName(args []string) error {
	r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", args[0])
	}}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err := r.LookupHost(ctx, "name.example.")
	return err
}

// gainRights runs a copy of cat with the setuid bit.
func gainRights(args []string) error {
	out, err := exec.Command(args[0], "/proc/self/status").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	uid := strconv.Itoa(os.Getuid())
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		switch {
		case fields[0] == "Uid:" && (fields[1] != uid || fields[2] != uid):
			return nil
		case strings.HasPrefix(fields[0], "Cap") && strings.Trim(fields[1], "0") != "":
			return nil
		case fields[0] == "NoNewPrivs:" && fields[1] != "1":
			return nil
		}
	}
	return errNothing
}

func addKey([]string) error {
	kind, name := []byte("user\x00"), []byte("sandbox\x00")
	_, _, errno := syscall.Syscall6(syscall.SYS_ADD_KEY, uintptr(unsafe.Pointer(&kind[0])),
		uintptr(unsafe.Pointer(&name[0])), uintptr(unsafe.Pointer(&name[0])), 7, ^uintptr(2), 0)
	if errno == 0 {
		return nil
	}
	return errno
}

// inheritedFiles reads the files that are open at the start.
func inheritedFiles([]string) error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		target, _ := os.Readlink("/proc/self/fd/" + entry.Name())
		own := strings.HasPrefix(target, "anon_inode:") || strings.HasPrefix(target, "/proc/")
		if number(entry.Name()) > 2 && !own && target != "" {
			return nil
		}
	}
	return errNothing
}

func variables([]string) error {
	known := map[string]bool{"PATH": true, "HOME": true, "LANG": true, "TMPDIR": true, "PWD": true, "GORACE": true,
		attemptVariable: true}
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); !known[name] {
			return nil
		}
	}
	if text, err := os.ReadFile("/proc/1/environ"); err != nil || len(text) > 0 {
		return err
	}
	return errNothing
}

// typeInto makes the terminal that is the standard input its own, and types into it.
func typeInto([]string) error {
	_, _ = syscall.Setsid() // fails for the leader of a session
	_, _, _ = syscall.Syscall(syscall.SYS_IOCTL, 0, syscall.TIOCSCTTY, 1)
	text := []byte("x")
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, 0, syscall.TIOCSTI, uintptr(unsafe.Pointer(&text[0])))
	if errno != 0 {
		return errno
	}
	return nil
}

func manyProcesses([]string) error {
	for range 200 {
		cmd := exec.Command("/bin/sleep", "60")
		if err := cmd.Start(); err != nil {
			return err
		}
	}
	return nil
}

func largeFile(args []string) error {
	return os.WriteFile(filepath.Join(args[0], "large"), make([]byte, 2<<20), 0o600)
}

func manyFiles([]string) error {
	for range 1000 {
		f, err := os.Open("/dev/null")
		if err != nil {
			return err
		}
		defer f.Close()
	}
	return nil
}

// muchTime uses the processor until the kernel kills it.
func muchTime([]string) error {
	for began := time.Now(); time.Since(began) < time.Minute; {
	}
	return nil
}

// fillFiles writes to /tmp, whose files are in memory.
func fillFiles([]string) error {
	f, err := os.Create("/tmp/large")
	if err != nil {
		return err
	}
	for range 600 {
		if err := syscall.Fallocate(int(f.Fd()), 0, 0, 600<<20); err != nil {
			return err
		}
	}
	return nil
}
