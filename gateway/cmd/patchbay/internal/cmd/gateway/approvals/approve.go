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

// ApproveOptions are the flags of "gateway approve". The Words are a request, or names of definitions.
type ApproveOptions struct {
	cmdutil.Invocation
	ForNow, Always, Pins, Yes bool
}

// NewCmdApprove returns the command "gateway approve", which approves a pending request or definitions.
func NewCmdApprove(f *cmdutil.Factory, run cmdutil.Run[*ApproveOptions]) *cobra.Command {
	o := &ApproveOptions{}
	cmd := cmdutil.Command(f, "approve [ID] [--session|--always [--yes]] | --pins NAME… [--yes]",
		"Approve a request that waits, or quarantined definitions of a server", namedRequest(cobra.ArbitraryArgs), o,
		cmdutil.Or(run, approve))
	definitions, pending := pins.CompletePins(f, true), completePending(f)
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if !o.Pins {
			return pending(cmd, args, typed)
		}
		return definitions(cmd, args, typed)
	}
	cmd.Flags().BoolVar(&o.ForNow, "session", false, "approve further requests for the same in this session")
	cmd.Flags().BoolVar(&o.Always, "always", false, "approve further requests for the same until the grant is revoked")
	cmd.Flags().BoolVar(&o.Pins, "pins", false, "approve definitions: NAME is a server or SERVER/NAME for a definition")
	cmd.Flags().BoolVar(&o.Yes, "yes", false, "approve definitions, or with --always, without asking")
	return cmd
}

func approve(ctx context.Context, o *ApproveOptions) error {
	answer, err := o.answer()
	switch {
	case err != nil:
		return exit.UsageError(err)
	case o.Pins:
		return pins.ApprovePins(ctx, o.Factory, o.Words, o.Yes)
	}
	if err := confirmAlways(ctx, o); err != nil {
		return err
	}
	return decideRequest(ctx, o.Factory, o.Words[0], answer)
}

// confirmAlways asks whether to approve future requests, which nobody can see yet: a program that
// runs this command must not approve them without the user.
func confirmAlways(ctx context.Context, o *ApproveOptions) error {
	if !o.Always || o.Yes {
		return nil
	}
	if !o.IO.MayPrompt() {
		return exit.UsageError(errors.New(
			"--always needs a terminal, or --yes: it approves all further requests for the same " +
				"tool and rule, with any arguments"))
	}
	ok, err := o.Ask.Confirm(ctx, "Approve all further requests for the same, with any arguments, until the grant is "+
		"revoked?", "n")
	if err != nil && !errors.Is(err, question.ErrDeclined) && !errors.Is(err, question.ErrCancelled) {
		return err
	}
	if !ok {
		return &exit.Error{Code: exit.Failure, Err: errors.New("nothing was approved")}
	}
	return nil
}

// answer returns the answer to a request, or the error of the flags and arguments.
func (o *ApproveOptions) answer() (approval.Answer, error) {
	switch {
	case o.ForNow && o.Always:
		return "", errors.New("--session and --always exclude each other")
	case o.Pins && (o.ForNow || o.Always):
		return "", errors.New("--session and --always are for requests: leave them out with --pins")
	case o.Pins:
		return "", nil
	case o.Yes && !o.Always:
		return "", errors.New("--yes is for definitions and --always: omit it for a request")
	case len(o.Words) > 1:
		return "", errors.New("one request is approved at a time; several names are for --pins")
	case o.ForNow:
		return approval.Session, nil
	case o.Always:
		return approval.Always, nil
	}
	return approval.Once, nil
}
