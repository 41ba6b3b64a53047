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
	base      *program // of `patchbay shell`: its flags are the defaults of all commands
	target    *target
	keepGoing bool

	running atomic.Pointer[program] // the command in progress; nil without one
	idle    *program                // answers the server while no command runs
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

func (p *program) shellCommand() *cobra.Command {
	var keepGoing bool
	cmd := p.targetCommand("shell", "Run several commands over one connection", nil,
		func(ctx context.Context, t *target, _ []string) error {
			s := &shell{base: p, target: t, keepGoing: keepGoing}
			return s.run(ctx)
		})
	cmd.Flags().BoolVar(&keepGoing, "keep-going", false, "go on after a command of a script has failed")
	return cmd
}

// run connects and runs commands: those that the user types on a terminal, or those of a script on
// standard input.
func (s *shell) run(ctx context.Context) error {
	p := s.base
	if p.interactive && p.flags.logLevel == "" {
		p.flags.logLevel = "info" // messages are part of what a user of a shell looks for
	}
	s.idle = s.newProgram(newInput(strings.NewReader("")))
	s.idle.interactive, s.idle.idle = false, true
	p.shell, p.session = s, s
	s.running.Store(p)
	c, err := s.dial(ctx, p)
	s.running.Store(nil)
	if err != nil {
		return err
	}
	defer s.close()
	if p.interactive {
		return s.interact(ctx, c)
	}
	return s.script(ctx)
}

// script runs the commands of standard input. It returns the error of the first that fails.
func (s *shell) script(ctx context.Context) error {
	first := exitOK
	for {
		line, err := s.base.input.readLine(ctx)
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

// newProgram returns the program of a command.
func (s *shell) newProgram(in *input) *program {
	b := s.base
	q := &program{
		flags: b.flags, input: in, screen: b.screen, interactive: b.interactive, vault: b.vault,
		output: &output{w: b.output.w, terminal: b.output.terminal, width: b.output.width,
			colored: b.output.colored},
		loginTime: b.loginTime, verifyMost: b.verifyMost, commandStderr: b.commandStderr, answers: b.answers,
		terminalLock: b.terminalLock, taskStarted: b.taskStarted, open: b.open, shell: s, session: s,
	}
	q.hostNamed = q.namedHost
	q.current.Store(s.target)
	q.serverName.Store(b.serverName.Load())
	q.scopes.Store(b.scopes.Load())
	return q
}

// command runs one line. over reports whether the shell ends.
func (s *shell) command(ctx context.Context, line string, in *input) (code int, over bool) {
	words, err := splitWords(line)
	if err == nil && len(words) == 0 {
		return exitOK, false
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	q := s.newProgram(in)
	q.args, q.commandContext = words, ctx
	s.setCancel(cancel)
	s.running.Store(q)
	defer func() {
		s.running.Store(nil)
		s.setCancel(nil)
	}()
	if err != nil {
		return q.report(ctx, usage(err)), false
	}
	if isExit(words) {
		return exitOK, true
	}
	return q.runVerb(ctx, words), false
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
		s.base.screen.print("\n") // after the ^C that the terminal shows
		cancel(errInterrupted)
	}
}

// active returns the program that handles what the server sends: in a shell that of the command in
// progress.
func (p *program) active() *program {
	if p.shell == nil {
		return p
	}
	if q := p.shell.running.Load(); q != nil {
		return q
	}
	return p.shell.idle
}

// whileRunning returns a context that also ends with the command of the program.
func (p *program) whileRunning(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	if p.commandContext == nil {
		return ctx, func() { cancel(nil) }
	}
	stop := context.AfterFunc(p.commandContext, func() { cancel(context.Cause(p.commandContext)) })
	return ctx, func() { stop(); cancel(nil) }
}

// connection returns the client of the shell. It connects again if the connection has ended.
func (s *shell) connection(ctx context.Context, p *program) (*mcp.Client, error) {
	s.mu.Lock()
	c, ended := s.client, s.ended
	s.mu.Unlock()
	if !ended {
		return c, nil
	}
	p.screen.printf("Connecting again: the server has lost the state of the last connection.")
	s.close()
	return s.dial(ctx, p)
}

// dial connects on behalf of a program.
func (s *shell) dial(ctx context.Context, p *program) (*mcp.Client, error) {
	c, err := p.dial(ctx, s.target)
	s.base.serverName.Store(p.serverName.Load())
	s.idle.serverName.Store(p.serverName.Load())
	if p == s.base {
		s.idle.answers = p.answers
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
		s.base.close(c)
	}
}

func (s *shell) banner(c *mcp.Client) {
	name := s.target.public()
	if info := c.ServerInfo(); info.Name != "" {
		const longest = 60
		name += fmt.Sprintf(" (server name %q)", shorten(cleanLine(info.Name), longest))
	}
	s.base.screen.printf("Connected to %s, revision %s. Type help for the commands, exit or Ctrl-D to leave.",
		cleanLine(name), c.Revision())
}
