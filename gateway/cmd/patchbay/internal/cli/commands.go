package cli

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// commands returns all commands and help topics. The help sorts them.
func commands(f *factory) []*cobra.Command {
	tools := listing[*mcp.Tool]{"tools", (*mcp.Client).Tools, func(t *mcp.Tool, whole bool) { showTool(f, t, whole) }, toolName, toolText}
	resources := listing[*mcp.Resource]{"resources", (*mcp.Client).Resources, func(r *mcp.Resource, whole bool) { showResource(f, r, whole) }, resourceURI,
		resourceText}
	templates := listing[*mcp.ResourceTemplate]{"resourceTemplates", (*mcp.Client).ResourceTemplates,
		func(t *mcp.ResourceTemplate, whole bool) { showTemplate(f, t, whole) }, nil, templateText}
	prompts := listing[*mcp.Prompt]{"prompts", (*mcp.Client).Prompts, func(prompt *mcp.Prompt, whole bool) { showPrompt(f, prompt, whole) }, promptName, promptTexts}
	task := withSubcommands(f, "task", "Show, watch, answer and cancel tasks",
		taskListCommand(f),
		taskCommand(f, "get ID", "Show a task", func(ctx context.Context, h *tasks.Handle, v1 []string) error { return getTask(ctx, f, h, v1) }),
		taskCommand(f, "watch ID", "Wait for a task and print its result", func(ctx context.Context, h *tasks.Handle, v1 []string) error { return watchTask(ctx, f, h, v1) }),
		taskAnswerCommand(f),
		taskCommand(f, "cancel ID", "Cancel a task", func(ctx context.Context, h *tasks.Handle, v1 []string) error { return cancelTask(ctx, f, h, v1) }))
	task.Aliases = []string{"tasks"}
	return slices.Concat(
		inGroup(groupServer,
			probeCommand(f),
			searchable(f, boundedCommand(f, "tools [NAME]", "List tools, or show one with its input and output schema",
				tools.names, listOrShow(f, tools))),
			searchable(f, boundedCommand(f, "resources", "List resources", nil, listOrShow(f, resources))),
			searchable(f, boundedCommand(f, "templates", "List resource templates", nil, listOrShow(f, templates))),
			searchable(f, boundedCommand(f, "prompts [NAME]", "List prompts, or show one with its arguments",
				prompts.names, listOrShow(f, prompts))),
			callCommand(f, tools),
			serverCommand(f, "read URI [VARIABLE=VALUE…]", "Read a resource", resources.names, func(ctx context.Context, c *mcp.Client, words []string) error { return read(ctx, f, c, words) }),
			completeArguments(f, serverCommand(f, "get PROMPT [ARGUMENT…]", "Get a prompt", prompts.names, func(ctx context.Context, c *mcp.Client, words []string) error { return get(ctx, f, c, words) }),
				promptArguments),
			completeArguments(f, boundedCommand(f, "complete REFERENCE ARGUMENT=TYPED [KNOWN=VALUE…]",
				"Complete an argument of a prompt or resource template", prompts.names, func(ctx context.Context, c *mcp.Client, words []string) error { return complete(ctx, f, c, words) }), promptArguments),
			listenCommand(f, resources.names),
			bridgeCommand(f),
			recordCommand(f),
			serverCommand(f, "rpc METHOD [PARAMS]", "Send a JSON-RPC request", nil, func(ctx context.Context, c *mcp.Client, words []string) error { return rpc(ctx, f, c, words) }),
			shellCommand(f),
			lintCommand(f),
			benchCommand(f, tools),
			boundedCommand(f, "ping", "Send a ping and print the round-trip time", nil, func(ctx context.Context, c *mcp.Client, v1 []string) error { return ping(ctx, f, c, v1) }),
			withSubcommands(f, "skills", "List, read and verify skills",
				serverCommand(f, "list", "List skills", nil, func(ctx context.Context, c *mcp.Client, v1 []string) error { return showSkills(ctx, f, c, v1) }),
				serverCommand(f, "show SKILL", "Show a skill and the list of its files", skillNames, func(ctx context.Context, c *mcp.Client, words []string) error { return showSkill(ctx, f, c, words) }),
				serverCommand(f, "read SKILL [FILE]", "Read and verify a file of a skill", skillNames, func(ctx context.Context, c *mcp.Client, words []string) error { return readSkill(ctx, f, c, words) }),
				serverCommand(f, "verify [SKILL]", "Verify the files of skills", skillNames, func(ctx context.Context, c *mcp.Client, words []string) error { return verifySkills(ctx, f, c, words) })),
			task),
		inGroup(groupAuth, withSubcommands(f, "auth", "Log in to and out of servers (OAuth)",
			loginCommand(f),
			statusCommand(f),
			authCommand(f, "logout", "Log out of a server", func(ctx context.Context, t *target) error { return logout(ctx, f, t) }),
			tokenCommand(f),
			vaultKeyCommand(f))),
		inGroup(groupOther, serveCommand(f), gatewayCommand(f), mockCommand(f), serversCommand(f),
			trustCommand(f), completionCommand(f), manCommand(f), versionCommand(f)),
		[]*cobra.Command{
			{Use: "arguments", Short: "How to pass arguments to tools and prompts"},
			{Use: "config", Short: "How to name servers in a configuration file"},
			{Use: "answers", Short: "How to answer elicitation and sampling from a file"},
			{Use: "recordings", Short: "The format of --trace, record and mock"},
			{Use: "json", Short: "The output of --json"},
			{Use: "exit-codes", Short: "The exit codes"},
			{Use: "gateways", Short: "How a gateway serves many servers to many clients"},
			{Use: "commands", Short: "All commands"},
			{Use: "flags", Short: "The flags of every command"},
			{Use: "errors", Short: "The codes of errors of gateways, such as denied or quarantined"},
		})
}

