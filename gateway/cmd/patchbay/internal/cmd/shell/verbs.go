package shell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/ergochat/readline"
	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/connect"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/question"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/mcp"
)

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

func (s *Shell) banner(c *mcp.Client) {
	name := s.target.Public()
	if info := c.ServerInfo(); info.Name != "" {
		const longest = 60
		name += fmt.Sprintf(" (server name %q)", term.Shorten(term.CleanLine(info.Name), longest))
	}
	s.base.IO.Err.Printf("Connected to %s, revision %s. Type help for the commands, exit or Ctrl-D to leave.",
		term.CleanLine(name), c.Revision())
}

// interact runs the commands that the user types.
func (s *Shell) interact(ctx context.Context, c *mcp.Client) error {
	p := s.base
	h, err := loadHistory()
	if err != nil {
		p.IO.Err.Printf("patchbay: cannot use the history: %s", term.Clean(err.Error()))
	}
	keys := newSharedInput(p.IO.In.R)
	e, err := newEditor(s.prompt(), keys, p.IO.Err.W, h, &lineCompleter{s})
	if err != nil {
		return err
	}
	defer e.close()
	defer p.IO.Err.Redirect(e)()
	s.mu.Lock()
	s.editor = e
	s.mu.Unlock()
	s.banner(c)
	s.listen()
	defer cmdutil.OnInterrupt(ctx, s.interrupt)()
	defer context.AfterFunc(ctx, e.close)()
	for {
		line, err := e.readLine()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, readline.ErrInterrupt):
			continue
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if err := e.remember(line); err != nil {
			p.IO.Err.Printf("patchbay: cannot save the history: %s", term.Clean(err.Error()))
		}
		l := &lease{shared: keys, stop: make(chan struct{})}
		_, over := s.command(ctx, line, term.NewInput(l))
		l.end()
		if over {
			return nil
		}
	}
}

// prompt names the server by its URL or command, which it cannot choose.
func (s *Shell) prompt() string {
	const longest = 40
	return term.Shorten(term.CleanLine(s.target.Public()), longest) + "> "
}

// outsideShell lists commands that a shell must not run: they own standard input and output.
var outsideShell = []string{"shell", "bridge", "record", "console", "doctor"}

// Verbs returns the commands of a shell: the commands about a server, without a target.
func (s *Shell) Verbs(f *cmdutil.Factory) []*cobra.Command {
	all := slices.DeleteFunc(s.Commands(f), func(cmd *cobra.Command) bool {
		return cmd.GroupID != cmdutil.GroupServer || slices.Contains(outsideShell, cmd.Name())
	})
	return append(all,
		cmdutil.PlainTarget(f, "subscribe [URI…]", "Show changes of resources, and of lists, while the shell runs",
			s.lists.resourceNames, s.subscribe),
		cmdutil.PlainTarget(f, "unsubscribe [URI…]", "Show no changes of these resources, or of any",
			s.subscribed, s.unsubscribe))
}

// prepareVerb makes a command the root of a command line, with the flags of a single command.
func prepareVerb(p *cmdutil.Factory, cmd *cobra.Command, args []string) {
	cmd.GroupID = ""
	cmd.SilenceErrors, cmd.SilenceUsage, cmd.SuggestionsMinimumDistance = true, true, 2
	cmd.CompletionOptions.DisableDefaultCmd = true
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return cmdutil.FlagError(p, cmd, args, err) })
	cmd.SetIn(p.IO.In.R)
	cmd.SetOut(p.IO.Err)
	cmd.SetErr(p.IO.Err)
	f, all := p.Flags, cmd.PersistentFlags()
	all.BoolVar(&f.JSON, "json", f.JSON, "print JSON (see help json)")
	all.BoolVar(&f.NoInput, "no-input", f.NoInput, "never prompt: decline elicitation and sampling")
	all.DurationVar(&f.Timeout, "timeout", f.Timeout, "fail if the server sends nothing for this long")
	all.StringVar(&f.Save, "save", f.Save, "save images, audio and other binary content to this `directory`")
	cmdutil.AddHelp(cmd)
	cmd.Example = "" // with targets
}

// notInShell returns an error if name is a command of patchbay that a shell does not contain.
func notInShell(s *Shell, f *cmdutil.Factory, name string) error {
	if cmd := findVerb(s.Commands(f), name); cmd == nil || !cmd.Runnable() {
		return nil
	}
	return exit.UsageError(fmt.Errorf("%q is not a command of this shell: run \"patchbay %s\" outside of the shell",
		name, name))
}

// findVerb returns the command of a name, or nil.
func findVerb(verbs []*cobra.Command, name string) *cobra.Command {
	for _, cmd := range verbs {
		if cmd.Name() == name || cmd.HasAlias(name) {
			return cmd
		}
	}
	return nil
}

