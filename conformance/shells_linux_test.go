package conformance_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// A terminal is a pseudoterminal with a shell.
type terminal struct {
	t    *testing.T
	file *os.File
	text bytes.Buffer
}

// startShell starts an interactive shell in a pseudoterminal until the test ends.
func startShell(t *testing.T, cmd *exec.Cmd) *terminal {
	t.Helper()
	main := must(os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0))(t)
	t.Cleanup(func() { main.Close() })
	var number, unlock int32
	control(t, main, syscall.TIOCGPTN, unsafe.Pointer(&number))
	control(t, main, syscall.TIOCSPTLCK, unsafe.Pointer(&unlock))
	size := [4]uint16{50, 200}
	control(t, main, syscall.TIOCSWINSZ, unsafe.Pointer(&size))
	side := must(os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0))(t)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = side, side, side
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	err := cmd.Start()
	side.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return &terminal{t: t, file: main}
}

func control(t *testing.T, f *os.File, request uintptr, argument unsafe.Pointer) {
	t.Helper()
	raw := must(f.SyscallConn())(t)
	var failed syscall.Errno
	err := raw.Control(func(fd uintptr) {
		_, _, failed = syscall.Syscall(syscall.SYS_IOCTL, fd, request, uintptr(argument))
	})
	if err != nil || failed != 0 {
		t.Fatalf("control the pseudoterminal: %v, %v", err, failed)
	}
}

func (p *terminal) send(keys string) {
	p.t.Helper()
	if _, err := p.file.WriteString(keys); err != nil {
		p.t.Fatal(err)
	}
}

// await reads until all texts have appeared since the last await, and returns what was read.
func (p *terminal) await(texts ...string) string {
	p.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	p.text.Reset()
	b := make([]byte, 4096)
	for {
		found := 0
		for _, text := range texts {
			if strings.Contains(p.text.String(), text) {
				found++
			}
		}
		if found == len(texts) {
			return p.text.String()
		}
		if err := p.file.SetReadDeadline(deadline); err != nil {
			p.t.Fatal(err)
		}
		n, err := p.file.Read(b)
		if err != nil {
			p.t.Fatalf("waiting for %q: %v; the terminal shows %q", texts, err, p.text.String())
		}
		p.text.Write(b[:n])
		if bytes.Contains(b[:n], []byte("\x1b[c")) { // fish asks what the terminal can do
			p.send("\x1b[?6c")
		}
	}
}

// shells are the command line and the first input of each shell.
var shells = map[string]struct {
	args []string
	load string
}{
	"bash": {[]string{"--norc", "--noprofile"}, "bind 'set bell-style none'; source <(patchbay completion bash)"},
	"zsh": {[]string{"-f"}, "unsetopt beep prompt_sp; autoload -U compinit; compinit -u -D; " +
		"source <(patchbay completion zsh)"},
	"fish": {[]string{"--no-config"}, "patchbay completion fish | source"},
}

// TestCompletionInShells types into the real shells, presses TAB, and looks at the words that arrive.
func TestCompletionInShells(t *testing.T) {
	patchbay := build(t, "..", "./gateway/cmd/patchbay")
	url := start(t, patchbay, "serve", "--insecure-no-auth", "--addr", "127.0.0.1:0")
	for name, shell := range shells {
		t.Run(name, func(t *testing.T) {
			path := needShell(t, name)
			work := t.TempDir()
			mark := filepath.Join(work, "started")
			write := func(file, text string) {
				if err := os.WriteFile(filepath.Join(work, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			write("user.json", `{"mcpServers": {"web": {"url": "`+url+`"}, "run": {"command": "touch", "args": ["`+mark+`"]}}}`)
			cmd := exec.Command(path, shell.args...)
			cmd.Dir = work
			cmd.Env = append(isolatedEnv(t), "TERM=xterm", "LC_ALL=C.UTF-8", "PS1=% ",
				"PATH="+filepath.Dir(patchbay)+":"+os.Getenv("PATH"), "PATCHBAY_CONFIG="+filepath.Join(work, "user.json"))
			p := startShell(t, cmd)
			p.send(shell.load + "; echo rea''dy\n")
			p.await("ready")
			for keys, want := range map[string]string{
				"patchbay ca\t" + url + " dep\tenv\tst\t":          "patchbay call " + url + " deploy environment=staging",
				"patchbay call " + url + " deploy environment=p\t": "patchbay call " + url + " deploy environment=production",
				"patchbay call " + url + " add a=1 \t5":            "patchbay call " + url + " add a=1 b=5",
				"patchbay call " + url + " add a:=1 \t5":           "patchbay call " + url + " add a:=1 b=5",
				"patchbay get web rev\tlang\tru\t":                 "patchbay get web review language=rust",
				"patchbay read web demo://cou\t":                   "patchbay read web demo://counter",
				"patchbay read '" + url + "' demo://cou\t":         "patchbay read " + url + " demo://counter",
				"patchbay too\twe\twho\t":                          "patchbay tools web who_am_i",
				"patchbay ping --revision=2024\t web":              "patchbay ping --revision=2024-11-05 web",
				"patchbay ping --revision 2024\tweb":               "patchbay ping --revision 2024-11-05 web",
				"patchbay tools ru\t nosuch\t":                     "patchbay tools run nosuch",
			} {
				p.send(keys + "\x01printf '<%s>' \x05; echo en''d\n")
				got := p.await("end\r\n")
				if words := "<" + strings.ReplaceAll(want, " ", "><") + ">"; !strings.Contains(got, words) {
					t.Errorf("%q: want the words %s; the terminal shows %q", keys, words, got)
				}
			}
			p.send("patchbay call web \t\t")
			p.await("roll_dice", "who_am_i", "deploy")
			if _, err := os.Stat(mark); err == nil {
				t.Error("completion started the command of a server")
			}
		})
	}
}

// TestManualPages checks the manual pages with mandoc, and reads one.
func TestManualPages(t *testing.T) {
	mandoc := needShell(t, "mandoc")
	dir := t.TempDir()
	if out, err := exec.Command(build(t, "..", "./gateway/cmd/patchbay"), "man", dir).CombinedOutput(); err != nil {
		t.Fatalf("patchbay man: %v: %s", err, out)
	}
	pages := must(filepath.Glob(filepath.Join(dir, "man?", "*")))(t)
	out, _ := exec.Command(mandoc, append([]string{"-T", "lint", "-W", "warning"}, pages...)...).CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if !strings.Contains(line, "missing date") { // pages of the same version are the same
			t.Error(line)
		}
	}
	page := must(exec.Command(mandoc, "-T", "utf8", filepath.Join(dir, "man1", "patchbay-call.1")).Output())(t)
	if len(pages) < 30 || !strings.Contains(string(page), "patchbay call [TOOL] [ARGUMENT…] -- COMMAND…") {
		t.Errorf("%d pages; that of call is %s", len(pages), page)
	}
}

// needShell returns the path of a program. Without it, it skips the test, or fails it in CI.
func needShell(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil && os.Getenv("CI") != "" {
		t.Fatalf("%s is not installed: apt-get install %[1]s", name)
	}
	if err != nil {
		t.Skipf("%s is not installed; conformance/run installs it", name)
	}
	return path
}
