//go:build unix

package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// upstreamVariable is the environment variable that makes this program an upstream: a server behind
// the gateway.
const upstreamVariable = "PATCHBAY_CHAOS_UPSTREAM"

// An upstreamConfig is what an upstream gets, as JSON in upstreamVariable.
type upstreamConfig struct {
	Dir        string // of the run
	Name       string
	HTTP       bool
	Generation int // of the gateway that has started it
	Parent     int // the process id of the upstream that has started this process; 0 for an upstream
}

// An upstream is a server process behind the gateway.
type upstream struct {
	config  upstreamConfig
	process string // identifies the process; the system uses process ids again
	runs    *journal
	mcp     *mcp.Server

	mu   sync.Mutex      // guards the field below
	lost map[string]bool // sessions that the server no longer has
}

// serveUpstream is the process of an upstream.
func serveUpstream(config string) error {
	u := &upstream{process: "process-" + rand.Text(), lost: map[string]bool{}}
	if err := json.Unmarshal([]byte(config), &u.config); err != nil {
		return err
	}
	var err error
	if u.runs, err = openJournal(u.config.Dir + "/journal"); err != nil {
		return err
	}
	pid, generation := fmt.Sprint(os.Getpid()), fmt.Sprint(u.config.Generation)
	if err := u.runs.write("start", u.config.Name, pid, generation); err != nil {
		return err
	}
	u.at(stepStart)
	keys, err := readKeys(u.config.Dir + "/state.keys")
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	u.mcp = mcp.NewServer(u.config.Name, "1", &mcp.ServerOptions{Logger: log, StateKeys: keys})
	mcp.AddTool(u.mcp, &mcp.Tool{Name: "echo"}, u.echo)
	mcp.AddTool(u.mcp, &mcp.Tool{Name: "stream"}, u.stream)
	mcp.AddTool(u.mcp, &mcp.Tool{Name: "ask"}, u.ask)
	if u.config.HTTP {
		return u.serveHTTP(log)
	}
	if err := u.startHelper(); err != nil {
		return err
	}
	conn := stepConn{mcp.NewStreamConn(os.Stdin, os.Stdout, nil), u}
	return mcp.Serve(context.Background(), u.mcp, conn, &mcp.ServeOptions{Logger: log})
}

// startHelper starts a process that does not end by itself and keeps the output of the upstream open,
// as the server has that a package runner starts: the gateway must end it with the upstream.
func (u *upstream) startHelper() error {
	config := u.config
	config.Parent = os.Getpid()
	text, err := json.Marshal(config)
	if err != nil {
		return err
	}
	helper := exec.Command("sleep", "3600")
	helper.Env = append(os.Environ(), upstreamVariable+"="+string(text)) // the last value counts
	helper.Stdout, helper.Stderr = os.Stdout, os.Stderr
	return helper.Start()
}

// A stepConn executes the actions of the steps of messages.
type stepConn struct {
	mcp.Conn
	upstream *upstream
}

// Read reads a message.
func (c stepConn) Read(ctx context.Context) (*jsonrpc.Message, error) {
	m, err := c.Conn.Read(ctx)
	if err == nil {
		c.upstream.atMethod(m.Method)
	}
	return m, err
}

// Write writes a message.
func (c stepConn) Write(ctx context.Context, m *jsonrpc.Message) error {
	err := c.Conn.Write(ctx, m)
	if err == nil && m.Method == "" && bytes.Contains(m.Result, []byte(`"content"`)) {
		c.upstream.at(stepSent)
	}
	return err
}

func (u *upstream) atMethod(method string) (action string) {
	switch method {
	case "initialize", "server/discover":
		return u.at(stepInitialize)
	case "tools/call":
		return u.at(stepReceived)
	}
	return ""
}

