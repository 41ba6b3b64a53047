package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil/cmdtest"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
)

// timeout bounds the wait for output.
const timeout = time.Minute

// Bounds of the end of a server without calls in progress. One that waits for calls takes 3 seconds on
// stdio. Over HTTP, one that waits for a connection takes 5 seconds.
const (
	idleStdioExit = 2900 * time.Millisecond
	idleHTTPExit  = 4900 * time.Millisecond
)

// printEnv makes the test binary a stdio server with a tool that prints.
const printEnv = "PATCHBAY_TEST_PRINT"

func TestMain(m *testing.M) {
	if os.Getenv(featuresEnv) != "" {
		featureServer()
		return
	}
	if os.Getenv(eventsEnv) != "" {
		eventsServer()
		return
	}
	if os.Getenv(printEnv) != "" {
		printingServer()
		return
	}
	os.Exit(testhome.Main(m, buildAndRun))
}

// buildAndRun builds the command and runs the tests.
func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "patchbay-test-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	os.Setenv("PATCHBAY_STATE_DIR", filepath.Join(dir, "state")) // not the real one
	built = filepath.Join(dir, "patchbay.exe")                   // valid on every system
	if out, err := exec.Command("go", "build", "-o", built, ".").CombinedOutput(); err != nil {
		panic(fmt.Sprintf("go build: %v: %s", err, out))
	}
	return m.Run()
}

// endpoint is the path of the server.
const endpoint = "/mcp"

// built is the path of the command.
var built string

func printingServer() {
	s := mcp.NewServer("printer", "1", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "print"}, func(context.Context, struct{}) (string, error) {
		fmt.Println("a stray print")
		fmt.Fprintln(os.Stdout, `{"jsonrpc":"2.0","id":1,"result":{"forged":true}}`)
		print("another one\n")
		child := exec.Command("go", "version")
		child.Stdout = os.Stdout
		return "printed", child.Run()
	})
	if err := s.Run(context.Background(), mcp.Stdio()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A process is a running command. It is killed at the end of the test.
type process struct {
	*exec.Cmd
	t      *testing.T
	stdin  io.WriteCloser
	stdout *bufio.Reader
	stderr cmdtest.Buffer
	exited chan error
}

// start starts the built command.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	return startCommand(t, exec.Command(built, args...))
}

func startCommand(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{Cmd: cmd, t: t, exited: make(chan error, 1)}
	cmd.Stderr, cmd.WaitDelay = &p.stderr, timeout
	var err error
	if p.stdin, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = w
	p.stdout = bufio.NewReader(r)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	r.SetReadDeadline(time.Now().Add(timeout))
	go func() { p.exited <- cmd.Wait() }()
	t.Cleanup(func() {
		p.stdin.Close()
		cmd.Process.Kill()
		<-p.exited
		r.Close()
	})
	return p
}

// readLine reads one line of standard output.
func (p *process) readLine() string {
	p.t.Helper()
	line, err := p.stdout.ReadString('\n')
	if err != nil {
		p.t.Fatalf("standard output: %q, %v; standard error: %s", line, err, &p.stderr)
	}
	return strings.TrimSuffix(line, "\n")
}

// readRest reads the remaining standard output.
func (p *process) readRest() string {
	p.t.Helper()
	b, err := io.ReadAll(p.stdout)
	if err != nil {
		p.t.Fatalf("standard output: %v; standard error: %s", err, &p.stderr)
	}
	return string(b)
}

// checkExit waits for the process to exit, and checks its exit code and the time since a moment.
func (p *process) checkExit(status int, since time.Time, within time.Duration) {
	p.t.Helper()
	select {
	case err := <-p.exited:
		p.exited <- err
		if got := p.ProcessState.ExitCode(); got != status {
			p.t.Errorf("exit code %d (%v), want %d; standard error: %s", got, err, status, &p.stderr)
		}
		if took := time.Since(since); took > within {
			p.t.Errorf("the process exited after %v, want at most %v", took, within)
		}
	case <-time.After(timeout):
		p.t.Fatalf("the process did not exit within %v; standard error: %s", timeout, &p.stderr)
	}
}

func (p *process) send(lines ...string) {
	p.t.Helper()
	for _, line := range lines {
		if _, err := io.WriteString(p.stdin, line+"\n"); err != nil {
			p.t.Fatal(err)
		}
	}
}

