package root

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/auth"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/bench"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/call"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/check"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/completion"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/console"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/doctor"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/events"
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
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
)

// commands returns all commands and help topics. The help sorts them.
func commands(f *cmdutil.Factory) []*cobra.Command {
	uris, prompts := list.Resources(f).Names, list.Prompts(f).Names
	return slices.Concat(cmdutil.InGroup(cmdutil.GroupServer, probe.NewCmdProbe(f, nil), doctor.NewCmdDoctor(f, nil),
		list.NewCmdTools(f, nil), list.NewCmdResources(f, nil), list.NewCmdTemplates(f, nil),
		list.NewCmdPrompts(f, nil), call.NewCmdCall(f, nil),
		read.NewCmdRead(f, uris, nil), read.NewCmdGet(f, prompts, nil), read.NewCmdComplete(f, prompts, nil),
		listen.NewCmdListen(f, uris, nil), record.NewCmdBridge(f, nil), record.NewCmdRecord(f, nil),
		rpc.NewCmdRPC(f), shell.NewCmdShell(f, commands, nil), lint.NewCmdLint(f, nil),
		bench.NewCmdBench(f, nil), console.NewCmdConsole(f, nil), rpc.NewCmdPing(f),
		skills.NewCmdSkills(f), task.NewCmdTask(f), events.NewCmdEvents(f)),
		cmdutil.InGroup(cmdutil.GroupAuth, auth.NewCmdAuth(f)),
		cmdutil.InGroup(cmdutil.GroupOther, serve.NewCmdServe(f, nil), check.NewCmdCheck(f, nil),
			gateway.NewCmdGateway(f, nil),
			record.NewCmdMock(f, nil), servers.NewCmdServers(f, nil), trust.NewCmdTrust(f, nil),
			completion.NewCmdCompletion(f, nil), man.NewCmdMan(f, nil), serve.NewCmdVersion(f)),
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
