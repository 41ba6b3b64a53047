package approvals

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/gateway/pins"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/question"
	"github.com/patchbay-mcp/patchbay/host/approval"
)

// approveOptions are the flags of `patchbay gateway approve`.
type approveOptions struct {
	forNow, always, pins, yes bool
}

// approveCommand returns the command that approves a request or definitions that wait for the user.
func approveCommand(f *cmdutil.Factory) *cobra.Command {
	var o approveOptions
	definitions := pins.CompletePins(f, true)
	cmd := &cobra.Command{
		Use:                   "approve [ID] [--session|--always [--yes]] | --pins NAME… [--yes]",
		Short:                 "Approve a request that waits, or quarantined definitions of a server",
		DisableFlagsInUseLine: true,
		Args:                  namedRequest(cobra.ArbitraryArgs),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			if !o.pins {
				return completePending(cmd.Context(), args, typed)
			}
			return definitions(cmd, args, typed)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			answer, err := o.answer(len(args))
			if err != nil {
				return exit.UsageError(err)
			}
			if o.pins {
				return pins.ApprovePins(cmd.Context(), f, args, o.yes)
			}
			if err := confirmAlways(cmd.Context(), f, &o); err != nil {
				return err
			}
			return decideRequest(cmd.Context(), f, args[0], answer)
		},
	}
	cmd.Flags().BoolVar(&o.forNow, "session", false, "approve further requests for the same in this session")
	cmd.Flags().BoolVar(&o.always, "always", false, "approve further requests for the same until the grant is revoked")
	cmd.Flags().BoolVar(&o.pins, "pins", false, "approve definitions: NAME is a server or SERVER/NAME for a definition")
	cmd.Flags().BoolVar(&o.yes, "yes", false, "approve definitions, or with --always, without asking")
	return cmd
}

// confirmAlways asks whether to approve future requests, which nobody can see yet: a program that
// runs this command must not approve them without the user.
func confirmAlways(ctx context.Context, f *cmdutil.Factory, o *approveOptions) error {
	if !o.always || o.yes {
		return nil
	}
	if !f.IO.MayPrompt() {
		return exit.UsageError(errors.New(
			"--always needs a terminal, or --yes: it approves all further requests for the same " +
				"tool and rule, with any arguments"))
	}
	ok, err := f.Ask.Confirm(ctx, "Approve all further requests for the same, with any arguments, until the grant is "+
		"revoked?", "n")
	if err != nil && !errors.Is(err, question.ErrDeclined) && !errors.Is(err, question.ErrCancelled) {
		return err
	}
	if !ok {
		return &exit.Error{Code: exit.Failure, Err: errors.New("nothing was approved")}
	}
	return nil
}

// answer returns the answer to a request, or the error of the flags and the number of arguments.
func (o *approveOptions) answer(args int) (approval.Answer, error) {
	switch {
	case o.forNow && o.always:
		return "", errors.New("--session and --always exclude each other")
	case o.pins && (o.forNow || o.always):
		return "", errors.New("--session and --always are for requests: leave them out with --pins")
	case o.pins:
		return "", nil
	case o.yes && !o.always:
		return "", errors.New("--yes is for definitions and --always: omit it for a request")
	case args > 1:
		return "", errors.New("one request is approved at a time; several names are for --pins")
	case o.forNow:
		return approval.Session, nil
	case o.always:
		return approval.Always, nil
	}
	return approval.Once, nil
}
