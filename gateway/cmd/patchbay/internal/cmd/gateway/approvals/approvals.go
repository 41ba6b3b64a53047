// Package approvals lists and decides the calls that wait for approval.
package approvals

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/gateway/policy"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/hosting"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/internal/osuser"
	"github.com/patchbay-mcp/patchbay/host/approval"
)

// withApprovals calls f with the approvals of the gateways of this user.
func withApprovals(ctx context.Context, p *cmdutil.Factory, f func(*approval.Approvals) error) error {
	state, err := hosting.GatewayState(ctx, p)
	if err != nil {
		return err
	}
	err = f(approval.New(state, nil))
	if err == nil {
		return nil
	}
	text := strings.Replace(err.Error(), ": host: ", ": ", 1)
	switch {
	case errors.Is(err, approval.ErrNotPending):
		return &exit.Error{Code: exit.NotFound, Err: errors.New(text +
			`; "patchbay gateway pending" lists those that do`)}
	case errors.Is(err, approval.ErrNoGrant):
		return &exit.Error{Code: exit.NotFound, Err: errors.New(text + `; "patchbay gateway grants" lists them`)}
	}
	return err
}

// Commands returns the commands "gateway pending", "approve", "deny", "grants" and "revoke".
func Commands(f *cmdutil.Factory) []*cobra.Command {
	return []*cobra.Command{
		NewCmdApprove(f, nil),
		cmdutil.Plain(f, "pending", "List the requests that wait for approval", cobra.NoArgs, listPending),
		cmdutil.WithCompletion(cmdutil.Plain(f, "deny ID", "Refuse a request that waits for approval",
			namedRequest(cobra.ExactArgs(1)), deny), completePending(f)),
		cmdutil.Plain(f, "grants", "List the approvals for a session or always", cobra.NoArgs, listGrants),
		cmdutil.Plain(f, "revoke ID", "Remove a grant: the next request asks again", cobra.ExactArgs(1), revoke),
	}
}

func listPending(ctx context.Context, o *cmdutil.Invocation) error {
	return withApprovals(ctx, o.Factory, func(a *approval.Approvals) error {
		all, err := a.Pending(ctx)
		if err != nil {
			return err
		}
		if o.PrintedJSON(map[string]any{"pending": append([]approval.Pending{}, all...)}) {
			return nil
		}
		if len(all) == 0 {
			o.IO.Out.Printf("No request waits for approval.")
		}
		for i := range all {
			printPending(o.Factory, &all[i])
		}
		return nil
	})
}

// maxArgumentsShown bounds the arguments of a request in a list, in characters.
const maxArgumentsShown = 4000

// printPending prints a request with all that it would do.
func printPending(f *cmdutil.Factory, r *approval.Pending) {
	who := "the local user"
	if r.Principal != "" {
		who = r.Principal
	}
	f.IO.Out.Printf("%s  %s %s of server %s", r.ID, term.CleanLine(r.Method), term.CleanLine(r.Target),
		term.CleanLine(r.Server))
	f.IO.Out.Printf("  from %s, client %s, expires in %s", term.CleanLine(who), term.CleanLine(r.Client),
		time.Until(r.Expires).Truncate(time.Second))
	if r.Rule != "" || r.Reason != "" {
		f.IO.Out.Printf("  %s %s", policy.RuleName(r.Rule), term.CleanLine(r.Reason))
	}
	if len(r.Arguments) > 0 {
		text := term.CleanLine(string(r.Arguments))
		f.IO.Out.Printf("  arguments: %s", term.Shorten(text, maxArgumentsShown))
		if n := utf8.RuneCountInString(text); n > maxArgumentsShown {
			f.IO.Out.Printf("  ! %d more characters of arguments: see them with --json", n-maxArgumentsShown+1)
		}
	}
	if len(r.Meta) > 0 {
		f.IO.Out.Printf("  _meta: %s", term.Shorten(term.CleanLine(string(r.Meta)), maxArgumentsShown))
	}
}

// completePending completes the id of a request that waits.
func completePending(f *cmdutil.Factory) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		var ids []string
		if len(args) == 0 {
			_ = withApprovals(cmd.Context(), f, func(a *approval.Approvals) error {
				all, err := a.Pending(cmd.Context())
				for i := range all {
					if strings.HasPrefix(all[i].ID, typed) {
						ids = append(ids, all[i].ID)
					}
				}
				return err
			})
		}
		return ids, cobra.ShellCompDirectiveNoFileComp
	}
}

func deny(ctx context.Context, o *cmdutil.Invocation) error {
	return decideRequest(ctx, o.Factory, o.Words[0], approval.Deny)
}

// namedRequest requires the id of a request.
func namedRequest(args cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, given []string) error {
		if len(given) == 0 {
			return errors.New("missing ID: name a request: see \"patchbay gateway pending\"")
		}
		return args(cmd, given)
	}
}

// decideRequest answers a request. The gateway that holds it sends or refuses it.
func decideRequest(ctx context.Context, f *cmdutil.Factory, id string, answer approval.Answer) error {
	return withApprovals(ctx, f, func(a *approval.Approvals) error {
		if err := a.Decide(ctx, id, answer, osuser.Name()); err != nil {
			return err
		}
		if f.PrintedJSON(map[string]string{"id": id, "decision": string(answer)}) {
			return nil
		}
		f.IO.Out.Printf("Decided about %s: %s.", term.CleanLine(id), answer)
		if answer == approval.Always || answer == approval.Session {
			f.IO.Err.Printf("In force within 2 seconds: see \"patchbay gateway grants\".")
		}
		return nil
	})
}

func listGrants(ctx context.Context, o *cmdutil.Invocation) error {
	return withApprovals(ctx, o.Factory, func(a *approval.Approvals) error {
		all, err := a.Grants(ctx)
		if err != nil {
			return err
		}
		if o.PrintedJSON(map[string]any{"grants": append([]approval.Grant{}, all...)}) {
			return nil
		}
		if len(all) == 0 {
			o.IO.Out.Printf("No grants.")
		}
		var rows [][]string
		for _, g := range all {
			rows = append(rows, []string{g.ID, string(g.Scope), term.CleanLine(g.Server), term.CleanLine(g.Method),
				term.CleanLine(g.Target), policy.RuleName(g.Rule), term.CleanLine(cmp.Or(g.Approver, "unknown")),
				string(g.Channel), g.Created.Local().Format(time.DateTime)})
		}
		o.IO.Out.Columns("ID SCOPE SERVER METHOD NAME RULE APPROVER CHANNEL TIME", rows)
		return nil
	})
}

func revoke(ctx context.Context, o *cmdutil.Invocation) error {
	return withApprovals(ctx, o.Factory, func(a *approval.Approvals) error {
		if err := a.Revoke(ctx, o.Words[0]); err != nil {
			return err
		}
		if c, _, err := hosting.ReadConfig(o.Factory, ""); err == nil {
			hosting.RecordAdmin(ctx, o.Factory, c.File, map[string]any{"action": "revoke grant", "id": o.Words[0]})
		}
		if o.PrintedJSON(map[string]string{"revoked": o.Words[0]}) {
			return nil
		}
		o.IO.Out.Printf("Revoked %s.", term.CleanLine(o.Words[0]))
		return nil
	})
}