// Groups of commands in the help.
const (
	groupServer = "server"
	groupAuth   = "auth"
	groupOther  = "other"
)

func inGroup(group string, all ...*cobra.Command) []*cobra.Command {
	for _, cmd := range all {
		cmd.GroupID = group
	}
	return all
}

// withSubcommands returns a command that only has subcommands.
func withSubcommands(f *factory, name, short string, subcommands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: name, Short: short, DisableFlagsInUseLine: true, Args: knownSubcommand, RunE: func(cmd *cobra.Command, v1 []string) error { return showHelp(f, cmd, v1) }}
	cmd.AddCommand(subcommands...)
	return cmd
}

// targetCommand returns a command about a server. usage is its name and the arguments after the
// target, such as "read SKILL [FILE]": it determines how many arguments are accepted.
func targetCommand(
	f *factory, usageLine, short string, names lister, run func(ctx context.Context, t *target, words []string) error,
) *cobra.Command {
	name, arguments, _ := strings.Cut(usageLine, " ")
	atMost := len(strings.Fields(arguments))
	atLeast := atMost - strings.Count(arguments, "[")
	if strings.Contains(arguments, "…") {
		atMost = math.MaxInt
	}
	use := strings.TrimRight(name+" TARGET "+arguments, " ") + " | " + usageLine + " -- COMMAND…"
	if f.shell != nil {
		use = usageLine
	}
	return &cobra.Command{
		Use:                   use,
		Short:                 short,
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     completeNames(f, names),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, words, err := parseTarget(f, cmd, args)
			if err != nil {
				return usage(err)
			}
			if id := cmd.Flags().Lookup("id"); id != nil && id.Changed {
				words = slices.Insert(slices.Clone(words), 0, id.Value.String())
			}
			if len(words) < atLeast || len(words) > atMost {
				return usage(fmt.Errorf("wrong number of arguments\nusage: %s", cmd.UseLine()))
			}
			f.Client.timed = cmd.Flags().Changed("timeout")
			f.Client.current.Store(t)
			f.verb = cmd.CommandPath()
			return run(cmd.Context(), t, words)
		},
	}
}

// serverCommand returns a command that connects to a server; see targetCommand for usage. --timeout
// bounds it as a whole if it is given: by default, a call may go on while the server sends messages.
func serverCommand(
	f *factory, usageLine, short string, names lister, run func(ctx context.Context, c *mcp.Client, words []string) error,
) *cobra.Command {
	return targetCommand(f, usageLine, short, names, func(ctx context.Context, t *target, words []string) error {
		if !f.Client.timed {
			return withServer(ctx, f, t, words, run)
		}
		return f.Client.bounded(ctx, t, nameOf(usageLine), func(ctx context.Context) error {
			return withServer(ctx, f, t, words, run)
		})
	})
}

