// Package doctor explains why a server does not connect.
package doctor

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/storecheck"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/doctor"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
)

// Options are the flags of "doctor".
type Options struct {
	cmdutil.Invocation
	LogIn      bool // log in if the server requires it
	LoginShell bool // run the login shell for its PATH
}

// NewCmdDoctor returns the command "doctor".
func NewCmdDoctor(f *cmdutil.Factory, run cmdutil.Run[*Options]) *cobra.Command {
	o := &Options{}
	cmd := cmdutil.TargetCommand(f, "doctor", "Find out why a server does not connect", nil, o,
		cmdutil.Or(run, examine))
	cmd.AddCommand(storecheck.NewCmdStore(f, nil))
	cmd.Flags().BoolVar(&o.LogIn, "login", false, "log in if the server requires it, and check each step of the login")
	cmd.Flags().BoolVar(&o.LoginShell, "login-shell", false,
		"if the program is not found, run your login shell and compare its PATH")
	return cmd
}

func examine(ctx context.Context, o *Options) error {
	if o.Target.Host != nil {
		return exit.UsageError(errors.New("doctor checks one server: pass a name that \"patchbay servers\" lists"))
	}
	var w doctor.Writer
	opts := &doctor.Options{Dialer: o.Client, Login: o.LogIn, LoginShell: o.LoginShell,
		Begin: func(name, action string) { o.IO.Err.Status(name + ": " + action + " …") },
		End: func(c doctor.Check) {
			if !o.Flags.JSON {
				o.IO.Err.Done()
				o.IO.Out.Write(w.Check(c))
			}
		}}
	if !o.Flags.JSON {
		o.IO.Out.Write(doctor.Title(o.Target) + "\n")
	}
	r := doctor.Run(ctx, o.Target, opts)
	o.IO.Err.Done()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if o.Flags.JSON {
		o.IO.Out.Value(r)
	} else {
		o.IO.Out.Write(w.End(r))
	}
	if code := r.ExitCode(); code != exit.OK {
		return &exit.Error{Code: code, Err: exit.ErrShown}
	}
	return nil
}