func (p *process) signal(s os.Signal) time.Time {
	p.t.Helper()
	if runtime.GOOS == "windows" {
		p.t.Skip("Windows has no signals")
	}
	if err := p.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
	return time.Now()
}

// A message is the part of a JSON-RPC message that the tests check.
type message struct {
	JSONRPC string
	ID      json.RawMessage
	Method  string
	Params  struct{ ProgressToken json.RawMessage }
	Result  json.RawMessage
	Error   json.RawMessage
}

func parse(t *testing.T, text string) message {
	t.Helper()
	var m message
	if err := json.Unmarshal([]byte(text), &m); err != nil || m.JSONRPC != "2.0" {
		t.Errorf("got %q, %v, want a JSON-RPC message", text, err)
	}
	return m
}

const (
	modern  = "2026-07-28"
	session = "2025-11-25"
	oldest  = "2024-11-05"
)

// call returns a tools/call whose progress token is its id.
func call(revision string, id int, tool, arguments string) string {
	meta := `"progressToken":` + strconv.Itoa(id)
	if revision == modern {
		meta += `,"io.modelcontextprotocol/protocolVersion":"` + modern +
			`","io.modelcontextprotocol/clientCapabilities":{}`
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":{%s},`+
		`"_meta":{%s}}}`, id, tool, arguments, meta)
}

const (
	listen = `{"jsonrpc":"2.0","id":"listen","method":"subscriptions/listen","params":{` +
		`"notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/protocolVersion":"` + modern +
		`","io.modelcontextprotocol/clientCapabilities":{}}}}`
	initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
)

func initialize(revision string) string {
	return `{"jsonrpc":"2.0","id":"initialize","method":"initialize","params":{"protocolVersion":"` + revision +
		`","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`
}

// Requirement: STDIO-15
func TestServerExitsAtEndOfInput(t *testing.T) {
	p := start(t, "serve", "--stdio")
	begin := time.Now()
	p.stdin.Close()
	if got := p.readRest(); got != "" {
		t.Errorf("standard output %q, want nothing", got)
	}
	p.checkExit(0, begin, idleStdioExit)
}

func TestGoRunExitsAtEndOfInput(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "run", ".", "serve", "--stdio")
	cmd.Stdin = null
	out, err := cmd.Output()
	if err != nil || len(out) > 0 {
		t.Errorf("got %q, %v, want no output and no error", out, err)
	}
}

// Calls in progress are answered before the process exits.
func TestStdioAnswersCallsInProgress(t *testing.T) {
	const calls = 20
	for name, stop := range map[string]func(p *process) time.Time{
		"SIGTERM":          func(p *process) time.Time { return p.signal(syscall.SIGTERM) },
		"SIGINT":           func(p *process) time.Time { return p.signal(os.Interrupt) },
		"end of the input": func(p *process) time.Time { p.stdin.Close(); return time.Now() },
		"SIGTERM within a line": func(p *process) time.Time {
			io.WriteString(p.stdin, `{"jsonrpc":"2.0","id":99,"meth`)
			return p.signal(syscall.SIGTERM)
		},
	} {
		for _, revision := range []string{modern, session} {
			t.Run(name+"/"+revision, func(t *testing.T) {
				p := start(t, "serve", "--stdio")
				if revision != modern {
					p.send(initialize(revision))
					p.readLine()
					p.send(initialized)
				}
				p.send(listen)
				if m := parse(t, p.readLine()); m.Method != "notifications/subscriptions/acknowledged" {
					t.Fatalf("the subscription got %q, want an acknowledgement", m.Method)
				}
				begun := map[string]bool{}
				for id := range calls {
					p.send(call(revision, id, "count", `"steps":8`))
				}
				answered := map[string]bool{}
				handle := func(line string) {
					switch m := parse(t, line); {
					case m.Method == "notifications/progress":
						begun[string(m.Params.ProgressToken)] = true
					case m.Method == "":
						answered[string(m.ID)] = m.Error == nil
					}
				}
				for len(begun) < calls {
					handle(p.readLine())
				}
				stopped := stop(p)
				for line := range strings.Lines(p.readRest()) {
					handle(strings.TrimSuffix(line, "\n"))
				}
				for id := range calls {
					if !answered[strconv.Itoa(id)] {
						t.Errorf("call %d has no result", id)
					}
				}
				if !answered[`"listen"`] {
					t.Error("the subscription has no result")
				}
				p.checkExit(0, stopped, 3*time.Second)
			})
		}
	}
}

