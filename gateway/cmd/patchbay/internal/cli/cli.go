// Package cli implements the command patchbay: a client for MCP servers, and a demo server.
//
// [Run] runs it. Each file has one concept, such as target or form, or one group of commands.
package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/gateway/audit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/recording"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/vault"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// A program is one run of patchbay.
type program struct {
	args   []string // the command line
	flags  flags
	input  *input
	output *output
	screen *screen

	interactive bool          // stdin and stderr are a terminal
	headless    bool          // browsers of this machine are not seen by the user
	vault       *vault.Vault  // of tokens; nil until it is used
	loggingIn   bool          // the command is a login
	loginTime   time.Duration // how long a user has to log in; 0 for the default
	verifyMost  int64         // bytes received for verifying skills at most; 0 for the default
	received    atomic.Int64  // bytes of results and errors

	atEnd      []func() error // called when the program ends
	audits     []*audit.Log   // closed after atEnd
	locks      []*os.File     // of sockets; released last
	completing bool           // the command line is being completed: no command is started

	observed  *observation // of the clients of the command; nil before the first one
	verb      string       // the name of the command, such as "patchbay call"
	logFormat choiceFlag   // of --log-format

	keyFileWarned atomic.Bool // the key file of the vault was warned about
	lastSecrets   sync.Map    // from the names of ${secret:NAME} to the values that were last read
	commandStderr *tail       // of the server's command, without -v

	current    atomic.Pointer[target]   // the server; nil before there is one
	serverName atomic.Pointer[string]   // of the server, for questions
	scopes     atomic.Pointer[[]string] // that the last login page asked for; nil before

	search       []string                       // of --search
	answers      *answers                       // of --answers
	given        *givenAnswer                   // of the command line; nil without one
	noAuth       bool                           // HTTP is served without a key
	bridging     bool                           // clients answer the questions of the server
	recorder     *recording.Writer              // of --trace; nil before the first connection
	leaveOpen    bool                           // questions that cannot be answered stay open instead of being declined
	terminalLock chan struct{}                  // a token while the user is prompted
	sampler      *sampler                       // of --sample-with; nil without it
	failed       func()                         // prints which servers of @host have failed; nil for other targets
	missing      atomic.Pointer[missingServers] // of the last list; nil if it is complete
	noQuestions  bool                           // the client declares neither elicitation nor sampling

	tls   *tls.Config                    // with the certificates of --cacert; nil for the default
	timed bool                           // the command line has --timeout
	limit atomic.Pointer[driver.Timeout] // of the whole command; nil without one

	taskStarted   func(h *tasks.Handle) // called when a call becomes a task
	taskCancelled atomic.Bool           // the server has accepted tasks/cancel

	open func(ctx context.Context, page string) error // opens a page in a browser

	shell   *shell  // that runs the command; nil without one
	session session // of shell; nil without one
	idle    bool    // no command runs: the program answers the server of a shell

	// hostNamed returns the target of @host or @.
	hostNamed func(ctx context.Context, name string) (*target, error)
	explain   mcp.Middleware // of the client of a bridge

	commandContext context.Context // of the command of a shell; nil without one
}

// flags are the flags of all commands.
type flags struct {
	json, verbose, noInput     bool
	timeout                    time.Duration
	revision, logLevel, save   string
	config, answers, directory string
	trace                      string
	sampleWith                 string
	caCert                     string
	header, environment, roots []string
	insecureHTTP               bool
	color                      choiceFlag
}

// Run runs patchbay with args, without the program name, and returns its exit code: see `patchbay
// help exit-codes`. Cancelling ctx interrupts it. The user is prompted if stdin and stderr are a
// terminal.
func Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	p := newProgram(stdin, stdout, stderr)
	p.interactive = isTerminal(stdin) && p.screen.terminal
	return p.run(ctx, args)
}

func newProgram(stdin io.Reader, stdout, stderr io.Writer) *program {
	p := &program{
		input:  newInput(stdin),
		output: &output{w: stdout, terminal: isTerminal(stdout), width: func() int { return widthOf(stdout) }},
		screen: &screen{w: stderr, terminal: isTerminal(stderr), width: func() int { return widthOf(stderr) }},
		open:   oauthclient.OpenBrowser, commandStderr: &tail{},
		headless:     isHeadless(runtime.GOOS, os.Getenv),
		terminalLock: make(chan struct{}, 1),
		taskStarted:  func(*tasks.Handle) {},
	}
	p.hostNamed = p.namedHost
	p.output.colored = func() bool { return p.colored(p.output.terminal) }
	return p
}

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func widthOf(stream any) (width int) {
	if f, ok := stream.(*os.File); ok {
		width, _, _ = term.GetSize(int(f.Fd()))
	}
	return width
}

