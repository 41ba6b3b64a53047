package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/connect"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver/command"
)

const (
	// slowStart is the time to the first message after which a start is slow: several clients give up
	// after ten seconds, and other machines are slower.
	slowStart = 5 * time.Second
	// slowExit is how long a process may run after its standard input ended. Then it is terminated.
	slowExit = 5 * time.Second
	// maxNoise limits the kept lines of standard output that are no messages, and maxNoiseLine each of
	// them, in bytes.
	maxNoise, maxNoiseLine = 5, 1 << 10
	// shellTimeout bounds the login shell, whose files may start slow programs.
	shellTimeout = 10 * time.Second
	// pathMark begins the line with the PATH of the login shell, after the output of its files.
	pathMark = "patchbay-path:"
	// maxShownVariables limits the shown names of variables: an environment contains dozens.
	maxShownVariables = 12
)

// A process checks a command.
type process struct {
	*run

	mu         sync.Mutex    // guards the fields up to firstAfter
	stderr     *connect.Tail // of the last start
	pids       []int
	noise      []string      // lines of standard output that are no messages
	others     int           // further such lines
	firstAfter time.Duration // the time to the first line of standard output; 0 before it

	first       chan struct{} // closed at the first line of standard output
	began       time.Time
	connected   chan struct{} // closed at the end of the negotiation; guards the fields below
	negotiation Check         // its observations
	client      *mcp.Client
	err         error
}

func (p *process) checks() {
	p.check("program", "look for the program", "", p.findProgram)
	p.check("directory", "look at the working directory", "", p.findDirectory)
	p.check("environment", "look at the variables of the command", "", p.readEnvironment)
	p.check("start", fmt.Sprintf("start the command, and wait up to %v for a line", p.Dialer.StartLimit(p.target)),
		"program directory", p.start)
	p.check("output", "read standard output until the server has connected", "start", p.readOutput)
	p.check("negotiate", "connect as a client", "start", p.negotiate)
	p.check("exit", "close standard input, and wait for the exit", "negotiate", p.exit)
	if p.connected != nil { // also of an interrupted run
		<-p.connected
		if p.client != nil {
			_ = p.client.Close() // may be closed before
		}
	}
}

// installed names the software that contains a program of many configurations.
var installed = map[string]string{
	"npx": "Node.js", "npm": "Node.js", "node": "Node.js", "uvx": "uv", "uv": "uv", "bunx": "Bun", "bun": "Bun",
	"deno": "Deno", "docker": "Docker", "podman": "Podman", "python": "Python", "python3": "Python", "pipx": "pipx",
	"go": "Go", "java": "a Java runtime", "dotnet": ".NET", "dnx": ".NET", "ruby": "Ruby", "php": "PHP",
}

func (p *process) findProgram(ctx context.Context, c *Check) {
	name, path := p.target.Command[0], p.target.Command[0]
	hasDirectory := strings.ContainsRune(filepath.ToSlash(name), '/')
	if hasDirectory && !filepath.IsAbs(path) {
		path = filepath.Join(p.target.Directory, path)
	}
	path, err := exec.LookPath(path)
	suite := installed[strings.TrimSuffix(strings.ToLower(name), ".exe")]
	switch {
	case err == nil:
		c.see("%s", path)
		if r := runtimeOf(path); r != nil {
			r.check(ctx, c)
		}
		return
	case hasDirectory:
		c.see("%v", err)
		c.end(Fail, "correct the path of the program, or make the file executable")
		return
	case suite != "":
		c.end(Fail, "install %s, which contains %s, or write the whole path of %[2]s", suite, name)
	default:
		c.end(Fail, "install %s, or write its whole path", name)
	}
	c.see("%s is not installed, or not in PATH", name)
	c.see("PATH %s", os.Getenv("PATH"))
	if p.LoginShell {
		p.askLoginShell(ctx, c, name)
	} else {
		c.Next += "; if your terminal finds it, patchbay doctor --login-shell shows the difference"
	}
}

// askLoginShell shows whether the user's login shell finds a program, and the directories of its PATH
// that this process lacks.
func (p *process) askLoginShell(ctx context.Context, c *Check, name string) {
	ctx, cancel := context.WithTimeout(ctx, shellTimeout)
	defer cancel()
	shell := cmp.Or(os.Getenv("SHELL"), "/bin/sh")
	cmd := exec.CommandContext(ctx, shell, "-l", "-c", `printf '\n`+pathMark+`%s\n' "$PATH"`)
	cmd.WaitDelay = time.Second
	text, err := cmd.Output()
	_, after, found := strings.Cut(string(text), "\n"+pathMark)
	if !found {
		c.see("login shell %s printed no PATH: %v", shell, err)
		return
	}
	line, _, _ := strings.Cut(after, "\n")
	others := target.Difference(filepath.SplitList(line), filepath.SplitList(os.Getenv("PATH")))
	for _, directory := range others {
		if path, err := exec.LookPath(filepath.Join(directory, name)); err == nil {
			c.see("your login shell finds %s", path)
		}
	}
	c.see("only in the PATH of your login shell: %s", listed(others))
}

