package root

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/shell"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/connect"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/userdir"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/visible"
)

// A terminalTest is a shell on a pseudo terminal, in a process of its own.
type terminalTest struct {
	t      *testing.T
	master *os.File
	cmd    *exec.Cmd
	exited chan error

	mu      sync.Mutex // guards the fields below
	text    string     // what the terminal got
	read    int        // bytes of text that expect has passed
	changed chan struct{}
}

// startShell runs `patchbay shell` with args on a terminal of 100 columns.
func startShell(t *testing.T, args ...string) *terminalTest {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	master, replica := openTerminal(t)
	control(t, master, func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 30, Col: 100})
	})
	cmd := exec.Command(self, append([]string{"shell"}, args...)...)
	cmd.Env = append(os.Environ(), mainEnv+"=1", "GORACE=atexit_sleep_ms=0")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = replica, replica, replica
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	replica.Close()
	x := &terminalTest{t: t, master: master, cmd: cmd, exited: make(chan error, 1), changed: make(chan struct{}, 1)}
	var work sync.WaitGroup
	work.Go(x.receive)
	work.Go(func() { x.exited <- cmd.Wait() })
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it has exited, unless the test has failed
		master.Close()
		work.Wait()
	})
	return x
}

// openTerminal opens the two ends of a pseudo terminal. The test types on the master.
func openTerminal(t *testing.T) (master, replica *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo terminals: %v", err)
	}
	var number int
	control(t, master, func(fd int) error {
		if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
			return err
		}
		number, err = unix.IoctlGetInt(fd, unix.TIOCGPTN)
		return err
	})
	replica, err = os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return master, replica
}

func control(t *testing.T, f *os.File, call func(fd int) error) {
	t.Helper()
	raw, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = call(int(fd)) }); err != nil || failed != nil {
		t.Fatal(err, failed)
	}
}

