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

// Commands returns the commands of the gateway that read or edit the configuration.
func Commands(f *cmdutil.Factory) []*cobra.Command {
	list := cmdutil.Plain(f, "list", "List the servers that the gateway serves, and to whom", cobra.NoArgs, listOwn)
	list.Aliases = []string{"ls"}
	return []*cobra.Command{
		list, NewCmdAdd(f, nil), NewCmdRemove(f, nil), NewCmdImport(f, nil),
		newCmdEdit(f, "enable NAME", "Use a server of your configuration again", nil, enableServer),
		newCmdEdit(f, "disable NAME", "Keep a server in your configuration, and do not use it", nil, disableServer),
		cmdutil.Plain(f, "validate [FILE]", "Check a configuration file, and print the line and column of each error",
			cobra.MaximumNArgs(1), validate),
		cmdutil.Plain(f, "schema", "Print the JSON Schema of configuration files, for editors", cobra.NoArgs, schema),
	}
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