// serveHTTP serves until the parent has exited.
func (u *upstream) serveHTTP(log *slog.Logger) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	line, err := json.Marshal(announcement{Address: listener.Addr().String()})
	if err != nil {
		return err
	}
	fmt.Println(string(line))
	go exitWithParent()
	handler := mcphttp.NewHandler(u.mcp, &mcphttp.Options{Logger: log})
	server := &http.Server{Handler: u.steps(handler), ReadHeaderTimeout: 10 * time.Second,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	return server.Serve(listener)
}

func exitWithParent() {
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(1)
}

// steps executes the actions of the steps of requests, and loses sessions.
func (u *upstream) steps(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		var message struct{ Method string }
		_ = json.Unmarshal(body, &message) // the handler refuses what is invalid
		action := u.atMethod(message.Method)
		id := r.Header.Get("Mcp-Session-Id")
		u.mu.Lock()
		if action == loseSession && id != "" {
			u.lost[id] = true
		}
		lost := u.lost[id]
		u.mu.Unlock()
		if lost {
			http.Error(w, "the session does not exist", http.StatusNotFound)
			return
		}
		next.ServeHTTP(w, r)
		if message.Method == "tools/call" {
			_ = http.NewResponseController(w).Flush() // an error says that the client has gone
			u.at(stepSent)
		}
	})
}

// upstreamArguments are the arguments of all tools.
type upstreamArguments struct {
	Nonce     string `json:"nonce"`
	Principal string `json:"principal"`
	Count     int    `json:"count,omitempty"`
	Millis    int    `json:"millis,omitempty"`
	Padding   string `json:"padding,omitempty"`
}

func (in *upstreamArguments) text() string { return answerText(in.Principal, in.Nonce) }

// begin records that a tool runs. A handler that asks is run again for each answer, and records it
// once: a second line is a second call.
func (u *upstream) begin(ctx context.Context, in *upstreamArguments) error {
	_, err := mcp.Once(ctx, "begin", func(context.Context) (bool, error) {
		return true, u.runs.write("begin", in.Nonce, in.Principal, u.config.Name, u.instance(ctx))
	})
	u.at(stepCall)
	return err
}

// instance identifies the connection that a request arrived on, as far as the server knows it.
func (u *upstream) instance(ctx context.Context) string {
	if !u.config.HTTP {
		return u.process
	}
	if id := http.Header(mcp.RequestFrom(ctx).Header).Get("Mcp-Session-Id"); id != "" {
		return "session-" + id
	}
	return "-"
}

// run records the effect of a call.
func (u *upstream) run(in *upstreamArguments) error {
	err := u.runs.write("run", in.Nonce)
	u.at(stepRan)
	return err
}

func (u *upstream) echo(ctx context.Context, in upstreamArguments) (string, error) {
	if err := u.begin(ctx, &in); err != nil {
		return "", err
	}
	if err := wait(ctx, in.Millis); err != nil {
		return "", err
	}
	return strings.TrimSpace(in.text() + " " + in.Padding), u.run(&in)
}

// stream sends numbered progress notifications and log messages before its result.
func (u *upstream) stream(ctx context.Context, in upstreamArguments) (string, error) {
	if err := u.begin(ctx, &in); err != nil {
		return "", err
	}
	for i := range in.Count {
		if err := wait(ctx, in.Millis); err != nil {
			return "", err
		}
		mcp.Progress(ctx, float64(i+1), float64(in.Count), in.text())
		mcp.Logger(ctx).Info(in.text(), "n", i+1)
		u.at(stepProgress)
	}
	return in.text(), u.run(&in)
}

// ask asks questions, one after the other, and has its effect after the last answer.
func (u *upstream) ask(ctx context.Context, in upstreamArguments) (string, error) {
	if err := u.begin(ctx, &in); err != nil {
		return "", err
	}
	text := in.text()
	for i := range in.Count {
		u.at(stepQuestion)
		word, err := mcp.Ask[string](ctx, fmt.Sprint("word", i), in.text(), nil)
		if err != nil {
			return "", err
		}
		u.at(stepAnswer)
		text += " " + word
	}
	return text, u.run(&in)
}