func TestIdleStdioExitsAtOnce(t *testing.T) {
	p := start(t, "serve", "--stdio")
	p.send(initialize(session))
	p.readLine()
	p.send(initialized, listen)
	p.readLine()
	signalled := p.signal(syscall.SIGTERM)
	p.readRest()
	p.checkExit(0, signalled, idleStdioExit)
}

// A second signal does not wait for calls in progress.
func TestSecondSignalExitsAtOnce(t *testing.T) {
	for _, transport := range []string{"stdio", "HTTP"} {
		t.Run(transport, func(t *testing.T) {
			var p *process
			if transport == "stdio" {
				p = start(t, "serve", "--stdio")
				p.send(call(modern, 1, "count", `"steps":50`))
				p.readLine() // the call has begun
			} else {
				var s *httpServer
				s, p = startHTTP(t)
				s.post(t, modern, "", call(modern, 1, "count", `"steps":50`)).next()
			}
			signalled := p.signal(syscall.SIGTERM)
			for { // signals sent before the first one is handled count as one
				select {
				case err := <-p.exited:
					p.exited <- err
					if took := time.Since(signalled); took > 4*time.Second {
						t.Errorf("the process exited after %v, want at most 4 s", took)
					}
					return
				case <-time.After(50 * time.Millisecond):
					p.Process.Signal(syscall.SIGTERM)
				}
			}
		})
	}
}

// Standard output has only messages, even if a tool prints.
//
// Requirement: STDIO-03
func TestStdoutHasOnlyMessages(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), printEnv+"=1")
	p := startCommand(t, cmd)
	const calls = 20
	for id := range calls {
		p.send(call(modern, id, "print", ""))
	}
	for range calls {
		if m := parse(t, p.readLine()); !strings.Contains(string(m.Result), "printed") {
			t.Errorf("got result %s, error %s, want the text printed", m.Result, m.Error)
		}
	}
	p.stdin.Close()
	if got := p.readRest(); got != "" {
		t.Errorf("standard output %q, want nothing", got)
	}
	p.checkExit(0, time.Now(), timeout)
	if got := p.stderr.String(); strings.Count(got, "a stray print") != calls || strings.Count(got, "forged") != calls {
		t.Errorf("standard error %s, want each printed line %d times", got, calls)
	}
}

// An httpServer is the demo server at its address.
type httpServer struct {
	url string
	ctx context.Context
}

// A config is a client configuration that the server prints.
type config struct {
	Servers map[string]struct {
		Type, URL, Command string
		Args               []string
	} `json:"mcpServers"`
}

// readAnnouncement parses the output of a server that starts.
func readAnnouncement(t *testing.T, p *process) (url string, configs []config) {
	t.Helper()
	for {
		line := p.readLine()
		if _, rest, ok := strings.Cut(line, "The demo server is running at "); ok {
			url = rest
		}
		if line == "{" {
			text := line
			for line != "}" {
				line = p.readLine()
				text += "\n" + line
			}
			var c config
			if err := json.Unmarshal([]byte(text), &c); err != nil {
				t.Fatalf("%v: %s", err, text)
			}
			configs = append(configs, c)
		}
		if strings.HasPrefix(line, "Stop with") {
			return url, configs
		}
	}
}

