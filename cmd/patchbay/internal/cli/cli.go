// Package cli is the command patchbay: it asks MCP servers from the command line, and serves a demo.
//
// [Run] is all of it. A file holds a noun: target, arguments, form, answers, output; or a group of verbs.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/patchbay-mcp/patchbay/cmd/patchbay/internal/vault"
	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/oauth"
)

// A program is one run of the command.
type program struct {
	flags  flags
	input  *input
	output *output
	screen *screen

	interactive  bool                     // there is somebody at the keyboard who sees the screen
	vault        *vault.Vault             // of tokens; nil until it is needed
	loggingIn    bool                     // that is what the command is for
	loginTime    time.Duration            // how long a user has for a login; 0 for the usual time
	verifyMost   int64                    // how many bytes are taken to verify skills; 0 for the usual number
	received     atomic.Int64             // bytes of answers
	terminalLock chan struct{}            // holds a token while the user is asked something
	answers      *answers                 // of --answers
	serverName   atomic.Pointer[string]   // who is connected to, for questions
	current      atomic.Pointer[target]   // the same, for the command that logs in; nil before there is one
	scopes       atomic.Pointer[[]string] // scopes that the user was asked for last; nil before that

	given       *givenAnswer          // to what a task asks; nil for none
	leaveOpen   bool                  // questions that nobody can answer are left open, and not declined
	taskStarted func(h *tasks.Handle) // is told of a call that has become a task; nil if nobody is
	cancelled   atomic.Bool           // the server has taken the cancellation of a task

	open func(ctx context.Context, page string) error // opens a page in a browser
}

// flags are those that all verbs share.
type flags struct {
	json, verbose, noInput     bool
	timeout                    time.Duration
	revision, logLevel, save   string
	config, answers, directory string
	header, environment, roots []string
}

// Run runs the command with its arguments, which do not include its name, and gives the status to exit with; `patchbay
// help exit-codes` says what the codes mean. When ctx ends, so does the command. Questions are asked if stdin and stderr
// are a terminal.
func Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	p := newProgram(stdin, stdout, stderr)
	p.interactive = isTerminal(stdin) && p.screen.terminal
	return p.run(ctx, args)
}

func newProgram(stdin io.Reader, stdout, stderr io.Writer) *program {
	return &program{
		input:        newInput(stdin),
		output:       &output{w: stdout, terminal: isTerminal(stdout)},
		screen:       &screen{w: stderr, terminal: isTerminal(stderr), width: func() int { return widthOf(stderr) }},
		open:         openBrowser,
		terminalLock: make(chan struct{}, 1),
	}
}

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// widthOf is the width of a terminal, 0 if it does not tell.
func widthOf(stream any) int {
	f, ok := stream.(*os.File)
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// maxData is how much is shown of the data of an error, in characters.
const maxData = 1000

// errShown is an error of which the user has been told.
var errShown = errors.New("told")

func (p *program) run(ctx context.Context, args []string) int {
	root := p.rootCommand()
	root.SetArgs(args)
	root.SetIn(p.input.r)
	root.SetOut(p.output.w)
	root.SetErr(p.screen.w)
	err := root.ExecuteContext(ctx)
	p.screen.done()
	if err == nil {
		err = p.output.err
	}
	code := exitCode(ctx, err)
	if err == nil || errors.Is(err, errShown) {
		return code
	}
	p.fail(code, err, p.advise(ctx, code, err))
	return code
}

// fail tells of an error.
func (p *program) fail(code int, err error, a advice) {
	f, words := newFailure(code, err), errorText(code, err)
	f.Login = a.login
	if a.words != "" {
		f.Message, words = a.words, a.words
	}
	if p.flags.json {
		p.output.value(map[string]failure{"error": f})
	}
	p.screen.printf("patchbay: %s", clean(words))
	if f.Data != nil {
		p.screen.printf("  data: %s", shorten(cleanJSON(string(f.Data)), maxData))
	}
	switch {
	case a.login != "":
		p.screen.printf("  %s", cleanLine(a.login))
	case a.hint != "":
		p.screen.printf("  %s", cleanLine(a.hint))
	case code == exitTimeout && !errors.Is(err, oauth.ErrLoginTimeout):
		p.screen.printf("  --timeout says how long the server may be silent: %v", p.flags.timeout)
	}
}

// Groups of verbs in the help.
const (
	groupAsk   = "ask"
	groupLogin = "login"
	groupSelf  = "self"
)

func (p *program) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "patchbay",
		Short: "The Model Context Protocol, in every revision",
		Long: `patchbay asks servers of the Model Context Protocol, in every revision of it.

A TARGET is a URL, a name from a configuration file (patchbay help config), or, behind two
dashes at the end of the line, a command that is started and spoken to over its standard
input and output.`,
		Example: `  patchbay tools https://example.com/mcp
  patchbay tools -- npx -y @modelcontextprotocol/server-everything
  patchbay call http://127.0.0.1:8765/mcp add a=1 b=2
  patchbay call echo message=hi -- npx -y @modelcontextprotocol/server-everything`,
		SilenceErrors:              true,
		SilenceUsage:               true,
		SuggestionsMinimumDistance: 2,
		Version:                    version(),
		Args:                       knownSubcommand,
		RunE:                       p.showHelp,
	}
	root.SetVersionTemplate("patchbay {{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usage(fmt.Errorf("%w (see %s --help)", err, cmd.CommandPath()))
	})
	root.AddGroup(&cobra.Group{ID: groupAsk, Title: "Ask a server:"},
		&cobra.Group{ID: groupLogin, Title: "Be let in by a server:"}, &cobra.Group{ID: groupSelf, Title: "This program:"})
	root.SetHelpCommandGroupID(groupSelf)
	root.SetCompletionCommandGroupID(groupSelf)
	p.addFlags(root)
	for _, verb := range p.verbs() {
		root.AddCommand(verb)
	}
	root.AddCommand(topics()...)
	root.InitDefaultHelpCmd()
	if help, _, err := root.Find([]string{"help"}); err == nil {
		help.Args = p.helpExists
	}
	return root
}

