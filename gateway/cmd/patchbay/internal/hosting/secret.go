package hosting

import (
	"context"
	"errors"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
)

// ReadSecret reads a secret: hidden on a terminal, else standard input without final line breaks.
func ReadSecret(ctx context.Context, f *cmdutil.Factory, name string) (string, error) {
	if f.IO.MayPrompt() {
		f.IO.Err.Prompt("Value of " + name + " (hidden): ")
		return f.Config.InputLine(ctx, true)
	}
	if term.IsTerminal(f.IO.In.R) {
		return "",
			exit.UsageError(errors.New(
				"missing value: must come from standard input, such as a pipe, or be typed on a terminal"))
	}
	data, err := f.IO.In.ReadSource(ctx, "-")
	return strings.TrimRight(string(data), "\r\n"), err
}
