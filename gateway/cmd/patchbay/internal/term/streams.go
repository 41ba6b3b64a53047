package term

import (
	"io"
	"os"

	"golang.org/x/term"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/flags"
)

// MayPrompt reports whether the user may be asked.
func (s *Streams) MayPrompt() bool { return s.Interactive && !s.Flags.NoInput }

// Streams are the standard input, output and error of a command, and how they are used.
type Streams struct {
	In          *Input
	Out         *Output
	Err         *Screen
	Interactive bool // stdin and stderr are a terminal
	Flags       *flags.Flags

	LogFormat flags.Choice // the value of --log-format
}

// NewStreams returns streams that prompt nobody: see streams.Interactive.
func NewStreams(stdin io.Reader, stdout, stderr io.Writer) *Streams {
	return &Streams{
		In:  NewInput(stdin),
		Out: &Output{W: stdout, Terminal: IsTerminal(stdout), Width: func() int { return widthOf(stdout) }},
		Err: &Screen{W: stderr, Terminal: IsTerminal(stderr), Width: func() int { return widthOf(stderr) }},
	}
}

// IsTerminal reports whether a stream is a terminal.
func IsTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func widthOf(stream any) (width int) {
	if f, ok := stream.(*os.File); ok {
		width, _, _ = term.GetSize(int(f.Fd()))
	}
	return width
}