// knownSubcommand refuses what is no command of a command that has some.
func knownSubcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err := fmt.Errorf("unknown command %q", args[0])
	for _, like := range cmd.SuggestionsFor(args[0]) {
		err = fmt.Errorf("%w: did you mean %q?", err, like)
		break
	}
	return usage(err)
}

// showHelp is what a command does that has to be followed by another one.
func (p *program) showHelp(cmd *cobra.Command, _ []string) error {
	cmd.SetOut(p.screen.w)
	return usage(errors.Join(errShown, cmd.Help()))
}

// helpExists refuses to help with what there is not.
func (p *program) helpExists(help *cobra.Command, args []string) error {
	at, rest, err := help.Root().Find(args)
	if err == nil && len(rest) == 0 {
		return nil
	}
	topic := strings.Join(args, " ")
	words := strings.FieldsFunc(topic, func(r rune) bool { return r == '-' || r == ' ' })
	if c, rest, err := help.Root().Find(words); err == nil && len(rest) == 0 && c != help.Root() {
		return usage(fmt.Errorf("no help topic %q: want %s help %s", topic, help.Root().Name(), strings.Join(words, " ")))
	}
	if err != nil || !at.HasSubCommands() {
		at = help.Root()
	}
	above := strings.TrimPrefix(at.CommandPath()+" ", help.Root().Name()+" ")
	var known []string
	for _, c := range at.Commands() {
		known = append(known, above+c.Name())
	}
	return usage(unknown("help topic", topic, known))
}

// verbs are the commands, in no order: the help sorts them.
func (p *program) verbs() []*cobra.Command {
	asking := []*cobra.Command{
		p.probeCommand(), p.toolsCommand(), p.resourcesCommand(), p.templatesCommand(), p.promptsCommand(),
		p.callCommand(), p.taskCommand(), p.readCommand(), p.getCommand(), p.completeCommand(), p.listenCommand(),
		p.skillsCommand(), p.rpcCommand(), p.pingCommand(),
	}
	for _, verb := range asking {
		verb.GroupID, verb.DisableFlagsInUseLine = groupAsk, true
	}
	auth := p.authCommand()
	auth.GroupID = groupLogin
	own := []*cobra.Command{p.serveCommand(), p.versionCommand()}
	for _, verb := range own {
		verb.GroupID = groupSelf
	}
	return append(append(asking, auth), own...)
}

func (p *program) addFlags(root *cobra.Command) {
	f, all := &p.flags, root.PersistentFlags()
	const timeout = 60 * time.Second // as the client has it
	all.BoolVar(&f.json, "json", false, "print JSON on standard output (see help json)")
	all.BoolVarP(&f.verbose, "verbose", "v", false, "show every message and what the server prints, on standard error")
	all.DurationVar(&f.timeout, "timeout", timeout, "how long the server may be silent")
	all.StringVar(&f.revision, "revision", "", "pin the revision of the protocol, such as "+newestRevision())
	all.StringArrayVar(&f.header, "header", nil, "add an HTTP header, as `Name:value`")
	all.StringArrayVar(&f.environment, "env", nil, "add to the environment of the command, as `KEY=value`")
	all.StringVar(&f.directory, "cwd", "", "start the command in this `directory`")
	all.StringVar(&f.config, "config", "", "read names of targets from this `file` (see help config)")
	all.StringVar(&f.answers, "answers", "", "answer the server's questions from this `file` (see help answers)")
	all.BoolVar(&f.noInput, "no-input", false, "ask the user nothing: decline what the server asks")
	all.StringVar(&f.logLevel, "log-level", "", "show log messages of the server from this `level` on, debug to emergency")
	all.StringVar(&f.save, "save", "", "save images, sounds and other binary contents to this `directory`")
	all.StringArrayVar(&f.roots, "root", nil, "tell the server that this `directory` is worked in")
	completeFlags(root)
}

// verb makes a verb of a function that talks to one server: it finds the target, connects and closes.
func (p *program) verb(run func(ctx context.Context, c *mcp.Client, words []string) error, atLeast, atMost int) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		t, words, err := p.target(cmd, args)
		if err != nil {
			return usage(err)
		}
		if len(words) < atLeast || atMost >= 0 && len(words) > atMost {
			return usage(fmt.Errorf("wrong number of arguments, want %s", cmd.UseLine()))
		}
		c, err := p.connect(cmd.Context(), t)
		if err != nil {
			return err
		}
		err = run(p.withProgress(cmd.Context()), c, words)
		p.screen.done()
		p.close(c)
		return err
	}
}

// close ends a connection. What goes wrong with that takes nothing from what was asked for.
func (p *program) close(c *mcp.Client) {
	const unnoticed = time.Second
	told := make(chan struct{})
	late := time.AfterFunc(unnoticed, func() {
		p.screen.status("waiting for the server to end …")
		close(told)
	})
	err := c.Close()
	if !late.Stop() {
		<-told
		p.screen.done()
	}
	if err != nil && p.flags.verbose {
		p.screen.printf("patchbay: close: %s", clean(err.Error()))
	}
}

// withProgress returns a context whose requests show their progress.
func (p *program) withProgress(ctx context.Context) context.Context {
	return mcp.WithCallOptions(ctx, mcp.CallOptions{Progress: p.screen.progress})
}
