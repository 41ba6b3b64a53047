package root

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/auth"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/bench"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/call"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/completion"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/lint"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/list"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/listen"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/man"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/probe"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/read"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/record"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/rpc"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/serve"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/servers"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/shell"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/skills"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/task"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/trust"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// commands returns all commands and help topics. The help sorts them.
func commands(f *cmdutil.Factory) []*cobra.Command {
	tools := list.Listing[*mcp.Tool]{Key: "tools", All: (*mcp.Client).Tools, Show: func(t *mcp.Tool, whole bool) { list.ShowTool(f, t, whole) }, Name: cmdutil.ToolName, Text: list.ToolText}
	resources := list.Listing[*mcp.Resource]{Key: "resources", All: (*mcp.Client).Resources, Show: func(r *mcp.Resource, whole bool) { list.ShowResource(f, r, whole) }, Name: cmdutil.ResourceURI,
		Text: list.ResourceText}
	templates := list.Listing[*mcp.ResourceTemplate]{Key: "resourceTemplates", All: (*mcp.Client).ResourceTemplates,
		Show: func(t *mcp.ResourceTemplate, whole bool) { list.ShowTemplate(f, t, whole) }, Name: nil, Text: list.TemplateText}
	prompts := list.Listing[*mcp.Prompt]{Key: "prompts", All: (*mcp.Client).Prompts, Show: func(prompt *mcp.Prompt, whole bool) { list.ShowPrompt(f, prompt, whole) }, Name: cmdutil.PromptName, Text: list.PromptTexts}
	task := cmdutil.WithSubcommands(f, "task", "Show, watch, answer and cancel tasks",
		task.NewCmdTaskList(f),
		task.NewCmdTask(f, "get ID", "Show a task", func(ctx context.Context, h *tasks.Handle, v1 []string) error { return task.GetTask(ctx, f, h, v1) }),
		task.NewCmdTask(f, "watch ID", "Wait for a task and print its result", func(ctx context.Context, h *tasks.Handle, v1 []string) error { return task.WatchTask(ctx, f, h, v1) }),
		task.NewCmdTaskAnswer(f),
		task.NewCmdTask(f, "cancel ID", "Cancel a task", func(ctx context.Context, h *tasks.Handle, v1 []string) error { return task.CancelTask(ctx, f, h, v1) }))
	task.Aliases = []string{"tasks"}
	return slices.Concat(
		cmdutil.InGroup(cmdutil.GroupServer,
			probe.NewCmdProbe(f),
			list.Searchable(f, cmdutil.BoundedCommand(f, "tools [NAME]", "List tools, or show one with its input and output schema",
				tools.Names, list.ListOrShow(f, tools))),
			list.Searchable(f, cmdutil.BoundedCommand(f, "resources", "List resources", nil, list.ListOrShow(f, resources))),
			list.Searchable(f, cmdutil.BoundedCommand(f, "templates", "List resource templates", nil, list.ListOrShow(f, templates))),
			list.Searchable(f, cmdutil.BoundedCommand(f, "prompts [NAME]", "List prompts, or show one with its arguments",
				prompts.Names, list.ListOrShow(f, prompts))),
			call.NewCmdCall(f, tools),
			cmdutil.ServerCommand(f, "read URI [VARIABLE=VALUE…]", "Read a resource", resources.Names, func(ctx context.Context, c *mcp.Client, words []string) error { return read.Read(ctx, f, c, words) }),
			cmdutil.CompleteArguments(f, cmdutil.ServerCommand(f, "get PROMPT [ARGUMENT…]", "Get a prompt", prompts.Names, func(ctx context.Context, c *mcp.Client, words []string) error { return read.Get(ctx, f, c, words) }),
				cmdutil.PromptArguments),
			cmdutil.CompleteArguments(f, cmdutil.BoundedCommand(f, "complete REFERENCE ARGUMENT=TYPED [KNOWN=VALUE…]",
				"Complete an argument of a prompt or resource template", prompts.Names, func(ctx context.Context, c *mcp.Client, words []string) error { return read.Complete(ctx, f, c, words) }), cmdutil.PromptArguments),
			listen.NewCmdListen(f, resources.Names),
			record.NewCmdBridge(f),
			record.NewCmdRecord(f),
			cmdutil.ServerCommand(f, "rpc METHOD [PARAMS]", "Send a JSON-RPC request", nil, func(ctx context.Context, c *mcp.Client, words []string) error { return rpc.RPC(ctx, f, c, words) }),
			shell.NewCmdShell(f),
			lint.NewCmdLint(f),
			bench.NewCmdBench(f, tools),
			cmdutil.BoundedCommand(f, "ping", "Send a ping and print the round-trip time", nil, func(ctx context.Context, c *mcp.Client, v1 []string) error { return rpc.Ping(ctx, f, c, v1) }),
			cmdutil.WithSubcommands(f, "skills", "List, read and verify skills",
				cmdutil.ServerCommand(f, "list", "List skills", nil, func(ctx context.Context, c *mcp.Client, v1 []string) error { return skills.ShowSkills(ctx, f, c, v1) }),
				cmdutil.ServerCommand(f, "show SKILL", "Show a skill and the list of its files", skills.SkillNames, func(ctx context.Context, c *mcp.Client, words []string) error {
					return skills.ShowSkill(ctx, f, c, words)
				}),
				cmdutil.ServerCommand(f, "read SKILL [FILE]", "Read and verify a file of a skill", skills.SkillNames, func(ctx context.Context, c *mcp.Client, words []string) error {
					return skills.ReadSkill(ctx, f, c, words)
				}),
				cmdutil.ServerCommand(f, "verify [SKILL]", "Verify the files of skills", skills.SkillNames, func(ctx context.Context, c *mcp.Client, words []string) error {
					return skills.VerifySkills(ctx, f, c, words)
				})),
			task),
		cmdutil.InGroup(cmdutil.GroupAuth, cmdutil.WithSubcommands(f, "auth", "Log in to and out of servers (OAuth)",
			auth.NewCmdLogin(f),
			auth.NewCmdStatus(f),
			cmdutil.AuthCommand(f, "logout", "Log out of a server", func(ctx context.Context, t *target.Target) error { return auth.Logout(ctx, f, t) }),
			auth.NewCmdToken(f),
			auth.NewCmdVaultKey(f))),
		cmdutil.InGroup(cmdutil.GroupOther, serve.NewCmdServe(f), gateway.NewCmdGateway(f), record.NewCmdMock(f), servers.NewCmdServers(f),
			trust.NewCmdTrust(f), completion.NewCmdCompletion(f), man.NewCmdMan(f), serve.NewCmdVersion(f)),
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
		if _, ok := errors.AsType[*exit.Error](err); err == nil || ok {
			return err
		}
		return exit.UsageError(fmt.Errorf("%w\nusage: %s", err, cmd.UseLine()))
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
	return exit.UsageError(term.UnknownName("help topic", strings.Join(args, " "), append(names, subcommands...)))
}
