// Package shell implements `patchbay shell`, which runs commands over a shared connection.
package shell

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/connect"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/question"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// A Shell runs commands about a server over a shared connection. Each command uses a Factory of its
// own, which contains the streams of the shell.
type Shell struct {
	Commands func(f *cmdutil.Factory) []*cobra.Command // returns all commands and help topics

	base      *cmdutil.Factory // of `patchbay shell`: its flags are the defaults of all commands
	target    *target.Target
	keepGoing bool

	running atomic.Pointer[cmdutil.Factory] // the command in progress; nil between commands
	idle    *cmdutil.Factory                // answers the server while no command runs
	notices connect.NoticeLimit             // of changes
	logs    connect.NoticeLimit             // of log messages
	lists   listCache

	mu        sync.Mutex // guards the fields below
	client    *mcp.Client
	transport mcp.Transport           // of client
	ended     bool                    // whether the connection of client has ended
	cancel    context.CancelCauseFunc // of the command in progress
	editor    *editor                 // nil for a script
	always    bool                    // notifications were asked for with `subscribe`
	watched   []string                // the URIs of `subscribe`
	listening func()                  // ends the subscription; nil if the shell is not subscribed
}

// errInterrupted is the cause of the context of a command that Ctrl-C ends.
var errInterrupted = errors.New("interrupted")

// newFactory returns the factory of a command.
func (s *Shell) newFactory(in *term.Input) *cmdutil.Factory {
	b, shared := s.base, *s.base.Flags
	out := &term.Output{W: b.IO.Out.W, Terminal: b.IO.Out.Terminal, Width: b.IO.Out.Width}
	f := cmdutil.New(&term.Streams{In: in, Out: out, Err: b.IO.Err, Interactive: b.IO.Interactive}, &shared)
	f.Share(b.Vault, b.Observe)
	f.Login.Timeout, f.Login.Headless = b.Login.Timeout, b.Login.Headless
	f.Login.Scopes.Store(b.Login.Scopes.Load())
	f.Ask.Answers, f.Ask.Lock, f.Ask.Open = b.Ask.Answers, b.Ask.Lock, b.Ask.Open
	f.Ask.ServerName.Store(b.Ask.ServerName.Load())
	f.Ask.Current = func() *question.Asker { return s.active().Ask }
	f.Client.Shell, f.Client.CommandStderr = s, b.Client.CommandStderr
	f.Client.Running = func() *connect.Dialer { return s.active().Client }
	f.Client.Current.Store(s.target)
	return f
}

func (s *Shell) setCancel(cancel context.CancelCauseFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancel = cancel
}

// interrupt cancels the command in progress.
func (s *Shell) interrupt() {
	s.mu.Lock()
	cancel := s.cancel
	s.mu.Unlock()
	if cancel != nil {
		s.base.IO.Err.Print("\n") // after the ^C that the terminal shows
		cancel(errInterrupted)
	}
}

// Connection returns the client of the shell. It connects again if the connection has ended.
func (s *Shell) Connection(ctx context.Context, d *connect.Dialer) (*mcp.Client, error) {
	s.mu.Lock()
	c, ended := s.client, s.ended
	s.mu.Unlock()
	if !ended {
		return c, nil
	}
	d.IO.Err.Printf("Connecting again: the server has lost the state of the last connection.")
	s.close()
	return s.dial(ctx, d)
}

// dial connects on behalf of a program.
func (s *Shell) dial(ctx context.Context, d *connect.Dialer) (*mcp.Client, error) {
	c, err := d.Dial(ctx, s.target)
	s.base.Ask.ServerName.Store(d.Ask.ServerName.Load())
	s.idle.Ask.ServerName.Store(d.Ask.ServerName.Load())
	if d == s.base.Client {
		s.idle.Ask.Answers = d.Ask.Answers
	}
	s.lists.clear()
	s.mu.Lock()
	s.client, s.ended = c, err != nil
	transport := s.transport
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	s.reportEnd(c, transport)
	s.listen()
	return c, nil
}

// Keeps reports whether the connection of a client stays open after a command.
func (s *Shell) Keeps(c *mcp.Client) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.client == c
}

// close closes the connection.
func (s *Shell) close() {
	s.stopListening()
	s.mu.Lock()
	c := s.client
	s.client = nil
	s.mu.Unlock()
	if c != nil {
		s.base.Client.Close(c)
	}
}

// Server returns the target of all commands.
func (s *Shell) Server() *target.Target { return s.target }

// reportEnd waits for the end of a connection over stdio, and reports it.
func (s *Shell) reportEnd(c *mcp.Client, t mcp.Transport) {
	l, ok := t.(driver.Lifetime)
	if !ok {
		return
	}
	if done := l.Done(); done != nil {
		go func() { // ends with the connection, which close ends
			<-done
			s.connectionEnded(c)
		}()
	}
}

func (s *Shell) connectionEnded(c *mcp.Client) {
	s.mu.Lock()
	current := s.client == c
	if current {
		s.ended = true
	}
	s.mu.Unlock()
	if current {
		s.stopListening()
		s.base.IO.Err.Printf("The server has exited, and its state is lost. The next command starts it again.")
	}
}

// A listCache holds the lists that completion read from the server, and failures to read them.
type listCache struct {
	mu      sync.Mutex // guards the field below
	entries map[string]cachedList
}

type cachedList struct {
	value any
	until time.Time
}

func (l *listCache) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.entries)
}

// active returns the factory of the command in progress, or that of no command.
func (s *Shell) active() *cmdutil.Factory {
	if f := s.running.Load(); f != nil {
		return f
	}
	return s.idle
}
