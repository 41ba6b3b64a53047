// Package shell implements `patchbay shell`, which runs commands over a shared connection.
package shell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/connect"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/question"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/mcp"
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

// Options are the flags of "shell".
type Options struct {
	cmdutil.Invocation
	KeepGoing bool // after a failed command of a script
}

// NewCmdShell returns the command "shell", which offers commands.
func NewCmdShell(f *cmdutil.Factory, commands func(*cmdutil.Factory) []*cobra.Command,
	run cmdutil.Run[*Options]) *cobra.Command {
	o := &Options{}
	cmd := cmdutil.TargetCommand(f, "shell", "Run several commands over one connection", nil, o, cmdutil.Or(run,
		func(ctx context.Context, o *Options) error {
			s := &Shell{base: f, Commands: commands, target: o.Target, keepGoing: o.KeepGoing}
			return s.run(ctx)
		}))
	cmd.Flags().BoolVar(&o.KeepGoing, "keep-going", false, "go on after a command of a script has failed")
	return cmd
}

// run connects and runs commands, which a user types on a terminal or a script contains.
func (s *Shell) run(ctx context.Context) error {
	p := s.base
	if p.IO.Interactive && p.Flags.LogLevel == "" {
		p.Flags.LogLevel = "info" // a user of a shell wants to see log messages
	}
	s.idle = s.newFactory(term.NewInput(strings.NewReader("")))
	s.idle.IO.Interactive, s.idle.Ask.Idle = false, true
	p.Client.Shell = s
	p.Ask.Current = func() *question.Asker { return s.active().Ask }
	p.Client.Running = func() *connect.Dialer { return s.active().Client }
	s.running.Store(p)
	c, err := s.dial(ctx, p.Client)
	s.running.Store(nil)
	if err != nil {
		return err
	}
	defer s.close()
	if p.IO.Interactive {
		return s.interact(ctx, c)
	}
	return s.script(ctx)
}

// script runs the commands of standard input. It returns the error of the first that fails.
func (s *Shell) script(ctx context.Context) error {
	first := exit.OK
	for {
		line, err := s.base.IO.In.ReadLine(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		code, over := s.command(ctx, line, term.NewInput(strings.NewReader("")))
		if first == exit.OK {
			first = code
		}
		if over || code != exit.OK && !s.keepGoing || ctx.Err() != nil {
			break
		}
	}
	if first != exit.OK {
		return &exit.Error{Code: first, Err: exit.ErrShown}
	}
	return nil
}

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

// command runs a line. over reports whether the shell must end.
func (s *Shell) command(ctx context.Context, line string, in *term.Input) (code int, over bool) {
	words, err := term.SplitWords(line)
	if err == nil && len(words) == 0 {
		return exit.OK, false
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	q := s.newFactory(in)
	q.Ask.CommandContext = ctx
	s.setCancel(cancel)
	s.running.Store(q)
	defer func() {
		s.running.Store(nil)
		s.setCancel(nil)
	}()
	if err != nil {
		return cmdutil.Finish(ctx, q, exit.UsageError(err)), false
	}
	if isExit(words) {
		return exit.OK, true
	}
	return s.runVerb(ctx, q, words), false
}

func isExit(words []string) bool {
	return len(words) == 1 && (words[0] == "exit" || words[0] == "quit")
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

func (s *Shell) banner(c *mcp.Client) {
	name := s.target.Public()
	if info := c.ServerInfo(); info.Name != "" {
		const longest = 60
		name += fmt.Sprintf(" (server name %q)", term.Shorten(term.CleanLine(info.Name), longest))
	}
	s.base.IO.Err.Printf("Connected to %s, revision %s. Type help for the commands, exit or Ctrl-D to leave.",
		term.CleanLine(name), c.Revision())
}

// Server returns the target of all commands.
func (s *Shell) Server() *target.Target { return s.target }
