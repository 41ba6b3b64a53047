// Package cli implements the command patchbay: a client for MCP servers, and a demo server.
//
// [Run] runs it. Each file has one concept, such as target or form, or one group of commands.
package cli

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// Run runs patchbay with args, without the program name, and returns its exit code: see `patchbay
// help exit-codes`. Cancelling ctx interrupts it. The user is prompted if stdin and stderr are a
// terminal.
func Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	f := newRun(stdin, stdout, stderr)
	f.IO.Interactive = isTerminal(stdin) && f.IO.Err.terminal
	return run(ctx, f, args)
}

// newRun returns the factory of one run of patchbay.
func newRun(stdin io.Reader, stdout, stderr io.Writer) *factory {
	f := newFactory(newStreams(stdin, stdout, stderr), &flags{}, namedHosts{})
	f.commands = commands
	return f
}

// errShown is an error whose message has been shown.
var errShown = errors.New("shown")

func run(ctx context.Context, f *factory, args []string) int {
	f.args = args
	if completeCommand(f, args) {
		return exitOK
	}
	root := rootCommand(f)
	root.SetArgs(args)
	root.SetIn(f.IO.In.r)
	root.SetOut(f.IO.Out.w)
	root.SetErr(f.IO.Err.w)
	defer end(f)
	return execute(ctx, f, root)
}

// execute runs a command, reports its error and returns its exit code.
func execute(ctx context.Context, f *factory, cmd *cobra.Command) int {
	return finish(ctx, f, cmd.ExecuteContext(ctx))
}

// report shows the error of a command and returns its exit code.
func finish(ctx context.Context, f *factory, err error) int {
	f.IO.Err.done()
	if err == nil {
		err = f.IO.Out.err
	}
	if closed := f.Client.closeTrace(); err == nil {
		err = closed
	}
	code := exitCode(ctx, err)
	if m := f.Client.missing.Load(); code == exitIncomplete && m != nil && m.Failed > 0 {
		f.Client.showTail() // of a gateway, which has ended: it has reported why
	}
	if err == nil || errors.Is(err, errShown) {
		return code
	}
	fail(f, code, err, advise(ctx, f, code, err))
	return code
}

func fail(p *factory, code int, err error, a advice) {
	f, text := newFailure(code, err), errorText(code, err)
	f.Login = a.login
	if a.message != "" {
		f.Message, text = a.message, a.message
	}
	if p.Flags.json {
		p.IO.Out.value(map[string]failure{"error": f})
	}
	if p.IO.Err.records != nil {
		attributes := []slog.Attr{slog.Int("exit", code)}
		if hint := cmp.Or(a.login, a.hint); hint != "" {
			attributes = append(attributes, slog.String("hint", hint))
		}
		p.IO.Err.record(slog.LevelError, text, attributes...)
		return
	}
	p.IO.Err.printf("%s %s", p.IO.prefix(), clean(text))
	if f.Data != nil {
		const maxData = 1000 // characters
		p.IO.Err.printf("  data: %s", shorten(cleanJSON(string(f.Data)), maxData))
	}
	if f.Code == mcp.CodeInternalError || f.Code == codeOfServer {
		p.Client.showTail()
	}
	switch {
	case a.login != "":
		p.IO.Err.printf("  %s", cleanLine(a.login))
	case a.hint != "":
		p.IO.Err.printf("  %s", cleanLine(a.hint))
	case code == exitTimeout && !errors.Is(err, oauthclient.ErrLoginTimeout) && !strings.Contains(text, "--timeout"):
		p.IO.Err.printf("  No message for %v; change that with --timeout.", p.Flags.timeout)
	}
}

