package cli

import (
	"io"
	"os"

	"golang.org/x/term"
)

// streams are the standard input, output and error of a command, and how they are used.
type streams struct {
	In          *input
	Out         *output
	Err         *screen
	Interactive bool // stdin and stderr are a terminal
	Flags       *flags

	logFormat choiceFlag // the value of --log-format
}

// newStreams returns streams that prompt nobody: see streams.Interactive.
func newStreams(stdin io.Reader, stdout, stderr io.Writer) *streams {
	return &streams{
		In:  newInput(stdin),
		Out: &output{w: stdout, terminal: isTerminal(stdout), width: func() int { return widthOf(stdout) }},
		Err: &screen{w: stderr, terminal: isTerminal(stderr), width: func() int { return widthOf(stderr) }},
	}
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
