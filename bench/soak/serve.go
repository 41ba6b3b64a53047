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
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// Commands for the process that serves HTTP, one word per line on its standard input.
const (
	commandRestart = "restart" // shut down gracefully and serve with another handler
	commandQuiet   = "quiet"   // collect garbage and measure
)

// A message is one line on the standard output of the process that serves HTTP.
type message struct {
	Kind    string `json:"kind"` // ready, sample, or the command that was executed
	Address string `json:"address,omitzero"`
	Sample  sample `json:"sample,omitzero"`
	Forced  bool   `json:"forced,omitzero"` // the restart closed connections of clients that do not read
}

// sessionIdle is shorter than the default, so that abandoned sessions end during the soak.
const sessionIdle = time.Minute

// serveHTTP serves until the standard input ends, and executes commands.
func serveHTTP(in io.Reader, out io.Writer) error {
	var mu sync.Mutex // guards encoder
	encoder := json.NewEncoder(out)
	send := func(m message) {
		mu.Lock()
		defer mu.Unlock()
		_ = encoder.Encode(m)
	}
	server, err := startServing("127.0.0.1:0")
	if err != nil {
		return err
	}
	go func() { // ends with the process
		for range time.Tick(time.Second) {
			send(message{Kind: "sample", Sample: measure()})
		}
	}()
	send(message{Kind: "ready", Address: server.address})
	for commands := bufio.NewScanner(in); commands.Scan(); {
		m := message{Kind: commands.Text()}
		switch m.Kind {
		case commandQuiet:
			m.Sample = measureQuiet()
		case commandRestart:
			err := server.stop()
			if m.Forced = errors.Is(err, context.DeadlineExceeded); err == nil || m.Forced {
				server, err = startServing(server.address)
			}
			if err != nil {
				return err
			}
		}
		send(m)
	}
	if err := server.stop(); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// A serving is one handler on a listener, with everything that belongs to it.
type serving struct {
	address string
	stop    func() error
}

func startServing(address string) (*serving, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	h := mcphttp.NewHandler(newServer(), &mcphttp.Options{
		Logger: newLogger(), Sessions: mcphttp.SessionOptions{IdleTimeout: sessionIdle},
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mcphttp.Serve(ctx, listener, "/mcp", h, authenticate, endpoints) }()
	return &serving{listener.Addr().String(), func() error {
		cancel()
		return <-done
	}}, nil
}

// authenticate takes the principal from the Authorization header. Requests without it are anonymous.
func authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if name := r.Header.Get("Authorization"); name != "" {
			r = r.WithContext(mcp.WithPrincipal(r.Context(), &mcp.Principal{Subject: name}))
		}
		next.ServeHTTP(w, r)
	})
}

// endpoints serves /sse as a server that supports HTTP+SSE only.
func endpoints(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/sse" {
			if r.Method == http.MethodPost && r.URL.Query().Get("sessionId") == "" {
				http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
				return
			}
			target := *r.URL
			target.Path = "/mcp"
			r = r.Clone(r.Context())
			r.URL = &target
		}
		next.ServeHTTP(w, r)
	})
}

// A serverProcess is the process that serves HTTP.
type serverProcess struct {
	address string
	cmd     *exec.Cmd
	in      io.WriteCloser
	replies chan message // to commands

	mu     sync.Mutex // guards the fields below
	last   sample
	lastAt time.Time
}

// commandTimeout bounds a command. A graceful shutdown takes at most 12 seconds, unless the machine
// is busy.
const commandTimeout = 2 * time.Minute

func startServer(program string) (*serverProcess, error) {
	p := &serverProcess{cmd: exec.Command(program), replies: make(chan message, 1), lastAt: time.Now()}
	p.cmd.Env = append(os.Environ(), roleVariable+"=serve")
	p.cmd.Stderr = os.Stderr
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go p.read(out) // ends with the process
	ready, err := p.reply()
	p.address = ready.Address
	return p, err
}

func (p *serverProcess) read(out io.Reader) {
	defer close(p.replies)
	for lines := json.NewDecoder(out); ; {
		var m message
		if lines.Decode(&m) != nil {
			return
		}
		if m.Kind != "sample" {
			p.replies <- m
			continue
		}
		p.mu.Lock()
		p.last, p.lastAt = m.Sample, time.Now()
		p.mu.Unlock()
	}
}

func (p *serverProcess) sample() sample {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

// age returns the age of the last sample.
func (p *serverProcess) age() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Since(p.lastAt)
}

// command executes a command. It must not be called concurrently.
func (p *serverProcess) command(name string) (message, error) {
	if _, err := fmt.Fprintln(p.in, name); err != nil {
		return message{}, fmt.Errorf("%s: %w", name, err)
	}
	return p.reply()
}

func (p *serverProcess) reply() (message, error) {
	select {
	case m, ok := <-p.replies:
		if !ok {
			return m, errors.New("the server process has exited")
		}
		return m, nil
	case <-time.After(commandTimeout):
		return message{}, errors.New("the server process does not answer")
	}
}

// stop ends the process. The error is its exit status.
func (p *serverProcess) stop() error {
	_ = p.in.Close()
	defer time.AfterFunc(commandTimeout, func() { _ = p.cmd.Process.Kill() }).Stop()
	for range p.replies { // until the process has closed its output
	}
	return p.cmd.Wait()
}