// errShown is an error whose message has been shown.
var errShown = errors.New("shown")

func (p *program) run(ctx context.Context, args []string) int {
	p.args = args
	if p.completeCommand(args) {
		return exitOK
	}
	root := p.rootCommand()
	root.SetArgs(args)
	root.SetIn(p.input.r)
	root.SetOut(p.output.w)
	root.SetErr(p.screen.w)
	defer p.end()
	return p.execute(ctx, root)
}

// execute runs a command, reports its error and returns its exit code.
func (p *program) execute(ctx context.Context, cmd *cobra.Command) int {
	return p.report(ctx, cmd.ExecuteContext(ctx))
}

// report shows the error of a command and returns its exit code.
func (p *program) report(ctx context.Context, err error) int {
	p.screen.done()
	if err == nil {
		err = p.output.err
	}
	if closed := p.closeTrace(); err == nil {
		err = closed
	}
	code := exitCode(ctx, err)
	if m := p.missing.Load(); code == exitIncomplete && m != nil && m.Failed > 0 {
		p.showTail() // of a gateway, which has ended: it has reported why
	}
	if err == nil || errors.Is(err, errShown) {
		return code
	}
	p.fail(code, err, p.advise(ctx, code, err))
	return code
}

func (p *program) fail(code int, err error, a advice) {
	f, text := newFailure(code, err), errorText(code, err)
	f.Login = a.login
	if a.message != "" {
		f.Message, text = a.message, a.message
	}
	if p.flags.json {
		p.output.value(map[string]failure{"error": f})
	}
	if p.screen.records != nil {
		attributes := []slog.Attr{slog.Int("exit", code)}
		if hint := cmp.Or(a.login, a.hint); hint != "" {
			attributes = append(attributes, slog.String("hint", hint))
		}
		p.screen.record(slog.LevelError, text, attributes...)
		return
	}
	p.screen.printf("%s %s", p.prefix(), clean(text))
	if f.Data != nil {
		const maxData = 1000 // characters
		p.screen.printf("  data: %s", shorten(cleanJSON(string(f.Data)), maxData))
	}
	if f.Code == mcp.CodeInternalError || f.Code == codeOfServer {
		p.showTail()
	}
	switch {
	case a.login != "":
		p.screen.printf("  %s", cleanLine(a.login))
	case a.hint != "":
		p.screen.printf("  %s", cleanLine(a.hint))
	case code == exitTimeout && !errors.Is(err, oauthclient.ErrLoginTimeout) && !strings.Contains(text, "--timeout"):
		p.screen.printf("  No message for %v; change that with --timeout.", p.flags.timeout)
	}
}

func (p *program) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:                        "patchbay",
		Short:                      "Model Context Protocol (MCP) from the command line",
		SilenceErrors:              true,
		SilenceUsage:               true,
		SuggestionsMinimumDistance: 2,
		Version:                    version(),
		Args:                       knownSubcommand,
		RunE:                       p.showHelp,
	}
	root.SetVersionTemplate("patchbay {{.Version}}\n")
	root.SetFlagErrorFunc(p.flagError)
	root.AddGroup(&cobra.Group{ID: groupServer, Title: "Server commands:"},
		&cobra.Group{ID: groupAuth, Title: "Authorization:"}, &cobra.Group{ID: groupOther, Title: "Other commands:"})
	root.SetHelpCommandGroupID(groupOther)
	p.addFlags(root)
	root.AddCommand(p.commands()...)
	root.InitDefaultHelpCmd()
	if help, _, err := root.Find([]string{"help"}); err == nil {
		help.Args = helpExists
	}
	addHelp(root)
	p.setHelp(root)
	checkArguments(root)
	return root
}

func (p *program) addFlags(root *cobra.Command) {
	f, all := &p.flags, root.PersistentFlags()
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
func (p *program) close(c *mcp.Client) {
	if p.session != nil && p.session.keeps(c) {
		return
	}
	const statusAfter = time.Second
	shown := make(chan struct{})
	late := time.AfterFunc(statusAfter, func() {
		p.screen.status("waiting for the server to exit …")
		close(shown)
	})
	err := c.Close()
	if !late.Stop() {
		<-shown
		p.screen.done()
	}
	if err != nil && p.flags.verbose {
		p.screen.printf("patchbay: close: %s", clean(err.Error()))
	}
}