func (x *terminalTest) receive() {
	b := make([]byte, 4096)
	for {
		n, err := x.master.Read(b)
		x.mu.Lock()
		x.text += string(b[:n])
		x.mu.Unlock()
		select {
		case x.changed <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

// all returns what the terminal got.
func (x *terminalTest) all() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.text
}

// keys types on the terminal.
func (x *terminalTest) keys(text string) {
	x.t.Helper()
	if _, err := x.master.WriteString(text); err != nil {
		x.t.Fatal(err)
	}
}

// complete types a text, and presses Tab until the terminal shows the completion: on a busy machine the
// shell may give up the first ones.
func (x *terminalTest) complete(typed, want string) {
	x.t.Helper()
	x.keys(typed + "\t")
	shown := make(chan struct{})
	var again sync.WaitGroup
	again.Go(func() {
		for {
			select {
			case <-shown:
				return
			case <-time.After(2 * cmdutil.CompletionTimeout):
				_, _ = x.master.WriteString("\t")
			}
		}
	})
	defer again.Wait()
	defer close(shown)
	x.expect(want)
}

// expect waits for text, after the text of the last call.
func (x *terminalTest) expect(want string) {
	x.t.Helper()
	timeout := time.After(50 * time.Second) // before --timeout ends what hangs
	for {
		x.mu.Lock()
		shown := strings.ReplaceAll(x.text, " \b", "") // the editor wraps lines so
		after := shown[min(x.read, len(shown)):]
		at := strings.Index(after, want)
		if at >= 0 {
			x.read += at + len(want)
		}
		x.mu.Unlock()
		if at >= 0 {
			return
		}
		select {
		case <-x.changed:
		case <-timeout:
			_ = x.cmd.Process.Signal(syscall.SIGQUIT) // the stacks show where it hangs
			select {
			case <-x.exited:
			case <-time.After(10 * time.Second):
			}
			x.t.Fatalf("the terminal got %q, want %q\n%s", after, want, x.all())
		}
	}
}

// wait returns the exit code.
func (x *terminalTest) wait() int {
	x.t.Helper()
	select {
	case <-x.exited:
		return x.cmd.ProcessState.ExitCode()
	case <-time.After(time.Minute):
		x.mu.Lock()
		defer x.mu.Unlock()
		x.t.Fatalf("the shell did not exit: %q", x.text[x.read:])
		return -1
	}
}

// stdioShell runs a shell with a server that this binary serves when the variable is set.
func stdioShell(t *testing.T, variable string, flags ...string) *terminalTest {
	t.Helper()
	freshState(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	x := startShell(t, append(flags, "--env", variable+"=1", "--env", "GORACE=atexit_sleep_ms=0", "--", self)...)
	x.expect("exit or Ctrl-D to leave.")
	x.expect("> ")
	return x
}

func TestShellOnATerminal(t *testing.T) {
	for _, revision := range connect.Revisions() {
		t.Run(revision, func(t *testing.T) {
			x := stdioShell(t, serveEnv, "--revision", revision)
			x.complete("incr", "increment ")
			x.keys("\r")
			x.expect("\r\n1\r\n")
			x.keys("\x1b[A\r") // the last line again: the server has kept its state
			x.expect("\r\n2\r\n")
			x.keys("subscribe demo://counter\r")
			x.expect("listening to: ")
			x.keys("increment\r")
			x.expect("* resource updated demo://counter\r\n")
			x.expect("> ")
			x.keys("half a line\x03") // Ctrl-C discards it
			x.expect("^C")
			x.keys("ping\r")
			x.expect("answered in ")
			x.keys("no_such_tool\r")
			x.expect(`unknown command or tool "no_such_tool"`)
			x.expect("> ")
			x.keys("\x04")
			if status := x.wait(); status != exit.OK {
				t.Errorf("exit code %d, want %d", status, exit.OK)
			}
			file := filepath.Join(os.Getenv(userdir.EnvState), "shell", "history")
			want := "increment \nsubscribe demo://counter\nincrement\nping\nno_such_tool\n"
			if got := readText(t, file); got != want {
				t.Errorf("history %q, want %q", got, want)
			}
			if strings.Contains(x.all(), shell.QueryCursor) {
				t.Error("the terminal was asked for the position of the cursor")
			}
		})
	}
}

// Ctrl-C cancels a call, its question or its progress, and not the shell or its server.
func TestCtrlCCancelsTheCommandOfAShell(t *testing.T) {
	for _, revision := range []string{connect.NewestRevision(), "2025-11-25"} {
		t.Run(revision, func(t *testing.T) {
			x := stdioShell(t, serveEnv, "--revision", revision)
			x.keys("increment\r")
			x.expect("\r\n1\r\n")
			x.keys("count steps=50\r")
			x.expect("counting")
			x.keys("\x03")
			x.expect("interrupted")
			x.expect("> ")
			x.keys("deploy environment=staging\r")
			x.expect("y or n: ")
			x.keys("\x03")
			x.expect("interrupted")
			x.expect("> ")
			x.keys("deploy environment=staging\r")
			x.expect("y or n: ")
			x.keys("y\r")
			x.expect("environment: staging")
			x.expect("> ")
			x.keys("listen\r")
			x.expect("listening to: ")
			x.keys("\x03")
			x.expect("interrupted")
			x.keys("increment\r")
			x.expect("\r\n2\r\n")
			x.keys("exit\r")
			if status := x.wait(); status != exit.OK {
				t.Errorf("exit code %d, want %d", status, exit.OK)
			}
		})
	}
}

func TestShellReportsThatTheServerHasExited(t *testing.T) {
	for _, revision := range []string{connect.NewestRevision(), "2025-11-25"} {
		t.Run(revision, func(t *testing.T) {
			x := stdioShell(t, exitEnv, "--revision", revision)
			x.keys("increment\r")
			x.expect("\r\n1\r\n")
			x.keys("rpc exit\r")
			x.expect("The server has exited, and its state is lost.")
			x.keys("increment\r")
			x.expect("Connecting again")
			x.expect("\x1b[K1\r\n") // after the status line
			x.expect("> ")
			x.keys("\x04")
			if status := x.wait(); status != exit.OK {
				t.Errorf("exit code %d, want %d", status, exit.OK)
			}
		})
	}
}

// SIGTERM ends the shell, and does not run the line that is being typed.
func TestShellEndsOnSIGTERM(t *testing.T) {
	x := stdioShell(t, serveEnv)
	x.keys("increment")
	x.expect("increment")
	if err := x.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if status := x.wait(); status != exit.Interrupted || strings.Contains(x.all(), "\n1\r\n") {
		t.Errorf("exit code %d, %q, want %d", status, x.all(), exit.Interrupted)
	}
}

func TestShellCompletes(t *testing.T) {
	x := stdioShell(t, serveEnv)
	for _, test := range []struct{ typed, want string }{
		{"pin\t", "ping "},
		{"summ\t", "summarize "},
		{"tools roll\t", "tools roll_dice "},
		{"call depl\tenv\ts\t", "call deploy environment=staging "},
		{"deploy env\tp\t", "deploy environment=production "},
		{"get rev\tla\tr\t", "get review language=rust "},
		{"get review code=x l\tpy\t", "get review code=x language=python "},
		{"read demo://cou\t", "read demo://counter "},
		{"read demo://ci\tcou\tja\tci\tk\t", "read demo://cities/{country}/{city} country=japan city=kyoto "},
		{"complete demo://ci\tcou\tk\t", "complete demo://cities/{country}/{city} country=kenya "},
		{"listen demo://cou\t", "listen demo://counter "},
		{"task ca\t", "task cancel "},
		{"ping --js\t", "ping --json "},
		{"help cal\t", "help call "},
		{"'incr\t", "'increment"},
	} {
		x.keys("\x15" + test.typed) // Ctrl-U clears the line
		x.keys("|")
		x.expect(shownLine(test.want) + "|")
	}
	x.keys("\x15\x04")
	x.wait()
}

func shownLine(text string) string {
	return text[strings.LastIndexAny(strings.TrimRight(text, " "), " =/'")+1:]
}

// newShellAttacker returns a server whose names, values and notifications act on a terminal or a
// shell, or are too many.
func newShellAttacker() *mcp.Server {
	s := mcp.NewServer("attacker "+hostile, "1", nil)
	names := []string{"good", "go;id", "go$(id)", "go`id`", "go\x1b[2J", "go\u202Ex", "go id", "go" + strings.Repeat("x", 5000)}
	for i := range 3000 {
		names = append(names, fmt.Sprintf("many%d", i))
	}
	enum, err := json.Marshal(names)
	if err != nil {
		panic(err)
	}
	schema := fmt.Sprintf(`{"type":"object","properties":{"value":{"enum":%s},"go;id":{},"\u001b[2J":{}}}`, enum)
	mcp.AddTool(s, &mcp.Tool{Name: "attack", InputSchema: json.RawMessage(schema)},
		func(ctx context.Context, _ json.RawMessage) (string, error) {
			for i := range 500 {
				mcp.Logger(ctx).Info(hostile, "i", i)
			}
			return hostile, nil
		})
	for _, name := range names[:7] {
		uri := "x://" + name
		if strings.ContainsAny(name, " \x1b`\u202E") {
			continue // the server refuses them
		}
		mcp.AddResource(s, &mcp.Resource{URI: uri, Name: hostile}, func(context.Context, string) (string, error) {
			return hostile, nil
		})
	}
	type in struct {
		Value string `json:"value"`
	}
	mcp.AddPrompt(s, &mcp.Prompt{Name: "ask", Complete: map[string]mcp.CompleteFunc{
		"value": func(context.Context, string, map[string]string) ([]string, error) { return names[:100], nil },
	}}, func(context.Context, in) (string, error) { return hostile, nil })
	return s
}

// terminalCodes are what the editor itself writes.
var terminalCodes = regexp.MustCompile("\x1b\\[[0-9;]*[KJABCDGm]|[\r\n\b\a\t]")

func TestHostileServerCannotActOnTheTerminalOfAShell(t *testing.T) {
	server := newShellAttacker()
	url := listenHTTP(t, server)
	for _, revision := range []string{connect.NewestRevision(), "2025-11-25", "2024-11-05"} {
		t.Run(revision, func(t *testing.T) {
			freshState(t)
			x := startShell(t, "--revision", revision, url)
			x.expect("> ")
			x.keys("call attack value=go\t|")
			x.expect("od |")
			x.keys("\x15call attack value=\t\t")
			x.expect("many1")
			x.keys("\x07\x15attack va\tgo\t\r")
			x.expect("red \\x1b[31malert")
			x.keys("get ask value=go\t|")
			x.expect("od |")
			x.keys("\x15read x://go\t|")
			x.expect("od |")
			x.keys("\x15subscribe x://good\r")
			x.expect("listening to")
			server.ResourceUpdated("x://good")
			x.expect("* resource updated x://good")
			x.keys("\x15exit\r")
			x.wait()
			left := terminalCodes.ReplaceAllString(x.all(), "")
			if i := strings.IndexFunc(left, visible.Hidden); i >= 0 {
				t.Errorf("the terminal got %q", left[max(0, i-20):min(len(left), i+20)])
			}
			for _, bad := range []string{"go;id", "go$(", "go`", "\x1b[2J", strings.Repeat("x", 300), "many900"} {
				if strings.Contains(x.all(), bad) {
					t.Errorf("the terminal got the completion %.20q", bad)
				}
			}
		})
	}
}