func (p *process) findDirectory(_ context.Context, c *Check) {
	directory := cmp.Or(p.target.Directory, ".")
	c.see("%s", directory)
	if info, err := os.Stat(directory); err != nil || !info.IsDir() {
		c.end(Fail, "create the directory, or correct cwd in the configuration or --cwd")
	}
}

// readEnvironment shows names of variables, and no values.
func (p *process) readEnvironment(_ context.Context, c *Check) {
	var set, empty []string
	for _, variable := range p.target.Environment {
		name, value, _ := strings.Cut(variable, "=")
		if set = append(set, name); value == "" {
			empty = append(empty, name)
		}
	}
	var withheld []string // that are probably credentials, or that configure package runners
	for _, variable := range os.Environ() {
		name, value, _ := strings.Cut(variable, "=")
		isDirectory := strings.HasSuffix(name, "PWD") // which SecretName matches, too
		if value != "" && !isDirectory && target.SecretName.MatchString(name) && !slices.Contains(set, name) {
			withheld = append(withheld, name)
		}
	}
	for _, name := range command.Withheld(p.target.Environment, "") {
		if !slices.Contains(withheld, name) {
			withheld = append(withheld, name)
		}
	}
	slices.Sort(withheld)
	c.see("set: %s", listed(set))
	if withheld != nil {
		c.see("in your environment and not inherited: %s", listed(withheld))
	}
	if empty != nil {
		c.see("empty: %s", listed(empty))
		c.end(Warn, "set %s, or remove it from the configuration", empty[0])
	}
}

func listed(names []string) string {
	switch {
	case len(names) == 0:
		return "none"
	case len(names) > maxShownVariables:
		more := len(names) - maxShownVariables
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxShownVariables], ", "), more)
	}
	return strings.Join(names, ", ")
}

// start starts the command and waits for a line, the end of the negotiation or the end of ctx.
func (p *process) start(ctx context.Context, c *Check) {
	t := mcp.Command(p.target.Command[0], p.target.Command[1:]...)
	t.Env, t.Dir, t.Logger = p.target.Environment, p.target.Directory, slog.New(slog.DiscardHandler)
	t.Stderr, t.Line = p, p.line
	t.Started = func(pid int) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.pids, p.stderr = append(p.pids, pid), &connect.Tail{}
	}
	p.began, p.first, p.connected = time.Now(), make(chan struct{}), make(chan struct{})
	go func() { // ends with the negotiation, which ctx and a time limit end; checks waits
		defer close(p.connected)
		p.client, p.err = p.dial(ctx, &p.negotiation, t)
		p.negotiation.Ms = term.Milliseconds(time.Since(p.began))
	}()
	select {
	case <-p.first:
	case <-p.connected:
	}
	p.mu.Lock()
	pids, after := p.pids, p.firstAfter
	p.mu.Unlock()
	if pids != nil {
		c.see("pid %d", pids[0])
	}
	if after == 0 {
		c.see("no line on standard output")
		p.explainExit(c, p.err)
		return
	}
	c.see("first line on standard output after %s", rounded(after))
	if after > slowStart {
		p.showStderr(c)
		c.end(Warn, "let the command start faster: some clients wait for less time; if a package runner downloads the "+
			"server, install it first")
	}
}

// Write receives standard error.
func (p *process) Write(b []byte) (int, error) {
	n, err := p.tail().Write(b)
	if p.Stderr != nil {
		p.Stderr(p.lastLines())
	}
	return n, err
}

// lastLines returns the last lines of standard error without secrets.
func (p *process) lastLines() (lines []string) {
	for line := range strings.Lines(p.tail().String()) {
		lines = append(lines, p.secrets.clean(line, maxLine))
	}
	return lines
}

func (p *process) tail() *connect.Tail {
	p.mu.Lock()
	defer p.mu.Unlock()
	return cmp.Or(p.stderr, &connect.Tail{})
}

