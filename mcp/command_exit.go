package mcp

import (
	"fmt"
	"os"
	"strings"
	"unicode"
)

// An ExitError says that the process of a server has ended though nobody has closed its transport. It satisfies
// errors.Is(err, [ErrDisconnected]), and is within the [TransportError] of the requests that were in progress.
type ExitError struct {
	// Command is the name of the program, as [Command] got it.
	Command string
	// ExitCode is the status that the process exited with, and -1 if a signal ended it.
	ExitCode int
	// Signal is the signal that ended the process, such as "killed" or "segmentation fault"; empty if none did.
	Signal string
	// Stderr is what the process wrote last to its standard error: at most 16 lines and 4 KiB, as they are. It may say why
	// the process ended; it is text of the server's, to be shown with care.
	Stderr string
}

// Error says how the server ended, and what it wrote last, without control characters.
func (e *ExitError) Error() string {
	var b strings.Builder
	if e.Signal != "" {
		fmt.Fprintf(&b, "server %q was ended by a signal: %s", e.Command, e.Signal)
	} else {
		fmt.Fprintf(&b, "server %q exited with status %d", e.Command, e.ExitCode)
	}
	words := strings.Map(printable, e.Stderr)
	switch {
	case words == "":
	case strings.Contains(words, "\n"):
		b.WriteString(":\n\t" + strings.ReplaceAll(words, "\n", "\n\t"))
	default:
		b.WriteString(": " + words)
	}
	return b.String()
}

// printable leaves out what would change the screen that an error is shown on.
func printable(r rune) rune {
	switch {
	case r == '\n', unicode.IsPrint(r):
		return r
	case r == '\t':
		return ' '
	}
	return -1
}

// Unwrap returns [ErrDisconnected].
func (e *ExitError) Unwrap() error { return ErrDisconnected }

// newExitError makes the error of a process that has ended. The state is nil if it could not be told.
func newExitError(command string, state *os.ProcessState, stderr string) *ExitError {
	e := &ExitError{Command: command, ExitCode: -1, Stderr: stderr}
	if state != nil {
		e.ExitCode, e.Signal = state.ExitCode(), signalOf(state)
	}
	return e
}
