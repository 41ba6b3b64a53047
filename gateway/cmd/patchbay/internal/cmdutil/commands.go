package cmdutil

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// Groups of commands in the help.
const (
	GroupServer = "server"
	GroupAuth   = "auth"
	GroupOther  = "other"
)

// InGroup puts commands in a group of the help.
func InGroup(group string, all ...*cobra.Command) []*cobra.Command {
	for _, cmd := range all {
		cmd.GroupID = group
	}
	return all
}

// WithSubcommands returns a command that must be followed by a subcommand.
func WithSubcommands(f *Factory, name, short string, subcommands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: name, Short: short, DisableFlagsInUseLine: true, Args: KnownSubcommand,
		RunE: func(cmd *cobra.Command, v1 []string) error {
			return ShowHelp(f, cmd, v1)
		}}
	cmd.AddCommand(subcommands...)
	return cmd
}

// TargetCommand returns a command about a server. usage is its name and the arguments after the
// target, such as "read SKILL [FILE]": it determines how many arguments are accepted.
func TargetCommand(
	f *Factory, usageLine, short string, names Lister, run func(ctx context.Context, t *target.Target,
		words []string) error,
) *cobra.Command {
	name, arguments, _ := strings.Cut(usageLine, " ")
	atMost := len(strings.Fields(arguments))
	atLeast := atMost - strings.Count(arguments, "[")
	if strings.Contains(arguments, "…") {
		atMost = math.MaxInt
	}
	use := strings.TrimRight(name+" TARGET "+arguments, " ") + " | " + usageLine + " -- COMMAND…"
	if f.Shell != nil {
		use = usageLine
	}
	return &cobra.Command{
		Use:                   use,
		Short:                 short,
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     CompleteNames(f, names),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, words, err := ParseTarget(f, cmd, args)
			if err != nil {
				return exit.UsageError(err)
			}
			if id := cmd.Flags().Lookup("id"); id != nil && id.Changed {
				words = slices.Insert(slices.Clone(words), 0, id.Value.String())
			}
			if len(words) < atLeast || len(words) > atMost {
				return exit.UsageError(fmt.Errorf("wrong number of arguments\nusage: %s", cmd.UseLine()))
			}
			f.Client.Timed = cmd.Flags().Changed("timeout")
			f.Client.Current.Store(t)
			f.verb = cmd.CommandPath()
			return run(cmd.Context(), t, words)
		},
	}
}

// ServerCommand returns a command that connects to a server; see targetCommand for usage. --timeout
// bounds it as a whole if it is given: by default, a call may go on while the server sends messages.
func ServerCommand(
	f *Factory, usageLine, short string, names Lister, run func(ctx context.Context, c *mcp.Client,
		words []string) error,
) *cobra.Command {
	return TargetCommand(f, usageLine, short, names, func(ctx context.Context, t *target.Target, words []string) error {
		if !f.Client.Timed {
			return WithServer(ctx, f, t, words, run)
		}
		return f.Client.Bounded(ctx, t, nameOf(usageLine), func(ctx context.Context) error {
			return WithServer(ctx, f, t, words, run)
		})
	})
}

// BoundedCommand returns a ServerCommand that --timeout bounds as a whole, also by its default.
func BoundedCommand(
	f *Factory, usageLine, short string, names Lister, run func(ctx context.Context, c *mcp.Client,
		words []string) error,
) *cobra.Command {
	return TargetCommand(f, usageLine, short, names, func(ctx context.Context, t *target.Target, words []string) error {
		return f.Client.Bounded(ctx, t, nameOf(usageLine), func(ctx context.Context) error {
			return WithServer(ctx, f, t, words, run)
		})
	})
}

// nameOf returns the name of a command from its usage.
func nameOf(usageLine string) string {
	name, _, _ := strings.Cut(usageLine, " ")
	return name
}

// WithServer connects to a target, calls run and closes the connection.
func WithServer(ctx context.Context, f *Factory, t *target.Target, words []string,
	run func(ctx context.Context, c *mcp.Client, words []string) error) (err error) {
	if f.Observe.ClientObserver(ctx) != nil {
		spanned, end := f.Observe.Observed.Exporters.BeginCommand(ctx, f.verb)
		defer func() { end(exit.Code(spanned, err)) }()
		ctx = spanned
	}
	c, err := f.Client.Connect(ctx, t)
	if err != nil {
		return err
	}
	options := mcp.CallOptions{Progress: f.IO.Err.Progress, Timeout: f.Flags.Timeout}
	err = run(mcp.WithCallOptions(ctx, options), c, words)
	f.IO.Err.Done()
	f.Client.Close(c)
	return err
}

// AuthCommand returns a command about the login at a server.
func AuthCommand(f *Factory, name, short string, run func(ctx context.Context, t *target.Target) error) *cobra.Command {
	cmd := TargetCommand(f, name, short, nil, func(ctx context.Context, t *target.Target, _ []string) error {
		if err := t.MayLogIn(); err != nil {
			return exit.UsageError(err)
		}
		return run(ctx, t)
	})
	cmd.Use = name + " TARGET"
	return cmd
}

// KnownSubcommand refuses the name of a subcommand that does not exist.
func KnownSubcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := fmt.Errorf("unknown command %q", args[0])
	for _, like := range cmd.SuggestionsFor(args[0]) {
		return exit.UsageError(fmt.Errorf("%w: did you mean %q?", err, like))
	}
	return exit.UsageError(err)
}

// ShowHelp shows the help of a command that requires a subcommand. With --json it is an error, too.
func ShowHelp(f *Factory, cmd *cobra.Command, _ []string) error {
	cmd.SetOut(f.IO.Err.W)
	err := cmd.Help()
	if f.Flags.JSON {
		return exit.UsageError(fmt.Errorf("missing command after %q (see %s --help)", cmd.CommandPath(),
			cmd.CommandPath()))
	}
	return exit.UsageError(errors.Join(exit.ErrShown, err))
}

// helpFiles contains a file for each command and help topic: help/task-get.txt is for `task get`.
//
//go:embed help
var helpFiles embed.FS

// AddHelp sets the long text and the examples of a command and its subcommands.
func AddHelp(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		AddHelp(sub)
	}
	name := strings.ReplaceAll(strings.TrimPrefix(cmd.CommandPath(), "patchbay "), " ", "-")
	text, err := helpFiles.ReadFile("help/" + name + ".txt")
	if err != nil {
		return // a command of cobra, or a topic that setHelp writes
	}
	long, examples, _ := strings.Cut(string(text), "Examples:\n")
	cmd.Long, cmd.Example = strings.TrimRight(long, "\n"), strings.TrimRight(examples, "\n")
}
