package cmdutil

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
)

// ParseTarget returns the target of a command, and the other arguments.
func ParseTarget(f *Factory, cmd *cobra.Command, args []string) (t *target.Target, words []string, err error) {
	if f.Client.Shell != nil {
		return f.Client.Shell.Server(), args, nil
	}
	if dash := cmd.ArgsLenAtDash(); dash >= 0 {
		if dash == len(args) {
			return nil, nil, errors.New("missing command after --")
		}
		t = &target.Target{Command: args[dash:]}
		words = args[:dash]
	} else {
		if len(args) == 0 {
			return nil, nil, fmt.Errorf("missing TARGET: the URL of a server or its name in a configuration file\n"+
				"usage: %s", cmd.UseLine())
		}
		if t, err = f.Config.Named(cmd.Context(), args[0], f.Config.AskTrust); err != nil {
			return nil, nil, misplaced(cmd, args, err)
		}
		t.Name = args[0]
		words = args[1:]
	}
	return t, words, f.Config.AddToTarget(cmd.Context(), t)
}

// misplaced adds advice to the error of a target that looks like a command or precedes a URL.
func misplaced(cmd *cobra.Command, args []string, err error) error {
	if strings.Contains(args[0], "://") {
		return err
	}
	for _, word := range args[1:] {
		if target.CheckServerURL(word) == nil {
			return fmt.Errorf("%w\nthe target comes first: did you mean %s?", err, term.CleanLine(word))
		}
	}
	var unknown *target.UnknownServerError
	if advice := misplacedCommand(cmd, args); advice != "" && errors.As(err, &unknown) {
		return fmt.Errorf("%w\n%s", err, advice)
	}
	return err
}
