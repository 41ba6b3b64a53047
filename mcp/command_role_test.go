package mcp_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// roleVariable makes the test binary run a role, such as a server or a child process of one,
// instead of tests.
const roleVariable = "PATCHBAY_TEST_ROLE"

// roles are functions by name. Init sets them, since some of them start others.
var roles map[string]func(args []string)

// leaveGroup starts a process outside the process group of its parent, if the platform can do that.
var leaveGroup = func(*exec.Cmd) {}

func init() {
	roles = map[string]func(args []string){
		"echo":           func([]string) { echoLines() },
		"server":         func([]string) { serveStdio() },
		"env":            func([]string) { sendWords("env", os.Environ()) },
		"cwd":            func([]string) { dir, _ := os.Getwd(); sendWords("cwd", []string{dir, os.Getenv("PWD")}) },
		"args":           func(args []string) { sendWords("args", args) },
		"idle":           func([]string) { ready(); waitForever() },
		"silent":         func([]string) { _, _ = io.Copy(io.Discard, os.Stdin) },
		"ignore-sigterm": func([]string) { signal.Ignore(syscall.SIGTERM); ready(); waitForever() },
		"fail":           func(args []string) { fmt.Fprint(os.Stderr, args[0]); os.Exit(3) },
		"abort":          func([]string) { killSelf() },
		"close-stdout":   func([]string) { ready(); os.Stdout.Close(); waitForever() },
		"write-stderr":   func(args []string) { writeStderr(args[0]); echoLines() },
		"write-long":     func([]string) { writeLongLine(); echoLines() },
		"daemon":         func([]string) { ready(); waitForever() },
		"write-invalid":  func([]string) { writeInvalidLines() },
		"write-at-end":   func([]string) { echoLines(); fmt.Println(strings.Repeat("end ", 1<<18)) },
		"spawn":          spawnRoles,
		"host":           hostRole,
		"session-only":   func([]string) { serveSessionOnly() },
	}
	if role := roles[os.Getenv(roleVariable)]; role != nil {
		role(os.Args[1:])
		os.Exit(0)
	}
}

// roleCommand returns a command that runs a role.
func roleCommand(t testing.TB, role string, args ...string) *mcp.CommandTransport {
	t.Helper()
	s := mcp.Command(testBinary(t), args...)
	s.Env = []string{roleVariable + "=" + role, "GORACE=atexit_sleep_ms=0"} // the race detector sleeps at exit
	return s
}

func testBinary(t testing.TB) string {
	t.Helper()
	name, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// sendWords sends a notification with an array of strings.
func sendWords(method string, words []string) {
	params, _ := json.Marshal(map[string]any{"words": words})
	fmt.Printf(`{"jsonrpc":"2.0","method":%q,"params":%s}`+"\n", method, params)
}

// ready sends the process id.
func ready() { sendWords("ready", []string{fmt.Sprint(os.Getpid())}) }

// echoLines copies standard input to standard output by lines.
func echoLines() {
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		fmt.Println(in.Text())
	}
}

// appendLine appends a line to a file.
func appendLine(name string) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	if _, err := fmt.Fprintln(f, "exit"); err != nil {
		panic(err)
	}
}

func serveStdio() {
	s := mcp.NewServer("child", "1", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "exit"}, func(_ context.Context, in struct {
		Log string `json:"log,omitempty"`
	}) (string, error) {
		if in.Log != "" {
			appendLine(in.Log)
		}
		fmt.Fprintln(os.Stderr, "exit requested")
		os.Exit(7)
		return "", nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "pid"}, func(context.Context, struct{}) (string, error) {
		return fmt.Sprint(os.Getpid()), nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "daemon"}, func(context.Context, struct{}) (string, error) {
		return fmt.Sprint(startRole("daemon", os.Stdout)), nil
	})
	if err := s.Run(context.Background(), mcp.Stdio()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serveSessionOnly exits when it receives a request of a revision that has no sessions.
func serveSessionOnly() {
	first, err := bufio.NewReader(os.Stdin).ReadBytes('\n')
	if err != nil || !bytes.Contains(first, []byte(`"initialize"`)) {
		os.Exit(1)
	}
	s := mcp.NewServer("child", "1", &mcp.ServerOptions{Revisions: []string{"2025-11-25"}})
	in := io.MultiReader(bytes.NewReader(first), os.Stdin)
	if err := s.Run(context.Background(), mcp.NewStreamConn(in, os.Stdout, nil)); err != nil {
		os.Exit(1)
	}
}

// waitForever waits until a signal ends the process.
func waitForever() {
	for {
		time.Sleep(time.Hour)
	}
}

func killSelf() {
	p, _ := os.FindProcess(os.Getpid())
	p.Kill()
	waitForever()
}

// writeStderr writes a number of MB to standard error, in lines of 1000 bytes.
func writeStderr(size string) {
	block := bytes.Repeat([]byte(strings.Repeat("x", 999)+"\n"), 100)
	blocks, _ := strconv.Atoi(size + "0")
	for range blocks {
		os.Stderr.Write(block)
	}
	fmt.Fprintln(os.Stderr, "end")
}

// writeLongLine writes a message of 20 MB and then a short one.
func writeLongLine() {
	fmt.Printf(`{"jsonrpc":"2.0","method":"long","params":{"text":"%s"}}`+"\n", strings.Repeat("x", 20<<20))
	sendWords("short", nil)
}

// writeInvalidLines writes lines that are not messages, then one that is.
func writeInvalidLines() {
	fmt.Println("Welcome to the \x1b[31mserver\x1b[0m")
	for i := range 1000 {
		fmt.Println("line", i, strings.Repeat("y", 500))
	}
	sendWords("valid", nil)
	echoLines()
}

// spawnRoles starts the roles in args[1:] as processes, sends their ids when they are ready, and
// runs the role args[0].
func spawnRoles(args []string) {
	pids := []string{fmt.Sprint(os.Getpid())}
	for _, role := range args[1:] {
		pids = append(pids, fmt.Sprint(startRole(role, os.Stdin, os.Stdout)))
	}
	sendWords("pids", pids)
	roles[args[0]](nil)
}

// startRole starts a process that runs a role and holds files of this one open. It returns its id
// when it is ready.
func startRole(role string, held ...*os.File) int {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	ready, err := cmd.StdoutPipe()
	if err != nil {
		panic(err)
	}
	if role == "daemon" {
		leaveGroup(cmd)
	}
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = held
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	if _, err := bufio.NewReader(ready).ReadString('\n'); err != nil {
		panic(err)
	}
	return cmd.Process.Pid
}

// hostRole starts the roles in args as servers, sends their process ids and waits.
func hostRole(args []string) {
	s := mcp.Command(os.Args[0], args...)
	s.Env = []string{roleVariable + "=spawn", "GORACE=atexit_sleep_ms=0"}
	c, err := s.Dial(context.Background())
	if err != nil {
		panic(err)
	}
	m, err := c.Read(context.Background())
	if err != nil {
		panic(err)
	}
	fmt.Printf(`{"jsonrpc":"2.0","method":"pids","params":%s}`+"\n", m.Params)
	waitForever()
}
