package shell

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// outsideShell lists commands that a shell must not run: they own standard input and output.
var outsideShell = []string{"shell", "bridge", "record"}

// Verbs returns the commands of a shell: the commands about a server, without a target.
func (s *Shell) Verbs(f *cmdutil.Factory) []*cobra.Command {
	all := slices.DeleteFunc(s.Commands(f), func(cmd *cobra.Command) bool {
		return cmd.GroupID != cmdutil.GroupServer || slices.Contains(outsideShell, cmd.Name())
	})
	return append(all,
		cmdutil.TargetCommand(f, "subscribe [URI…]", "Show changes of resources, and of lists, while the shell runs",
			s.lists.resourceNames, &cmdutil.Invocation{}, cmdutil.Connected(s.subscribe)),
		cmdutil.TargetCommand(f, "unsubscribe [URI…]", "Show no changes of these resources, or of any",
			s.subscribed, &cmdutil.Invocation{}, cmdutil.Connected(s.unsubscribe)))
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
