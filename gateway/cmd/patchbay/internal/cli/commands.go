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

	"github.com/patchbay-mcp/patchbay/mcp"
)

// commands returns all commands and help topics. The help sorts them.
func (p *program) commands() []*cobra.Command {
	tools := listing[*mcp.Tool]{"tools", (*mcp.Client).Tools, p.showTool, toolName, toolText}
	resources := listing[*mcp.Resource]{"resources", (*mcp.Client).Resources, p.showResource, resourceURI,
		resourceText}
	templates := listing[*mcp.ResourceTemplate]{"resourceTemplates", (*mcp.Client).ResourceTemplates,
		p.showTemplate, nil, templateText}
	prompts := listing[*mcp.Prompt]{"prompts", (*mcp.Client).Prompts, p.showPrompt, promptName, promptTexts}
	task := p.withSubcommands("task", "Show, watch, answer and cancel tasks",
		p.taskListCommand(),
		p.taskCommand("get ID", "Show a task", p.getTask),
		p.taskCommand("watch ID", "Wait for a task and print its result", p.watchTask),
		p.taskAnswerCommand(),
		p.taskCommand("cancel ID", "Cancel a task", p.cancelTask))
	task.Aliases = []string{"tasks"}
	return slices.Concat(
		inGroup(groupServer,
			p.probeCommand(),
			p.searchable(p.boundedCommand("tools [NAME]", "List tools, or show one with its input and output schema",
				tools.names, listOrShow(p, tools))),
			p.searchable(p.boundedCommand("resources", "List resources", nil, listOrShow(p, resources))),
			p.searchable(p.boundedCommand("templates", "List resource templates", nil, listOrShow(p, templates))),
			p.searchable(p.boundedCommand("prompts [NAME]", "List prompts, or show one with its arguments",
				prompts.names, listOrShow(p, prompts))),
			p.callCommand(tools),
			p.serverCommand("read URI [VARIABLE=VALUE…]", "Read a resource", resources.names, p.read),
			p.completeArguments(p.serverCommand("get PROMPT [ARGUMENT…]", "Get a prompt", prompts.names, p.get),
				promptArguments),
			p.completeArguments(p.boundedCommand("complete REFERENCE ARGUMENT=TYPED [KNOWN=VALUE…]",
				"Complete an argument of a prompt or resource template", prompts.names, p.complete), promptArguments),
			p.listenCommand(resources.names),
			p.bridgeCommand(),
			p.recordCommand(),
			p.serverCommand("rpc METHOD [PARAMS]", "Send a JSON-RPC request", nil, p.rpc),
			p.shellCommand(),
			p.lintCommand(),
			p.benchCommand(tools),
			p.boundedCommand("ping", "Send a ping and print the round-trip time", nil, p.ping),
			p.withSubcommands("skills", "List, read and verify skills",
				p.serverCommand("list", "List skills", nil, p.showSkills),
				p.serverCommand("show SKILL", "Show a skill and the list of its files", skillNames, p.showSkill),
				p.serverCommand("read SKILL [FILE]", "Read and verify a file of a skill", skillNames, p.readSkill),
				p.serverCommand("verify [SKILL]", "Verify the files of skills", skillNames, p.verifySkills)),
			task),
		inGroup(groupAuth, p.withSubcommands("auth", "Log in to and out of servers (OAuth)",
			p.loginCommand(),
			p.statusCommand(),
			p.authCommand("logout", "Log out of a server", p.logout),
			p.tokenCommand(),
			p.vaultKeyCommand())),
		inGroup(groupOther, p.serveCommand(), p.gatewayCommand(), p.mockCommand(), p.serversCommand(),
			p.trustCommand(), p.completionCommand(), p.manCommand(), p.versionCommand()),
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
func (p *program) withSubcommands(name, short string, subcommands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: name, Short: short, DisableFlagsInUseLine: true, Args: knownSubcommand, RunE: p.showHelp}
	cmd.AddCommand(subcommands...)
	return cmd
}

// targetCommand returns a command about a server. usage is its name and the arguments after the
// target, such as "read SKILL [FILE]": it determines how many arguments are accepted.
func (p *program) targetCommand(
	usageLine, short string, names lister, run func(ctx context.Context, t *target, words []string) error,
) *cobra.Command {
	name, arguments, _ := strings.Cut(usageLine, " ")
	atMost := len(strings.Fields(arguments))
	atLeast := atMost - strings.Count(arguments, "[")
	if strings.Contains(arguments, "…") {
		atMost = math.MaxInt
	}
	use := strings.TrimRight(name+" TARGET "+arguments, " ") + " | " + usageLine + " -- COMMAND…"
	if p.shell != nil {
		use = usageLine
	}
	return &cobra.Command{
		Use:                   use,
		Short:                 short,
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     p.completeNames(names),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, words, err := p.target(cmd, args)
			if err != nil {
				return usage(err)
			}
			if id := cmd.Flags().Lookup("id"); id != nil && id.Changed {
				words = slices.Insert(slices.Clone(words), 0, id.Value.String())
			}
			if len(words) < atLeast || len(words) > atMost {
				return usage(fmt.Errorf("wrong number of arguments\nusage: %s", cmd.UseLine()))
			}
			p.timed = cmd.Flags().Changed("timeout")
			p.current.Store(t)
			p.verb = cmd.CommandPath()
			return run(cmd.Context(), t, words)
		},
	}
}

