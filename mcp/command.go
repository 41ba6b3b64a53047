package mcp

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"runtime"
	"slices"
	"strings"
)

// childMaxMessage is the length of a line that a server may send if nothing else is said: a child is often code from a
// registry, so it is trusted with half of what a stream of one's own is.
const childMaxMessage = 16 << 20

// Command returns the [Transport] to a server that runs as a child process and speaks on its standard input and output. The
// process is started with the first request, and started again when it has died since the last one. The name is that of a
// program, found as [exec.LookPath] does: in PATH if it has no slash, and never in the current directory by accident. There
// is no shell: arguments arrive as they are.
//
// Set the fields of what is returned before [Connect]:
//
//	server := mcp.Command("npx", "-y", "@example/server")
//	server.Env = []string{"EXAMPLE_TOKEN=" + token}
//	client, err := mcp.Connect(ctx, server, nil)
//
// Starting a server runs its code with all rights of this process. The name and the arguments should come from the
// user's own configuration and from nowhere else.
//
// Spec: basic/transports/stdio (2026-07-28).
func Command(name string, args ...string) *ServerCommand {
	s := &ServerCommand{Path: name, Args: args}
	s.init(s.dial)
	return s
}

// A ServerCommand is the [Transport] to a server that runs as a child process; [Command] makes it. Its fields are not
// changed once it is in use.
//
// The server and all that it starts are one process group, or one job on Windows, and end together. When the transport
// is closed, the server's standard input ends. What still runs after 5 seconds is told to terminate, and what still runs 3
// seconds later is killed; on Windows it is killed after the 5 seconds. When the server ends by itself, what it has started
// and left behind ends as well. When this process is killed, the group is killed too. Only a process that has left
// the group, as daemons do, is not followed.
//
// Spec: basic/transports/stdio#shutdown (2026-07-28).
type ServerCommand struct {
	// Path is the name of the program, or the path of its file.
	Path string
	// Args are the arguments, without the name of the program.
	Args []string
	// Dir is the working directory. Default: that of this process.
	Dir string
	// Env has variables as "KEY=value". They are added to those that the server has from this process, which are a few
	// that programs need and that hold no secrets: PATH, HOME, USER, LOGNAME, SHELL, TERM, TZ, LANG, LANGUAGE, TMPDIR and LC_*,
	// or what corresponds to them on Windows. Of two with one name the later one counts, so these win.
	Env []string
	// InsecureInheritEnv returns the server the whole environment of this process, with the secrets that are in it.
	InsecureInheritEnv bool
	// Stderr takes what the server writes to its standard error, line by line; a line is cut at 64 KiB. A writer that is
	// slow or blocks holds up nobody: lines that do not fit in its queue of 1 MiB are dropped, and their number is
	// written in their place. It is called by one goroutine, and not after the transport is closed, if it returns. Default: the
	// lines are logged at debug level.
	Stderr io.Writer
	// Logger takes what goes wrong with the process. Default: the client's.
	Logger *slog.Logger
	// MaxMessage is the length in bytes of the longest message that is read from the server. Default: 16 MiB.
	MaxMessage int

	connTransport
}

// dial starts the server. ctx is about starting it, not about its life.
func (s *ServerCommand) dial(ctx context.Context) (Conn, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	s.logger = cmp.Or(s.Logger, s.logger)
	c, err := startChild(s)
	if err != nil {
		return nil, fmt.Errorf("start server %q: %w", s.Path, err)
	}
	return c, nil
}

// command returns the command that starts the server.
func (s *ServerCommand) command() *exec.Cmd {
	cmd := exec.CommandContext(context.Background(), s.Path, s.Args...)
	cmd.Dir = s.Dir
	env := cmd.Environ() // of this process, with PWD as Dir has it
	if !s.InsecureInheritEnv {
		env = slices.DeleteFunc(env, func(variable string) bool { return !isHarmless(variable) })
	}
	cmd.Env = slices.Concat(env, s.Env)
	return cmd
}

// Variables that a server has from this process unasked. Programs do not run, or do not find their files, without some of
// them; none is a usual place of secrets, as variables of proxies are.
var (
	harmlessUnix = []string{"PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "TZ", "LANG", "LANGUAGE", "TMPDIR", "PWD"}

	harmlessWindows = []string{"PATH", "PATHEXT", "COMSPEC", "SYSTEMROOT", "WINDIR", "SYSTEMDRIVE", "TEMP", "TMP",
		"USERPROFILE", "USERNAME", "USERDOMAIN", "HOMEDRIVE", "HOMEPATH", "APPDATA", "LOCALAPPDATA", "PROGRAMDATA", "PROGRAMFILES",
		"PROGRAMFILES(X86)", "PROGRAMW6432", "COMMONPROGRAMFILES", "COMPUTERNAME", "OS", "NUMBER_OF_PROCESSORS",
		"PROCESSOR_ARCHITECTURE", "LANG"}
)

// isHarmless reports whether every server may see a variable, given as "KEY=value".
func isHarmless(variable string) bool {
	name, value, _ := strings.Cut(variable, "=")
	if runtime.GOOS == "windows" {
		return slices.Contains(harmlessWindows, strings.ToUpper(name)) // names have no case there
	}
	if strings.HasPrefix(value, "()") {
		return false // a function of a shell is code, whatever its name is
	}
	return slices.Contains(harmlessUnix, name) || strings.HasPrefix(name, "LC_")
}

// ServerKey is the command line, so that what was found out about the server is known when it is started again.
func (s *ServerCommand) ServerKey() string {
	return strings.Join(append([]string{"command", s.Dir, s.Path}, s.Args...), "\x00")
}
