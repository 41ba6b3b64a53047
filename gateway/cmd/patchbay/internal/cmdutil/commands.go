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

// An Invocation is a command line. The Options of a command embed it.
type Invocation struct {
	*Factory
	Target *target.Target // nil for a command that is not about a server
	Words  []string       // the arguments after the target

	name, path string // of the command: "get" and "patchbay task get"
	timed      bool   // --timeout bounds the whole command
}

func (i *Invocation) invocation() *Invocation { return i }

type invoked interface{ invocation() *Invocation }

// Run is the function of a command with its Options. NewCmdX(f, run) builds a command: tests pass a run
// that looks at the options of a command line, others pass nil.
type Run[O any] = func(context.Context, O) error

// Or returns run, or command if run is nil.
func Or[O any](run, command Run[O]) Run[O] {
	if run != nil {
		return run
	}
	return command
}

// Command returns a command that is not about a server, which fills in the Words of o and calls run.
func Command[O invoked](
	f *Factory, use, short string, args cobra.PositionalArgs, o O, run Run[O],
) *cobra.Command {
	i := o.invocation()
	i.Factory = f
	return &cobra.Command{Use: use, Short: short, DisableFlagsInUseLine: true, Args: args,
		RunE: func(cmd *cobra.Command, words []string) error {
			i.Words = words
			return run(cmd.Context(), o)
		}}
}

// Plain returns a [Command] without flags of its own.
func Plain(f *Factory, use, short string, args cobra.PositionalArgs, run Run[*Invocation]) *cobra.Command {
	return Command(f, use, short, args, &Invocation{}, run)
}

// WithCompletion sets the function that completes the arguments of a command, and returns the command.
func WithCompletion(cmd *cobra.Command, complete cobra.CompletionFunc) *cobra.Command {
	cmd.ValidArgsFunction = complete
	return cmd
}

// TargetCommand returns a command about a server, which fills in o and calls run. usageLine contains its
// name and the arguments after the target, such as "read SKILL [FILE]": it determines how many arguments
// are accepted.
func TargetCommand[O invoked](
	f *Factory, usageLine, short string, names Lister, o O, run Run[O],
) *cobra.Command {
	name, arguments, _ := strings.Cut(usageLine, " ")
	atMost := len(strings.Fields(arguments))
	atLeast := atMost - strings.Count(arguments, "[")
	if strings.Contains(arguments, "…") {
		atMost = math.MaxInt
	}
	use := strings.TrimRight(name+" TARGET "+arguments, " ") + " | " + usageLine + " -- COMMAND…"
	if f.Client.Shell != nil {
		use = usageLine
	}
	i := o.invocation()
	i.Factory, i.name = f, name
	return &cobra.Command{
		Use:                   use,
		Short:                 short,
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     CompleteNames(f, names),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if i.Target, i.Words, err = ParseTarget(f, cmd, args); err != nil {
				return exit.UsageError(err)
			}
			if id := cmd.Flags().Lookup("id"); id != nil && id.Changed {
				i.Words = slices.Insert(slices.Clone(i.Words), 0, id.Value.String())
			}
			if len(i.Words) < atLeast || len(i.Words) > atMost {
				return exit.UsageError(fmt.Errorf("wrong number of arguments\nusage: %s", cmd.UseLine()))
			}
			i.path, i.timed = cmd.CommandPath(), cmd.Flags().Changed("timeout")
			f.Client.Current.Store(i.Target)
			return run(cmd.Context(), o)
		},
	}
}

// OptionalTarget makes the target of a command optional: without an argument, the Target of o is nil.
func OptionalTarget[O invoked](cmd *cobra.Command, o O, run Run[O]) *cobra.Command {
	withTarget := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 && cmd.ArgsLenAtDash() < 0 {
			return run(cmd.Context(), o)
		}
		return withTarget(cmd, args)
	}
	return cmd
}

// Connected returns a function of a command that connects to the server, calls run and closes the
// connection. --timeout bounds it as a whole if it is given: by default, a call may go on while the
// server sends messages.
func Connected[O invoked](run func(context.Context, O, *mcp.Client) error) Run[O] {
	return func(ctx context.Context, o O) error {
		i := o.invocation()
		whole := func(ctx context.Context) error {
			return i.WithServer(ctx, func(ctx context.Context, c *mcp.Client) error { return run(ctx, o, c) })
		}
		if !i.timed {
			return whole(ctx)
		}
		return i.Client.Bounded(ctx, i.Target, i.name, whole)
	}
}

// Bounded is [Connected] for short requests: --timeout bounds the command, also by its default.
func Bounded[O invoked](run func(context.Context, O, *mcp.Client) error) Run[O] {
	return func(ctx context.Context, o O) error {
		o.invocation().timed = true
		return Connected(run)(ctx, o)
	}
}

// WithServer connects to the target, calls run and closes the connection.
func (i *Invocation) WithServer(ctx context.Context, run func(ctx context.Context, c *mcp.Client) error) (err error) {
	if i.Observe.ClientObserver(ctx) != nil {
		spanned, end := i.Observe.Observed.Exporters.BeginCommand(ctx, i.path)
		defer func() { end(exit.Code(spanned, err)) }()
		ctx = spanned
	}
	c, err := i.Client.Connect(ctx, i.Target)
	if err != nil {
		return err
	}
	options := mcp.CallOptions{Progress: i.IO.Err.Progress, Timeout: i.Flags.Timeout}
	err = run(mcp.WithCallOptions(ctx, options), c)
	i.IO.Err.Done()
	i.Client.Close(c)
	return err
}

// AuthCommand returns a command about the login at a server.
func AuthCommand[O invoked](f *Factory, name, short string, o O, run Run[O]) *cobra.Command {
	cmd := TargetCommand(f, name, short, nil, o, func(ctx context.Context, o O) error {
		if err := o.invocation().Target.MayLogIn(); err != nil {
			return exit.UsageError(err)
		}
		return run(ctx, o)
	})
	cmd.Use = name + " TARGET"
	return cmd
}

// PlainTarget returns a [TargetCommand] without flags of its own, which runs while [Connected].
func PlainTarget(
	f *Factory, usageLine, short string, names Lister, run func(context.Context, *Invocation, *mcp.Client) error,
) *cobra.Command {
	return TargetCommand(f, usageLine, short, names, &Invocation{}, Connected(run))
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