// serverCommand returns a command that connects to a server; see targetCommand for usage. --timeout
// bounds it as a whole if it is given: by default, a call may go on while the server sends messages.
func (p *program) serverCommand(
	usageLine, short string, names lister, run func(ctx context.Context, c *mcp.Client, words []string) error,
) *cobra.Command {
	return p.targetCommand(usageLine, short, names, func(ctx context.Context, t *target, words []string) error {
		if !p.timed {
			return p.withServer(ctx, t, words, run)
		}
		return p.bounded(ctx, t, nameOf(usageLine), func(ctx context.Context) error {
			return p.withServer(ctx, t, words, run)
		})
	})
}

// boundedCommand returns a serverCommand whose requests are short: the default of --timeout, too,
// bounds it as a whole.
func (p *program) boundedCommand(
	usageLine, short string, names lister, run func(ctx context.Context, c *mcp.Client, words []string) error,
) *cobra.Command {
	return p.targetCommand(usageLine, short, names, func(ctx context.Context, t *target, words []string) error {
		return p.bounded(ctx, t, nameOf(usageLine), func(ctx context.Context) error {
			return p.withServer(ctx, t, words, run)
		})
	})
}

// nameOf returns the name of a command from its usage.
func nameOf(usageLine string) string {
	name, _, _ := strings.Cut(usageLine, " ")
	return name
}

// withServer connects to a target, calls run and closes the connection.
func (p *program) withServer(ctx context.Context, t *target, words []string,
	run func(ctx context.Context, c *mcp.Client, words []string) error) (err error) {
	if p.clientObserver(ctx) != nil {
		spanned, end := p.ofShell().observed.exporters.BeginCommand(ctx, p.verb)
		defer func() { end(exitCode(spanned, err)) }()
		ctx = spanned
	}
	c, err := p.connect(ctx, t)
	if err != nil {
		return err
	}
	options := mcp.CallOptions{Progress: p.screen.progress, Timeout: p.flags.timeout}
	err = run(mcp.WithCallOptions(ctx, options), c, words)
	p.screen.done()
	p.close(c)
	return err
}

// authCommand returns a command about the login at a server.
func (p *program) authCommand(name, short string, run func(ctx context.Context, t *target) error) *cobra.Command {
	cmd := p.targetCommand(name, short, nil, func(ctx context.Context, t *target, _ []string) error {
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
func (p *program) showHelp(cmd *cobra.Command, _ []string) error {
	cmd.SetOut(p.screen.w)
	err := cmd.Help()
	if p.flags.json {
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