// line receives the lines of standard output.
func (p *process) line(sent bool, text []byte) {
	if sent {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.firstAfter == 0 {
		p.firstAfter = max(time.Since(p.began), 1)
		close(p.first)
	}
	if _, err := jsonrpc.Decode(text); err == nil {
		return
	}
	if len(p.noise) == maxNoise || slices.Contains(p.noise, string(text)) {
		p.others++
		return
	}
	p.noise = append(p.noise, string(text[:min(len(text), maxNoiseLine)]))
}

// showStderr adds the last lines of standard error to a check.
func (p *process) showStderr(c *Check) {
	for _, line := range p.lastLines() {
		c.see("stderr: %s", line)
	}
}

var (
	// missingVariable matches names of variables in an error message. errorCode matches error codes, which
	// look like names of variables.
	missingVariable = regexp.MustCompile(`\b[A-Z][A-Z0-9]*(_[A-Z0-9]+)+\b`)
	errorCode       = regexp.MustCompile(`^ERR_|_(NOT_FOUND|ERROR|FAILED|EXCEPTION|REFUSED)$`)
	// missingModule matches messages of Node.js and Python about a missing file or package.
	missingModule = regexp.MustCompile(`Cannot find (?:module|package)|No module named|can't open file`)
)

// explainExit sets the result of a command that did not connect.
func (p *process) explainExit(c *Check, err error) {
	ended, exited := errors.AsType[*mcp.ExitError](err)
	stderr := p.tail().String()
	switch {
	case exited && ended.Signal != "":
		c.see("ended by the signal %s", ended.Signal)
	case exited:
		c.see("exited with status %d", ended.ExitCode)
	default:
		p.run.explain(c, err)
	}
	p.showStderr(c)
	withheld := command.Withheld(p.target.Environment, stderr)
	unset := missingVariable.FindAllString(stderr, -1)
	unset = slices.DeleteFunc(unset, func(name string) bool {
		return errorCode.MatchString(name) || slices.ContainsFunc(slices.Concat(os.Environ(), p.target.Environment),
			func(v string) bool { return strings.HasPrefix(v, name+"=") })
	})
	const set = "add it to env in the configuration, or pass it with --env"
	switch {
	case len(withheld) > 0 && strings.Contains(stderr, withheld[0]):
		c.end(Fail, "%s is set in your shell and not passed: %s", withheld[0], set)
	case len(unset) > 0:
		c.end(Fail, "the command mentions %s, which is not set: %s", unset[0], set)
	case !exited && exit.Code(p.ctx, err) == exit.Timeout:
		c.end(Fail, "run the command in a terminal: it must respond to a message on standard input within %v; if a "+
			"package runner downloads it, run the install step first, or raise startTimeout of the configuration or "+
			"--timeout",
			p.Dialer.StartLimit(p.target))
	case !exited:
	case ended.ExitCode == 127:
		c.end(Fail, "install the program that standard error names: the command did not find it")
	case ended.ExitCode == 126:
		c.end(Fail, "make the program that standard error names executable")
	case ended.Signal == "killed":
		c.end(Fail, "check the memory of this machine: the system kills processes without memory")
	case ended.ExitCode == 0:
		c.end(Fail, "start the server in its stdio mode: it must run until its standard input ends")
	case wrongRuntime.MatchString(stderr):
		c.end(Fail, "install the version of the runtime that standard error asks for")
	case missingModule.MatchString(stderr):
		c.end(Fail, "correct the path in the arguments, or install the packages of the server: standard error names "+
			"the missing file or package")
	case stderr == "":
		c.end(Fail, "run the command in a terminal: it ended without a line on standard error")
	default:
		c.end(Fail, "correct the error that standard error names; the same command in a terminal shows all of it")
	}
}

func (p *process) readOutput(_ context.Context, c *Check) {
	<-p.connected
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.noise) == 0 {
		c.see("all lines are messages")
		return
	}
	c.see("lines that are no messages: %d", len(p.noise)+p.others)
	for _, line := range p.noise {
		c.see("%s", p.secrets.excerpt([]byte(line)))
	}
	c.end(Warn, "log to standard error: some clients close a connection at the first line that is no message")
	if p.err != nil {
		c.Status = Fail
	}
}

func (p *process) negotiate(ctx context.Context, c *Check) {
	<-p.connected
	c.Seen, c.Ms = p.negotiation.Seen, p.negotiation.Ms
	if p.err != nil {
		p.explainExit(c, p.err)
		return
	}
	if len(p.pids) > 1 { // no process is started any more
		c.see("started %d times: the process exits at a message of a newer revision", len(p.pids))
	}
	err := p.describe(ctx, c, p.client)
	if _, exited := errors.AsType[*mcp.ExitError](err); exited {
		p.explainExit(c, err)
	}
}

func (p *process) exit(_ context.Context, c *Check) {
	began := time.Now()
	err := p.client.Close()
	took := time.Since(began)
	c.see("exited %s after the end of its standard input", rounded(took))
	switch {
	case err != nil:
		c.see("%v", err)
		c.end(Warn, "end the processes that are left by hand")
	case took >= slowExit:
		c.end(Warn, "let the server exit at the end of its standard input: it had to be terminated")
	}
}
