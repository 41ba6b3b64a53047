package mcp

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"slices"
	"strings"
	"unicode"

	"github.com/patchbay-mcp/patchbay/internal/childproc"
	"github.com/patchbay-mcp/patchbay/visible"
)

// defaultCommandMessage is half the default of [NewStreamConn], because the code often comes from a
// public registry.
const defaultCommandMessage = 16 << 20

// Command returns a [Transport] to a server that runs as a child process and communicates over its
// standard input and output. The first request starts the process. After an exit, the next request
// starts it again. name is the name or path of a program, resolved by [exec.LookPath]. Arguments
// are passed unchanged, without a shell.
//
// Set the fields of the result before [Connect]:
//
//	server := mcp.Command("npx", "-y", "@modelcontextprotocol/server-everything")
//	server.Env = []string{"EXAMPLE_TOKEN=" + token}
//	client, err := mcp.Connect(ctx, server, nil)
//
// A server runs with all rights of this process. Take the name and the arguments only from the
// user's own configuration.
//
// Spec: basic/transports/stdio (2026-07-28).
func Command(name string, args ...string) *CommandTransport {
	s := &CommandTransport{Path: name, Args: args}
	s.init(s.dial)
	return s
}

// A CommandTransport is the [Transport] to a server that runs as a child process. Make it with
// [Command]. Its fields must not change after its first use.
//
// The server and its descendants form a process group, or a job on Windows, and end together. Close
// first ends the server's standard input. Processes that still run after 5 seconds are asked to
// terminate, and killed 3 seconds later; on Windows they are killed after the 5 seconds. When the
// server exits, its remaining descendants are ended too. When this process is killed, so is the
// group. Only a process that leaves the group, as daemons do, survives.
//
// Spec: basic/transports/stdio#shutdown (2026-07-28).
type CommandTransport struct {
	Path string   // the name of the program, or the path of its file
	Args []string // the arguments, without the name of the program
	Dir  string   // the working directory; default: the working directory of this process
	// Env contains additional variables, as "KEY=value". The server inherits only variables that
	// programs need and that hold no secrets: PATH, HOME, USER, LOGNAME, SHELL, TERM, TZ, LANG,
	// LANGUAGE, TMPDIR and LC_*, or their equivalents on Windows, and variables for proxies,
	// certificates, package registries and Go, such as HTTPS_PROXY, NODE_EXTRA_CA_CERTS,
	// NPM_CONFIG_REGISTRY and GOPROXY, unless the value contains credentials. If a name occurs more
	// than once, the last value applies, so Env overrides inherited variables.
	Env []string
	// InsecureInheritEnv passes the environment of this process, including secrets, to the server.
	InsecureInheritEnv bool
	// Stderr receives the server's standard error line by line; lines are cut at 64 KiB. A slow
	// writer blocks neither the server nor its requests: lines that do not fit into a queue of 1
	// MiB are dropped, and their number is written in their place. One goroutine calls Write, and
	// not after Close. Default: lines are logged at level debug.
	Stderr io.Writer
	// Logger logs problems of the process. Default: the client's.
	Logger *slog.Logger
	// MaxMessage is the largest message that is read from the server, in bytes. Default: 16 MiB.
	MaxMessage int
	// Once is for supervisors that start a server again themselves. A server that responded to a
	// request and ended is not started again: requests fail with the [ExitError], in a
	// [TransportError] whose MayHaveRun is false if they were sent after the end. A server that
	// exits before its first response, as some servers of older revisions do on a request of a
	// newer revision, is started again for the next request.
	Once bool
	// Started is called with the ID of each started process, before the first message to it. It
	// must not block, or use the transport. If it panics, the process is ended, and the request
	// fails.
	Started func(pid int)
	// Prepare is called before each start of the process and may change how it is started, such as
	// its limits or its user. An error of Prepare fails the start. Prepare must not block, and must
	// not change the standard streams of cmd. Default: the process is started with the settings
	// above.
	Prepare func(cmd *exec.Cmd) error
	// Line is called with each exact line that is about to be written to the server's standard input
	// (sent), or was read from its standard output, message or not, without its line feed. Blank lines,
	// lines over MaxMessage and output after Close are not reported. Calls for a process do not overlap.
	// Line must not block, use the transport, or change or keep text.
	Line func(sent bool, text []byte)

	connTransport
}

