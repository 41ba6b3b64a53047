package config

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/configs"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/hosting"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/gatewayconfig"
	"github.com/patchbay-mcp/patchbay/host/config"
)

// NewCmdValidate returns the command "gateway validate".
func NewCmdValidate(f *cmdutil.Factory, run cmdutil.Run[*cmdutil.Invocation]) *cobra.Command {
	return cmdutil.Command(f, "validate [FILE]",
		"Check a configuration file, and print the line and column of each error", cobra.MaximumNArgs(1),
		&cmdutil.Invocation{}, cmdutil.Or(run, validate))
}

// NewCmdSchema returns the command "gateway schema".
func NewCmdSchema(f *cmdutil.Factory, run cmdutil.Run[*cmdutil.Invocation]) *cobra.Command {
	return cmdutil.Command(f, "schema", "Print the JSON Schema of configuration files, for editors", cobra.NoArgs,
		&cmdutil.Invocation{}, cmdutil.Or(run, schema))
}

func schema(_ context.Context, o *cmdutil.Invocation) error {
	o.IO.Out.Raw(gatewayconfig.Schema())
	return nil
}

func validate(_ context.Context, o *cmdutil.Invocation) error {
	f, path := o.Factory, append(o.Words, config.Paths(o.Flags.Config)[0])[0]
	switch _, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
		return exit.NotFoundError(fmt.Errorf("configuration file %s does not exist", path))
	case err != nil:
		return exit.NotFoundError(err)
	}
	text, err := configs.ReadForEdit(path)
	if err != nil {
		return err
	}
	v := &hosting.Validation{File: path, Errors: []hosting.ConfigProblem{}, Warnings: []hosting.ConfigProblem{}}
	v.Check(text)
	v.Valid = len(v.Errors) == 0
	if f.Flags.JSON {
		f.IO.Out.Value(v)
	} else {
		for _, problem := range v.Errors {
			f.IO.Out.Println(v.Text(problem, ""))
		}
		for _, problem := range v.Warnings {
			f.IO.Out.Println(v.Text(problem, "warning: "))
		}
	}
	switch {
	case !v.Valid:
		f.IO.Err.Printf("%s is invalid: %s.", term.CleanLine(path), term.Counted(len(v.Errors), "error"))
		return &exit.Error{Code: exit.Failure, Err: exit.ErrShown}
	case !f.Flags.JSON:
		f.IO.Err.Printf("%s is valid, with %s.", term.CleanLine(path), term.Counted(v.Servers, "server"))
	}
	return nil
}