func startHTTP(t *testing.T) (*httpServer, *process) {
	t.Helper()
	p := start(t, "serve", "--insecure-no-auth", "--addr", "127.0.0.1:0")
	url, configs := readAnnouncement(t, p)
	if len(configs) != 2 || configs[0].Servers["patchbay-demo"].URL != url {
		t.Fatalf("the server printed address %q and configurations %+v, want two with that address", url, configs)
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	return &httpServer{url, ctx}, p
}

// A response is an HTTP response that is read line by line.
type response struct {
	*http.Response
	t     *testing.T
	lines *bufio.Reader
}

func (s *httpServer) do(t *testing.T, method, query, body string, headers ...string) *response {
	t.Helper()
	r, err := http.NewRequestWithContext(s.ctx, method, s.url+query, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Content-Type", "application/json")
	for _, h := range headers {
		if name, value, _ := strings.Cut(h, ": "); value != "" {
			r.Header.Set(name, value)
		}
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return &response{resp, t, bufio.NewReader(resp.Body)}
}

// post sends a message of a revision; id is the session id, or empty.
func (s *httpServer) post(t *testing.T, revision, id, body string) *response {
	t.Helper()
	var m struct {
		Method string
		Params struct{ Name string }
	}
	json.Unmarshal([]byte(body), &m)
	if revision != modern {
		return s.do(t, http.MethodPost, "", body, "Mcp-Session-Id: "+id)
	}
	return s.do(t, http.MethodPost, "", body, "Mcp-Protocol-Version: "+modern, "Mcp-Method: "+m.Method,
		"Mcp-Name: "+m.Params.Name)
}

// next returns the data of the next event, or the body if it is not an event stream; "" at the end.
func (r *response) next() string {
	r.t.Helper()
	for {
		line, err := r.lines.ReadString('\n')
		data, ok := strings.CutPrefix(strings.TrimSpace(line), "data: ")
		switch {
		case ok && data != "":
			return data
		case errors.Is(err, io.EOF):
			return strings.TrimSpace(line)
		case err != nil:
			r.t.Fatalf("reading the stream: %v", err)
		}
	}
}

// rest returns the data of the remaining events. It fails the test on a read error.
func (r *response) rest() (events []string) {
	r.t.Helper()
	for {
		event := r.next()
		if event == "" {
			return events
		}
		events = append(events, event)
	}
}

func (s *httpServer) openSession(t *testing.T) (id string) {
	t.Helper()
	resp := s.post(t, session, "", initialize(session))
	resp.rest()
	id = resp.Header.Get("Mcp-Session-Id")
	s.post(t, session, id, initialized).rest()
	return id
}

// openOldest opens an HTTP+SSE stream and returns it with the query of its endpoint.
func (s *httpServer) openOldest(t *testing.T) (events *response, query string) {
	t.Helper()
	events = s.do(t, http.MethodGet, "", "", "Accept: text/event-stream")
	query = events.next()
	s.do(t, http.MethodPost, query, initialize(oldest))
	if got := events.next(); !strings.Contains(got, `"protocolVersion":"`+oldest+`"`) {
		t.Fatalf("initialize: got %s, want revision %s", got, oldest)
	}
	s.do(t, http.MethodPost, query, initialized)
	return events, query
}

// Requirement: VER-07, SSE-07
func TestHTTPServerAnswersCallsInProgressOfEachEra(t *testing.T) {
	const calls = 10 // of each kind
	s, p := startHTTP(t)
	id := s.openSession(t)
	events, query := s.openOldest(t)
	var streams []*response
	for n := range calls {
		streams = append(streams, s.post(t, modern, "", call(modern, n, "count", `"steps":8`)),
			s.post(t, session, id, call(session, n, "count", `"steps":8`)))
		s.do(t, http.MethodPost, query, call(oldest, n, "count", `"steps":8`))
	}
	for _, r := range streams {
		r.next() // the call has begun
	}
	begun := map[string]bool{}
	var received []string
	for len(begun) < calls {
		line := events.next()
		received = append(received, line)
		if m := parse(t, line); m.Method == "notifications/progress" {
			begun[string(m.Params.ProgressToken)] = true
		}
	}
	signalled := p.signal(syscall.SIGTERM)
	for n, r := range streams {
		lines := r.rest()
		if len(lines) == 0 || !strings.Contains(lines[len(lines)-1], "counted to 8") {
			t.Errorf("call %d: events %q, want the result last", n, lines)
		}
	}
	results := 0
	for _, line := range append(received, events.rest()...) {
		results += strings.Count(line, "counted to 8")
	}
	if results != calls {
		t.Errorf("HTTP+SSE: %d results, want %d", results, calls)
	}
	p.checkExit(0, signalled, 3*time.Second)
}

func TestIdleHTTPExitsAtOnce(t *testing.T) {
	s, p := startHTTP(t)
	var listens, streams []*response
	for range 5 {
		r := s.post(t, modern, "", listen)
		if !strings.Contains(r.next(), "acknowledged") {
			t.Fatal("the subscription was not acknowledged")
		}
		listens = append(listens, r)
		streams = append(streams, s.do(t, http.MethodGet, "", "", "Mcp-Session-Id: "+s.openSession(t)))
		events, _ := s.openOldest(t)
		streams = append(streams, events)
	}
	idle, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(s.url, "http://"), endpoint))
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	signalled := p.signal(syscall.SIGTERM)
	for _, r := range listens {
		if lines := r.rest(); len(lines) != 1 || !strings.Contains(lines[0], `"id":"listen","result"`) {
			t.Errorf("subscription: last events %q, want its result only", lines)
		}
	}
	for _, r := range streams {
		r.rest()
	}
	idle.Close() // net/http waits for new connections; a client would close it
	p.checkExit(0, signalled, idleHTTPExit)
}

// The printed client configurations work.
func TestPrintedConfigurationsWork(t *testing.T) {
	s, _ := startHTTP(t)
	if got := s.post(t, modern, "", call(modern, 1, "add", `"a":1,"b":2`)).next(); !strings.Contains(got,
		`"text":"3"`) {
		t.Errorf("over HTTP: got %s, want 3", got)
	}
	if got := s.post(t, session, s.openSession(t),
		call(session, 1, "add", `"a":1,"b":2`)).next(); !strings.Contains(got, `"text":"3"`) {
		t.Errorf("over HTTP, with a session: got %s, want 3", got)
	}
	_, configs := readAnnouncement(t, start(t, "serve", "--insecure-no-auth", "--addr", "127.0.0.1:0"))
	server := configs[1].Servers["patchbay-demo"]
	if server.Command != built {
		t.Errorf("command %s, want %s", server.Command, built)
	}
	checkStdioServer(t, server.Command, server.Args)
}

// checkStdioServer starts a server from its configuration, as a client does, and calls a tool.
func checkStdioServer(t *testing.T, command string, args []string) {
	t.Helper()
	cmd := exec.Command(command, args...)
	cmd.Dir = t.TempDir() // clients start servers anywhere
	p := startCommand(t, cmd)
	p.send(call(modern, 1, "add", `"a":1,"b":2`))
	if m := parse(t, p.readLine()); !strings.Contains(string(m.Result), `"text":"3"`) {
		t.Errorf("%s %q: got result %s, error %s, want 3", command, args, m.Result, m.Error)
	}
	p.stdin.Close()
	if got := p.readRest(); got != "" {
		t.Errorf("standard output %q, want nothing", got)
	}
	p.checkExit(0, time.Now(), timeout)
}

func TestCommandLine(t *testing.T) {
	inUse, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer inUse.Close()
	for _, test := range []struct {
		args   []string
		status int
		output string
	}{
		{nil, 2, "Usage"},
		{[]string{"help"}, 0, "Usage"},
		{[]string{"--help"}, 0, "Usage"},
		{[]string{"version"}, 0, "patchbay "},
		{[]string{"no-such"}, 2, `unknown command "no-such"`},
		{[]string{"serve", "--no-such"}, 2, "no-such"},
		{[]string{"serve", "--help"}, 0, "-addr"},
		{[]string{"serve", "surplus"}, 2, `unexpected argument "surplus"`},
		{[]string{"serve", "--addr", inUse.Addr().String()}, 1, "--addr"},
		{[]string{"serve", "--addr", "nonsense"}, 1, "--addr"},
	} {
		p := start(t, test.args...)
		out := p.readRest()
		p.checkExit(test.status, time.Now(), timeout)
		if !strings.Contains(out+p.stderr.String(), test.output) {
			t.Errorf("%q: standard output %q, standard error %q, want %q", test.args, out, &p.stderr, test.output)
		}
	}
}

// An address without a host means loopback.
func TestAddressWithoutAHostIsLoopback(t *testing.T) {
	p := start(t, "serve", "--addr", ":0")
	if url, _ := readAnnouncement(t, p); !strings.HasPrefix(url, "http://127.0.0.1:") {
		t.Errorf("the server listens at %s, want a loopback address", url)
	}
	p.signal(syscall.SIGTERM)
}
