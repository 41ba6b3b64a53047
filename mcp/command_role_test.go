package mcp_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
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

// roleVariable makes the test binary play a server, or what a server starts, in place of running tests.
const roleVariable = "PATCHBAY_TEST_ROLE"

// roles is filled by init, since some of them play others.
var roles map[string]func(args []string)

// leaveGroup makes a process one that is not followed, where that is possible.
var leaveGroup = func(*exec.Cmd) {}

func init() {
	roles = map[string]func(args []string){
		"echo":     func([]string) { echoLines() },
		"server":   func([]string) { serveStdio() },
		"env":      func([]string) { sendWords("env", os.Environ()) },
		"cwd":      func([]string) { dir, _ := os.Getwd(); sendWords("cwd", []string{dir, os.Getenv("PWD")}) },
		"args":     func(args []string) { sendWords("args", args) },
		"deaf":     func([]string) { ready(); waitForever() },
		"stubborn": func([]string) { signal.Ignore(syscall.SIGTERM); ready(); waitForever() },
		"fail":     func(args []string) { fmt.Fprint(os.Stderr, args[0]); os.Exit(3) },
		"abort":    func([]string) { killSelf() },
		"mute":     func([]string) { ready(); os.Stdout.Close(); waitForever() },
		"flood":    func(args []string) { writeStderr(args[0]); echoLines() },
		"long":     func([]string) { writeLongLine(); echoLines() },
		"daemon":   func([]string) { ready(); waitForever() },
		"garbage":  func([]string) { writeInvalidLines() },
		"farewell": func([]string) { echoLines(); fmt.Println(strings.Repeat("bye ", 1<<18)) },
		"tree":     spawnRoles,
		"middle":   hostRole,
	}
	if role := roles[os.Getenv(roleVariable)]; role != nil {
		role(os.Args[1:])
		os.Exit(0)
	}
}

// play returns the command for a role.
func roleCommand(t testing.TB, role string, args ...string) *mcp.CommandTransport {
	t.Helper()
	s := mcp.Command(testBinary(t), args...)
	s.Env = []string{roleVariable + "=" + role, "GORACE=atexit_sleep_ms=0"} // the race detector is slow to leave
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

// tell sends a notification with an array of strings.
func sendWords(method string, words []string) {
	params, _ := json.Marshal(map[string]any{"words": words})
	fmt.Printf(`{"jsonrpc":"2.0","method":%q,"params":%s}`+"\n", method, params)
}

// ready tells who runs.
func ready() { sendWords("ready", []string{fmt.Sprint(os.Getpid())}) }

// echo answers every line with itself until there are no more.
func echoLines() {
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		fmt.Println(in.Text())
	}
}

// note adds a line to a file.
func appendLine(name string) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	if _, err := fmt.Fprintln(f, "here"); err != nil {
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
		fmt.Fprintln(os.Stderr, "I was asked to")
		os.Exit(7)
		return "", nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "pid"}, func(context.Context, struct{}) (string, error) { return fmt.Sprint(os.Getpid()), nil })
	mcp.AddTool(s, &mcp.Tool{Name: "daemon"}, func(context.Context, struct{}) (string, error) {
		return fmt.Sprint(startRole("daemon", os.Stdout)), nil
	})
	if err := s.Run(context.Background(), mcp.Stdio()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// waitForever ends with a signal only.
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

// flood writes so many MB to standard error, in a thousand lines each.
func writeStderr(size string) {
	block := bytes.Repeat([]byte(strings.Repeat("x", 999)+"\n"), 100)
	blocks, _ := strconv.Atoi(size + "0")
	for range blocks {
		os.Stderr.Write(block)
	}
	fmt.Fprintln(os.Stderr, "the flood is over")
}

// longLine writes a message of 20 MB and then one that is short.
func writeLongLine() {
	fmt.Printf(`{"jsonrpc":"2.0","method":"long","params":{"text":"%s"}}`+"\n", strings.Repeat("x", 20<<20))
	sendWords("short", nil)
}

func writeInvalidLines() {
	fmt.Println("Welcome to the \x1b[31mserver\x1b[0m")
	for i := range 1000 {
		fmt.Println("line", i, strings.Repeat("y", 500))
	}
	sendWords("sense", nil)
	echoLines()
}

// tree starts the roles that are its arguments but for the first, waits until they are ready, tells their process ids, and
// plays the first.
func spawnRoles(args []string) {
	pids := []string{fmt.Sprint(os.Getpid())}
	for _, role := range args[1:] {
		pids = append(pids, fmt.Sprint(startRole(role, os.Stdin, os.Stdout)))
	}
	sendWords("pids", pids)
	roles[args[0]](nil)
}

// startRole starts a role that holds files of ours open, and gives its process id when it is ready.
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

// middle is a host: it starts a tree, tells whom it started and waits to be killed.
func hostRole(args []string) {
	s := mcp.Command(os.Args[0], args...)
	s.Env = []string{roleVariable + "=tree", "GORACE=atexit_sleep_ms=0"}
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