// boundedCommand returns a serverCommand whose requests are short: the default of --timeout, too,
// bounds it as a whole.
func boundedCommand(
	f *factory, usageLine, short string, names lister, run func(ctx context.Context, c *mcp.Client, words []string) error,
) *cobra.Command {
	return targetCommand(f, usageLine, short, names, func(ctx context.Context, t *target, words []string) error {
		return f.Client.bounded(ctx, t, nameOf(usageLine), func(ctx context.Context) error {
			return withServer(ctx, f, t, words, run)
		})
	})
}

// nameOf returns the name of a command from its usage.
func nameOf(usageLine string) string {
	name, _, _ := strings.Cut(usageLine, " ")
	return name
}

// withServer connects to a target, calls run and closes the connection.
func withServer(ctx context.Context, f *factory, t *target, words []string,
	run func(ctx context.Context, c *mcp.Client, words []string) error) (err error) {
	if f.Observe.clientObserver(ctx) != nil {
		spanned, end := f.Observe.observed.exporters.BeginCommand(ctx, f.verb)
		defer func() { end(exitCode(spanned, err)) }()
		ctx = spanned
	}
	c, err := f.Client.connect(ctx, t)
	if err != nil {
		return err
	}
	options := mcp.CallOptions{Progress: f.IO.Err.progress, Timeout: f.Flags.timeout}
	err = run(mcp.WithCallOptions(ctx, options), c, words)
	f.IO.Err.done()
	f.Client.close(c)
	return err
}

// authCommand returns a command about the login at a server.
func authCommand(f *factory, name, short string, run func(ctx context.Context, t *target) error) *cobra.Command {
	cmd := targetCommand(f, name, short, nil, func(ctx context.Context, t *target, _ []string) error {
		if err := t.mayLogIn(); err != nil {
			return usage(err)
		}
		return run(ctx, t)
	})
	cmd.Use = name + " TARGET"
	return cmd
}

func knownSubcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := fmt.Errorf("unknown command %q", args[0])
	for _, like := range cmd.SuggestionsFor(args[0]) {
		return usage(fmt.Errorf("%w: did you mean %q?", err, like))
	}
	return usage(err)
}

// showHelp runs a command that has subcommands. With --json the error is a value, too.
func showHelp(f *factory, cmd *cobra.Command, _ []string) error {
	cmd.SetOut(f.IO.Err.w)
	err := cmd.Help()
	if f.Flags.json {
		return usage(fmt.Errorf("missing command after %q (see %s --help)", cmd.CommandPath(), cmd.CommandPath()))
	}
	return usage(errors.Join(errShown, err))
}

// helpFiles has a file for each command and help topic: help/task-get.txt is for `task get`.
//
//go:embed help
var helpFiles embed.FS

// addHelp sets the long text and the examples of a command and its subcommands.
func addHelp(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		addHelp(sub)
	}
	name := strings.ReplaceAll(strings.TrimPrefix(cmd.CommandPath(), "patchbay "), " ", "-")
	text, err := helpFiles.ReadFile("help/" + name + ".txt")
	if err != nil {
		return // a command of cobra, or a topic that setHelp writes
	}
	long, examples, _ := strings.Cut(string(text), "Examples:\n")
	cmd.Long, cmd.Example = strings.TrimRight(long, "\n"), strings.TrimRight(examples, "\n")
}

// checkArguments makes wrong arguments of a command and its subcommands usage errors.
func checkArguments(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		checkArguments(sub)
	}
	check := cmd.Args
	if check == nil {
		return
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		if _, ok := errors.AsType[*coded](err); err == nil || ok {
			return err
		}
		return usage(fmt.Errorf("%w\nusage: %s", err, cmd.UseLine()))
	}
}

func helpExists(help *cobra.Command, args []string) error {
	if _, rest, err := help.Root().Find(args); err == nil && len(rest) == 0 {
		return nil
	}
	var names, subcommands []string
	for _, c := range help.Root().Commands() {
		names = append(names, c.Name())
		for _, sub := range c.Commands() {
			subcommands = append(subcommands, c.Name()+" "+sub.Name())
		}
	}
	return usage(unknownName("help topic", strings.Join(args, " "), append(names, subcommands...)))
}
