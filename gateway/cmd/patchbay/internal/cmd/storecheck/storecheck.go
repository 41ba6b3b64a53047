// Package storecheck explains why a store of several processes does not work.
package storecheck

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/doctor"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/hosting"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/stores/check"
	"github.com/patchbay-mcp/patchbay/stores/postgres"
	"github.com/patchbay-mcp/patchbay/stores/shared"
)

// NewCmdStore returns the command "doctor store".
func NewCmdStore(f *cmdutil.Factory, run cmdutil.Run[*cmdutil.Invocation]) *cobra.Command {
	return cmdutil.Command(f, "store URL", "Find out why a store of --store does not work (Redis, Valkey, PostgreSQL)",
		cobra.ExactArgs(1), &cmdutil.Invocation{}, cmdutil.Or(run, examine))
}

func examine(ctx context.Context, o *cmdutil.Invocation) error {
	url, err := hosting.ExpandStore(ctx, o.Factory, &hosting.Config{}, o.Words[0])
	if err != nil {
		return err
	}
	r := &doctor.Report{}
	report := func(f check.Finding) {
		o.IO.Err.Status(f.Name + " …")
		c := doctor.Check{Name: f.Name, Status: doctor.Status(f.Status), Action: f.Action, Seen: []string{},
			Next: f.Next, Ms: term.Milliseconds(f.Took)}
		for _, line := range f.Seen {
			c.Seen = append(c.Seen, term.CleanLine(line))
		}
		r.Checks = append(r.Checks, c)
	}
	switch hosting.StoreKind(url) {
	case "bolt":
		return exit.UsageError(errors.New("got a file: want the URL of a server, redis://HOST or postgres://HOST"))
	case "postgres":
		r.Target = term.CleanLine(postgres.Check(ctx, url, nil, report))
	default:
		r.Target = term.CleanLine(shared.Check(ctx, url, report))
	}
	o.IO.Err.Done()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if !o.PrintedJSON(r) {
		o.IO.Out.Write(r.Text())
	}
	if code := r.ExitCode(); code != exit.OK {
		return &exit.Error{Code: code, Err: exit.ErrShown}
	}
	return nil
}
