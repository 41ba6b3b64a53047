package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// outsideShell are the commands about a server that a shell does not have: they use standard input
// and output alone.
var outsideShell = []string{"shell", "bridge", "record"}

// verbs returns the commands of a shell: those about a server, without a target.
func (s *shell) verbs(f *factory) []*cobra.Command {
	all := slices.DeleteFunc(f.commands(f), func(cmd *cobra.Command) bool {
		return cmd.GroupID != groupServer || slices.Contains(outsideShell, cmd.Name())
	})
	return append(all,
		serverCommand(f, "subscribe [URI…]", "Show changes of resources, and of lists, while the shell runs",
			s.resourceNames, s.subscribe),
		serverCommand(f, "unsubscribe [URI…]", "Show no changes of these resources, or of any",
			s.subscribed, s.unsubscribe))
}

// prepareVerb makes a command the root of a command line. It has the flags that make sense for one
// command of a connection.
func prepareVerb(p *factory, cmd *cobra.Command) {
	cmd.GroupID = ""
	cmd.SilenceErrors, cmd.SilenceUsage, cmd.SuggestionsMinimumDistance = true, true, 2
	cmd.CompletionOptions.DisableDefaultCmd = true
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return flagError(p, cmd, err) })
	cmd.SetIn(p.IO.In.r)
	cmd.SetOut(p.IO.Err)
	cmd.SetErr(p.IO.Err)
	f, all := p.Flags, cmd.PersistentFlags()
	all.BoolVar(&f.json, "json", f.json, "print JSON (see help json)")
	all.BoolVar(&f.noInput, "no-input", f.noInput, "never prompt: decline elicitation and sampling")
	all.DurationVar(&f.timeout, "timeout", f.timeout, "fail if the server sends nothing for this long")
	all.StringVar(&f.save, "save", f.save, "save images, audio and other binary content to this `directory`")
	addHelp(cmd)
	cmd.Example = "" // with targets
}

// notInShell returns the error for a name of patchbay's commands that a shell does not have, or nil.
func notInShell(f *factory, name string) error {
	if cmd := findVerb(f.commands(f), name); cmd == nil || !cmd.Runnable() {
		return nil
	}
	return usage(fmt.Errorf("%q is not a command of this shell: run \"patchbay %s\" outside of the shell", name, name))
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
func (s *shell) runVerb(ctx context.Context, f *factory, words []string) int {
	verbs := s.verbs(f)
	name, arguments := words[0], words[1:]
	if name == "help" || name == "?" {
		return finish(ctx, f, shellHelp(f, verbs, arguments))
	}
	cmd := findVerb(verbs, name)
	if cmd == nil {
		if err := s.checkTool(ctx, f, verbs, name); err != nil {
			f.Flags.json = f.Flags.json || hasJSONFlag(arguments)
			return finish(ctx, f, err)
		}
		cmd, arguments = findVerb(verbs, "call"), words
	}
	prepareVerb(f, cmd)
	f.args = arguments
	cmd.SetArgs(append([]string{}, arguments...)) // nil would mean os.Args
	return execute(ctx, f, cmd)
}

// checkTool returns an error if the server has no tool of a name, which may be that of a command
// that a shell does not have.
func (s *shell) checkTool(ctx context.Context, f *factory, verbs []*cobra.Command, name string) error {
	c, err := f.Client.connect(ctx, s.target)
	if err != nil {
		return err
	}
	tools, err := collect(c.Tools(ctx))
	if err != nil && exitCode(ctx, err) != exitNotFound {
		return err
	}
	var known []string
	for _, tool := range tools {
		known = append(known, tool.Name)
	}
	if slices.Contains(known, name) {
		return nil
	}
	if err := notInShell(f, name); err != nil {
		return err
	}
	for _, cmd := range slices.Backward(verbs) {
		known = slices.Insert(known, 0, cmd.Name())
	}
	return usage(fmt.Errorf("%w (type help for the commands)", unknownName("command or tool", name, known)))
}

// shellHelp prints the commands of the shell, or the help of one.
func shellHelp(f *factory, verbs []*cobra.Command, words []string) error {
	if len(words) == 0 {
		var b strings.Builder
		b.WriteString("Commands:\n")
		for _, cmd := range verbs {
			fmt.Fprintf(&b, "  %-12s %s\n", cmd.Name(), cmd.Short)
		}
		fmt.Fprintf(&b, "  %-12s %s\n  %-12s %s\n  %-12s %s\n", "TOOL …", "Call a tool, as call TOOL … does",
			"help [NAME]", "Show this list, or the help of a command", "exit", "Leave the shell, as Ctrl-D does")
		f.IO.Err.printf("%s", strings.TrimRight(b.String(), "\n"))
		return nil
	}
	if cmd := findVerb(verbs, words[0]); cmd != nil {
		prepareVerb(f, cmd)
		if sub, rest, err := cmd.Find(words[1:]); err == nil && len(rest) == 0 {
			return sub.Help()
		}
	}
	for _, topic := range f.commands(f) {
		if !topic.Runnable() && topic.Name() == words[0] {
			addHelp(topic)
			f.IO.Err.printf("%s", topic.Long)
			return nil
		}
	}
	if err := notInShell(f, words[0]); err != nil {
		return err
	}
	var known []string
	for _, cmd := range verbs {
		known = append(known, cmd.Name())
	}
	return usage(unknownName("command", strings.Join(words, " "), known))
}

// subscribe adds resources to those whose changes the shell shows.
func (s *shell) subscribe(_ context.Context, c *mcp.Client, words []string) error {
	if offered := c.Capabilities().Resources; len(words) > 0 && (offered == nil || !offered.Subscribe) {
		return errors.New("the server does not offer notifications of resources")
	}
	s.mu.Lock()
	for _, uri := range words {
		if !slices.Contains(s.watched, uri) {
			s.watched = append(s.watched, uri)
		}
	}
	s.always = true
	s.mu.Unlock()
	return s.relisten()
}

// unsubscribe removes resources from those whose changes the shell shows.
func (s *shell) unsubscribe(_ context.Context, _ *mcp.Client, words []string) error {
	s.mu.Lock()
	for _, uri := range words {
		if !slices.Contains(s.watched, uri) {
			defer s.mu.Unlock()
			return notFound(unknownName("subscription", uri, s.watched))
		}
	}
	s.watched = slices.DeleteFunc(slices.Clone(s.watched), func(uri string) bool {
		return len(words) == 0 || slices.Contains(words, uri)
	})
	s.always = len(s.watched) > 0
	s.mu.Unlock()
	return s.relisten()
}

// subscribed returns the URIs of `subscribe`.
func (s *shell) subscribed(context.Context, *mcp.Client) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.watched)
}