// runVerb runs a command line: a verb with arguments, or a tool with arguments.
func (s *Shell) runVerb(ctx context.Context, f *cmdutil.Factory, words []string) int {
	verbs := s.Verbs(f)
	name, arguments := words[0], words[1:]
	if name == "help" || name == "?" {
		return cmdutil.Finish(ctx, f, shellHelp(s, f, verbs, arguments))
	}
	cmd := findVerb(verbs, name)
	if cmd == nil {
		if err := s.checkTool(ctx, f, verbs, name); err != nil {
			f.Flags.JSON = f.Flags.JSON || cmdutil.HasJSONFlag(arguments)
			return cmdutil.Finish(ctx, f, err)
		}
		cmd, arguments = findVerb(verbs, "call"), words
	}
	prepareVerb(f, cmd, arguments)
	cmd.SetArgs(append([]string{}, arguments...)) // nil would mean os.Args
	return cmdutil.Execute(ctx, f, cmd)
}

// checkTool returns an error unless the server lists the tool. The error must say if the name is a
// command that the shell lacks.
func (s *Shell) checkTool(ctx context.Context, f *cmdutil.Factory, verbs []*cobra.Command, name string) error {
	c, err := f.Client.Connect(ctx, s.target)
	if err != nil {
		return err
	}
	tools, err := cmdutil.Collect(c.Tools(ctx))
	if err != nil && exit.Code(ctx, err) != exit.NotFound {
		return err
	}
	var known []string
	for _, tool := range tools {
		known = append(known, tool.Name)
	}
	if slices.Contains(known, name) {
		return nil
	}
	if err := notInShell(s, f, name); err != nil {
		return err
	}
	for _, cmd := range slices.Backward(verbs) {
		known = slices.Insert(known, 0, cmd.Name())
	}
	return exit.UsageError(fmt.Errorf("%w (type help for the commands)", term.UnknownName("command or tool", name,
		known)))
}

// shellHelp prints the commands of the shell, or the help of the command that words names.
func shellHelp(s *Shell, f *cmdutil.Factory, verbs []*cobra.Command, words []string) error {
	if len(words) == 0 {
		var b strings.Builder
		b.WriteString("Commands:\n")
		for _, cmd := range verbs {
			fmt.Fprintf(&b, "  %-12s %s\n", cmd.Name(), cmd.Short)
		}
		fmt.Fprintf(&b, "  %-12s %s\n  %-12s %s\n  %-12s %s\n", "TOOL …", "Call a tool, as call TOOL … does",
			"help [NAME]", "Show this list, or the help of a command", "exit", "Leave the shell, as Ctrl-D does")
		f.IO.Err.Printf("%s", strings.TrimRight(b.String(), "\n"))
		return nil
	}
	if cmd := findVerb(verbs, words[0]); cmd != nil {
		prepareVerb(f, cmd, words)
		if sub, rest, err := cmd.Find(words[1:]); err == nil && len(rest) == 0 {
			return sub.Help()
		}
	}
	for _, topic := range s.Commands(f) {
		if !topic.Runnable() && topic.Name() == words[0] {
			cmdutil.AddHelp(topic)
			f.IO.Err.Printf("%s", topic.Long)
			return nil
		}
	}
	if err := notInShell(s, f, words[0]); err != nil {
		return err
	}
	var known []string
	for _, cmd := range verbs {
		known = append(known, cmd.Name())
	}
	return exit.UsageError(term.UnknownName("command", strings.Join(words, " "), known))
}

// subscribe adds resources to the subscription of the shell.
func (s *Shell) subscribe(_ context.Context, o *cmdutil.Invocation, c *mcp.Client) error {
	if offered := c.Capabilities().Resources; len(o.Words) > 0 && (offered == nil || !offered.Subscribe) {
		return errors.New("the server does not offer notifications of resources")
	}
	s.mu.Lock()
	for _, uri := range o.Words {
		if !slices.Contains(s.watched, uri) {
			s.watched = append(s.watched, uri)
		}
	}
	s.always = true
	s.mu.Unlock()
	return s.relisten()
}

// unsubscribe removes resources from the subscription of the shell.
func (s *Shell) unsubscribe(_ context.Context, o *cmdutil.Invocation, _ *mcp.Client) error {
	s.mu.Lock()
	for _, uri := range o.Words {
		if !slices.Contains(s.watched, uri) {
			defer s.mu.Unlock()
			return exit.NotFoundError(term.UnknownName("subscription", uri, s.watched))
		}
	}
	s.watched = slices.DeleteFunc(slices.Clone(s.watched), func(uri string) bool {
		return len(o.Words) == 0 || slices.Contains(o.Words, uri)
	})
	s.always = len(s.watched) > 0
	s.mu.Unlock()
	return s.relisten()
}

// subscribed returns the URIs of `subscribe`.
func (s *Shell) subscribed(context.Context, *mcp.Client) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.watched)
}
