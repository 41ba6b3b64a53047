package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// A shell runs commands about one server over one connection. Each command is a program of its own,
// which shares the streams of the shell.
type shell struct {
	base      *factory // of `patchbay shell`: its flags are the defaults of all commands
	target    *target
	keepGoing bool

	running atomic.Pointer[factory] // the command in progress; nil without one
	idle    *factory                // answers the server while no command runs
	notices noticeLimit             // of changes
	logs    noticeLimit             // of log messages
	lists   listCache

	mu        sync.Mutex // guards the fields below
	client    *mcp.Client
	transport mcp.Transport           // of client
	ended     bool                    // the connection of client has ended
	cancel    context.CancelCauseFunc // of the command in progress
	editor    *editor                 // nil for a script
	always    bool                    // notifications were asked for with `subscribe`
	watched   []string                // the URIs of `subscribe`
	listening func()                  // ends the subscription; nil without one
}

// errInterrupted is the cause of a command that Ctrl-C has ended.
var errInterrupted = errors.New("interrupted")

func shellCommand(f *factory) *cobra.Command {
	var keepGoing bool
	cmd := targetCommand(f, "shell", "Run several commands over one connection", nil,
		func(ctx context.Context, t *target, _ []string) error {
			s := &shell{base: f, target: t, keepGoing: keepGoing}
			return s.run(ctx)
		})
	cmd.Flags().BoolVar(&keepGoing, "keep-going", false, "go on after a command of a script has failed")
	return cmd
}

// run connects and runs commands: those that the user types on a terminal, or those of a script on
// standard input.
func (s *shell) run(ctx context.Context) error {
	p := s.base
	if p.IO.Interactive && p.Flags.logLevel == "" {
		p.Flags.logLevel = "info" // messages are part of what a user of a shell looks for
	}
	s.idle = s.newFactory(newInput(strings.NewReader("")))
	s.idle.IO.Interactive, s.idle.Ask.idle = false, true
	p.shell, p.Client.shared = s, s
	p.Ask.current = func() *asker { return s.active().Ask }
	p.Client.running = func() *dialer { return s.active().Client }
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
func (s *shell) script(ctx context.Context) error {
	first := exitOK
	for {
		line, err := s.base.IO.In.readLine(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		code, over := s.command(ctx, line, newInput(strings.NewReader("")))
		if first == exitOK {
			first = code
		}
		if over || code != exitOK && !s.keepGoing || ctx.Err() != nil {
			break
		}
	}
	if first != exitOK {
		return &coded{first, errShown}
	}
	return nil
}

// newFactory returns the factory of a command.
func (s *shell) newFactory(in *input) *factory {
	b, shared := s.base, *s.base.Flags
	out := &output{w: b.IO.Out.w, terminal: b.IO.Out.terminal, width: b.IO.Out.width}
	f := newFactory(&streams{In: in, Out: out, Err: b.IO.Err, Interactive: b.IO.Interactive}, &shared, b.hosts)
	f.commands = b.commands
	f.share(b.Vault, b.Observe)
	f.verifyMost, f.shell = b.verifyMost, s
	f.Login.timeout, f.Login.headless = b.Login.timeout, b.Login.headless
	f.Login.scopes.Store(b.Login.scopes.Load())
	f.Ask.answers, f.Ask.lock, f.Ask.open = b.Ask.answers, b.Ask.lock, b.Ask.open
	f.Ask.serverName.Store(b.Ask.serverName.Load())
	f.Ask.current = func() *asker { return s.active().Ask }
	f.Client.shared, f.Client.commandStderr = s, b.Client.commandStderr
	f.Client.running = func() *dialer { return s.active().Client }
	f.Client.current.Store(s.target)
	return f
}

// command runs one line. over reports whether the shell ends.
func (s *shell) command(ctx context.Context, line string, in *input) (code int, over bool) {
	words, err := splitWords(line)
	if err == nil && len(words) == 0 {
		return exitOK, false
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	q := s.newFactory(in)
	q.args, q.Ask.commandContext = words, ctx
	s.setCancel(cancel)
	s.running.Store(q)
	defer func() {
		s.running.Store(nil)
		s.setCancel(nil)
	}()
	if err != nil {
		return finish(ctx, q, usage(err)), false
	}
	if isExit(words) {
		return exitOK, true
	}
	return s.runVerb(ctx, q, words), false
}

func isExit(words []string) bool {
	return len(words) == 1 && (words[0] == "exit" || words[0] == "quit")
}

func (s *shell) setCancel(cancel context.CancelCauseFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancel = cancel
}

// interrupt cancels the command in progress.
func (s *shell) interrupt() {
	s.mu.Lock()
	cancel := s.cancel
	s.mu.Unlock()
	if cancel != nil {
		s.base.IO.Err.print("\n") // after the ^C that the terminal shows
		cancel(errInterrupted)
	}
}

// whileRunning returns a context that also ends with the command of the program.
func (a *asker) whileRunning(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	if a.commandContext == nil {
		return ctx, func() { cancel(nil) }
	}
	stop := context.AfterFunc(a.commandContext, func() { cancel(context.Cause(a.commandContext)) })
	return ctx, func() { stop(); cancel(nil) }
}

// connection returns the client of the shell. It connects again if the connection has ended.
func (s *shell) connection(ctx context.Context, d *dialer) (*mcp.Client, error) {
	s.mu.Lock()
	c, ended := s.client, s.ended
	s.mu.Unlock()
	if !ended {
		return c, nil
	}
	d.IO.Err.printf("Connecting again: the server has lost the state of the last connection.")
	s.close()
	return s.dial(ctx, d)
}

// dial connects on behalf of a program.
func (s *shell) dial(ctx context.Context, d *dialer) (*mcp.Client, error) {
	c, err := d.dial(ctx, s.target)
	s.base.Ask.serverName.Store(d.Ask.serverName.Load())
	s.idle.Ask.serverName.Store(d.Ask.serverName.Load())
	if d == s.base.Client {
		s.idle.Ask.answers = d.Ask.answers
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

// keeps reports whether the connection of a client stays open after a command.
func (s *shell) keeps(c *mcp.Client) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.client == c
}

// close closes the connection.
func (s *shell) close() {
	s.stopListening()
	s.mu.Lock()
	c := s.client
	s.client = nil
	s.mu.Unlock()
	if c != nil {
		s.base.Client.close(c)
	}
}

func (s *shell) banner(c *mcp.Client) {
	name := s.target.public()
	if info := c.ServerInfo(); info.Name != "" {
		const longest = 60
		name += fmt.Sprintf(" (server name %q)", shorten(cleanLine(info.Name), longest))
	}
	s.base.IO.Err.printf("Connected to %s, revision %s. Type help for the commands, exit or Ctrl-D to leave.",
		cleanLine(name), c.Revision())
}

// server returns the target of all commands.
func (s *shell) server() *target { return s.target }