// dial starts the server. ctx bounds the start, not the life of the process.
func (s *CommandTransport) dial(ctx context.Context) (Conn, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	s.logger, s.once = cmp.Or(s.Logger, s.logger), s.Once
	cmd := s.command()
	if s.Prepare != nil {
		cmd.Err = cmp.Or(s.Prepare(cmd), cmd.Err) // of the start
	}
	p, err := childproc.Start(cmd, childproc.Options{
		Name: s.Path, Stderr: s.Stderr, Logger: s.log(), Line: s.Line,
		MaxMessage: cmp.Or(max(s.MaxMessage, 0), defaultCommandMessage),
		ExitError:  func(e childproc.Exit) error { return &ExitError{s.Path, e.Code, e.Signal, e.Stderr} },
	})
	if err != nil {
		return nil, fmt.Errorf("start server %q: %w", s.Path, err)
	}
	if err := s.started(ctx, p.ID()); err != nil {
		_ = p.Close() // err is the reason
		return nil, err
	}
	return p, nil
}

// started calls Started.
func (s *CommandTransport) started(ctx context.Context, pid int) (err error) {
	defer recovered(ctx, s.log(), "Started", &err)
	if s.Started != nil {
		s.Started(pid)
	}
	return nil
}

func (s *CommandTransport) command() *exec.Cmd {
	cmd := exec.CommandContext(context.Background(), s.Path, s.Args...)
	cmd.Dir = s.Dir
	env := cmd.Environ() // of this process, with PWD set to Dir
	if !s.InsecureInheritEnv {
		env = slices.DeleteFunc(env, func(variable string) bool { return !childproc.IsInherited(variable) })
	}
	cmd.Env = slices.Concat(env, s.Env)
	return cmd
}

func (s *CommandTransport) isRunner() bool { return childproc.IsPackageRunner(s.Path) }

func (s *CommandTransport) withheld(stderr string) []string {
	if s.InsecureInheritEnv {
		return nil
	}
	return childproc.Withheld(s.Env, stderr)
}

// ServerKey returns a key made of the command line and the working directory.
func (s *CommandTransport) ServerKey() string {
	return strings.Join(append([]string{"command", s.Dir, s.Path}, s.Args...), "\x00")
}

// An ExitError reports that the process of a server exited although its transport was not closed.
// It satisfies errors.Is(err, [ErrDisconnected]). The [TransportError] of a request that was in
// progress wraps it.
type ExitError struct {
	Command  string // the name of the program, as passed to [Command]
	ExitCode int    // the exit status of the process, or -1 if a signal ended it
	Signal   string // the signal that ended the process, such as "killed"; may be empty
	// Stderr is the last output on standard error, unmodified: at most 16 lines and 4 KiB. It may
	// give the reason for the exit. The text comes from the server and must not be trusted.
	Stderr string
}

// Error returns the way in which the process ended and its last output, without control characters.
func (e *ExitError) Error() string {
	var b strings.Builder
	if e.Signal != "" {
		fmt.Fprintf(&b, "server %q was ended by a signal: %s", e.Command, e.Signal)
	} else {
		fmt.Fprintf(&b, "server %q exited with status %d", e.Command, e.ExitCode)
	}
	stderr := strings.Map(printable, e.Stderr)
	switch {
	case stderr == "":
	case strings.Contains(stderr, "\n"):
		b.WriteString(":\n\t" + strings.ReplaceAll(stderr, "\n", "\n\t"))
	default:
		b.WriteString(": " + stderr)
	}
	return b.String()
}

// printable maps characters that could change a terminal to -1.
func printable(r rune) rune {
	switch {
	case r == '\n', unicode.IsPrint(r) && !visible.Hidden(r):
		return r
	case r == '\t':
		return ' '
	}
	return -1
}

// Unwrap returns [ErrDisconnected].
func (e *ExitError) Unwrap() error { return ErrDisconnected }