func rootCommand(f *factory) *cobra.Command {
	root := &cobra.Command{
		Use:                        "patchbay",
		Short:                      "Model Context Protocol (MCP) from the command line",
		SilenceErrors:              true,
		SilenceUsage:               true,
		SuggestionsMinimumDistance: 2,
		Version:                    version(),
		Args:                       knownSubcommand,
		RunE:                       func(cmd *cobra.Command, v1 []string) error { return showHelp(f, cmd, v1) },
	}
	root.SetVersionTemplate("patchbay {{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return flagError(f, cmd, err) })
	root.AddGroup(&cobra.Group{ID: groupServer, Title: "Server commands:"},
		&cobra.Group{ID: groupAuth, Title: "Authorization:"}, &cobra.Group{ID: groupOther, Title: "Other commands:"})
	root.SetHelpCommandGroupID(groupOther)
	addFlags(f, root)
	root.AddCommand(f.commands(f)...)
	root.InitDefaultHelpCmd()
	if help, _, err := root.Find([]string{"help"}); err == nil {
		help.Args = helpExists
	}
	addHelp(root)
	setHelp(f, root)
	checkArguments(root)
	return root
}

func addFlags(p *factory, root *cobra.Command) {
	f, all := p.Flags, root.PersistentFlags()
	all.BoolVar(&f.json, "json", false, "print JSON (see help json)")
	all.BoolVarP(&f.verbose, "verbose", "v", false, "show messages and the server's stderr, on standard error")
	all.DurationVar(&f.timeout, "timeout", defaultTimeout,
		"fail after this long, without the time in which the user answers; by default calls may\ntake longer "+
			"while the server sends messages")
	all.StringVar(&f.revision, "revision", "", "use this protocol `revision`, such as "+newestRevision())
	all.StringArrayVar(&f.header, "header", nil, "add an HTTP header, as `Name:value`")
	all.BoolVar(&f.insecureHTTP, "insecure-http", false,
		"send credentials of headers also to an http URL of another machine: the network can read them")
	all.StringVar(&f.caCert, "cacert", "", "trust the CA certificates of this PEM `file`, too, for HTTPS")
	all.StringArrayVar(&f.environment, "env", nil,
		"set an environment variable of the command, as `KEY=value`: it inherits few (see \"help config\")")
	all.StringVar(&f.directory, "cwd", "", "working `directory` of the command")
	all.StringVar(&f.config, "config", "", "configuration `file` with the names of servers (see help config)")
	all.StringVar(&f.answers, "answers", "", "answer elicitation and sampling from this `file` (see help answers)")
	all.StringVar(&f.sampleWith, "sample-with", "",
		"answer sampling with the output of this `command`, which gets the request as JSON (see help answers)")
	all.BoolVar(&f.noInput, "no-input", false, "never prompt: decline elicitation and sampling")
	all.StringVar(&f.logLevel, "log-level", "", "show log messages of at least this `level`, debug to emergency")
	all.StringVar(&f.trace, "trace", "", "append all messages to this `file`, as JSON lines (see help recordings)")
	all.StringVar(&f.save, "save", "", "save images, audio and other binary content to this `directory`")
	f.color = choiceFlag{"auto", []string{"auto", "always", "never"}}
	all.Var(&f.color, "color", "colour names and errors; auto: on a terminal without NO_COLOR and TERM=dumb")
	all.StringArrayVar(&f.roots, "root", nil, "offer this `directory` to the server as a root")
	completeFlags(root)
}

// close closes a connection. An error does not fail the command, which has its result.
func (d *dialer) close(c *mcp.Client) {
	if d.shared != nil && d.shared.keeps(c) {
		return
	}
	const statusAfter = time.Second
	shown := make(chan struct{})
	late := time.AfterFunc(statusAfter, func() {
		d.IO.Err.status("waiting for the server to exit …")
		close(shown)
	})
	err := c.Close()
	if !late.Stop() {
		<-shown
		d.IO.Err.done()
	}
	if err != nil && d.Flags.verbose {
		d.IO.Err.printf("patchbay: close: %s", clean(err.Error()))
	}
}
