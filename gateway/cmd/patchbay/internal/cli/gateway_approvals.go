package cli

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/celpolicy"
	"github.com/patchbay-mcp/patchbay/gateway/internal/osuser"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
)

// withApprovals calls f with the approvals of the gateways of this user.
func withApprovals(f func(*host.Approvals) error) error {
	state, err := gatewayState()
	if err != nil {
		return err
	}
	err = f(host.NewApprovals(state))
	if err == nil {
		return nil
	}
	text := strings.Replace(err.Error(), ": host: ", ": ", 1)
	switch {
	case errors.Is(err, host.ErrNotPending):
		return &coded{exitNotFound, errors.New(text + `; "patchbay gateway pending" lists those that do`)}
	case errors.Is(err, host.ErrNoGrant):
		return &coded{exitNotFound, errors.New(text + `; "patchbay gateway grants" lists them`)}
	}
	return err
}

// approvalCommands returns the commands of `patchbay gateway` about approvals.
func (p *program) approvalCommands() []*cobra.Command {
	return []*cobra.Command{p.policyCommand(), p.pendingCommand(), p.approveCommand(), p.denyCommand(),
		p.grantsCommand(), p.revokeCommand()}
}

func (p *program) pendingCommand() *cobra.Command {
	return &cobra.Command{Use: "pending", Short: "List the requests that wait for approval",
		DisableFlagsInUseLine: true, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			return withApprovals(func(a *host.Approvals) error {
				all, err := a.Pending(cmd.Context())
				if err != nil {
					return err
				}
				if p.flags.json {
					p.output.value(map[string]any{"pending": append([]host.Pending{}, all...)})
					return nil
				}
				if len(all) == 0 {
					p.output.printf("No request waits for approval.")
				}
				for i := range all {
					p.printPending(&all[i])
				}
				return nil
			})
		}}
}

// maxArgumentsShown bounds the arguments of a request in a list, in characters.
const maxArgumentsShown = 4000

// printPending prints a request with all that it would do.
func (p *program) printPending(r *host.Pending) {
	who := "the local user"
	if r.Principal != "" {
		who = r.Principal
	}
	p.output.printf("%s  %s %s of server %s", r.ID, cleanLine(r.Method), cleanLine(r.Target),
		cleanLine(r.Server))
	p.output.printf("  from %s, client %s, expires in %s", cleanLine(who), cleanLine(r.Client),
		time.Until(r.Expires).Truncate(time.Second))
	if r.Rule != "" || r.Reason != "" {
		p.output.printf("  %s %s", ruleName(r.Rule), cleanLine(r.Reason))
	}
	if len(r.Arguments) > 0 {
		text := cleanLine(string(r.Arguments))
		p.output.printf("  arguments: %s", shorten(text, maxArgumentsShown))
		if n := utf8.RuneCountInString(text); n > maxArgumentsShown {
			p.output.printf("  ! %d more characters of arguments: see them with --json", n-maxArgumentsShown+1)
		}
	}
	if len(r.Meta) > 0 {
		p.output.printf("  _meta: %s", shorten(cleanLine(string(r.Meta)), maxArgumentsShown))
	}
}

// completePending completes the id of a request that waits.
func (p *program) completePending(
	ctx context.Context, args []string, typed string,
) ([]string, cobra.ShellCompDirective) {
	var ids []string
	if len(args) == 0 {
		_ = withApprovals(func(a *host.Approvals) error {
			all, err := a.Pending(ctx)
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

func (p *program) denyCommand() *cobra.Command {
	return &cobra.Command{Use: "deny ID", Short: "Refuse a request that waits for approval",
		DisableFlagsInUseLine: true, Args: namedRequest(cobra.ExactArgs(1)),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			return p.completePending(cmd.Context(), args, typed)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.decideRequest(cmd.Context(), args[0], host.AnswerDeny)
		}}
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
func (p *program) decideRequest(ctx context.Context, id string, answer host.Answer) error {
	return withApprovals(func(a *host.Approvals) error {
		if err := a.Decide(ctx, id, answer, osuser.Name()); err != nil {
			return err
		}
		if p.flags.json {
			p.output.value(map[string]string{"id": id, "decision": string(answer)})
			return nil
		}
		p.output.printf("Decided about %s: %s.", cleanLine(id), answer)
		if answer == host.AnswerAlways || answer == host.AnswerSession {
			p.screen.printf("In force within 2 seconds: see \"patchbay gateway grants\".")
		}
		return nil
	})
}

func (p *program) grantsCommand() *cobra.Command {
	return &cobra.Command{Use: "grants", Short: "List the approvals for a session or always",
		DisableFlagsInUseLine: true, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			return withApprovals(func(a *host.Approvals) error {
				all, err := a.Grants(cmd.Context())
				if err != nil {
					return err
				}
				if p.flags.json {
					p.output.value(map[string]any{"grants": append([]host.Grant{}, all...)})
					return nil
				}
				if len(all) == 0 {
					p.output.printf("No grants.")
				}
				var rows [][]string
				for _, g := range all {
					rows = append(rows, []string{g.ID, string(g.Scope), cleanLine(g.Server), cleanLine(g.Method),
						cleanLine(g.Target), ruleName(g.Rule), cleanLine(cmp.Or(g.Approver, "unknown")),
						string(g.Channel), g.Created.Local().Format(time.DateTime)})
				}
				p.output.columns("ID SCOPE SERVER METHOD NAME RULE APPROVER CHANNEL TIME", rows)
				return nil
			})
		}}
}

func (p *program) revokeCommand() *cobra.Command {
	return &cobra.Command{Use: "revoke ID", Short: "Remove a grant: the next request asks again",
		DisableFlagsInUseLine: true, Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
			return withApprovals(func(a *host.Approvals) error {
				if err := a.Revoke(cmd.Context(), args[0]); err != nil {
					return err
				}
				if c, _, err := p.readConfig(""); err == nil {
					p.recordAdmin(cmd.Context(), c.file, map[string]any{"action": "revoke grant", "id": args[0]})
				}
				if p.flags.json {
					p.output.value(map[string]string{"revoked": args[0]})
					return nil
				}
				p.output.printf("Revoked %s.", cleanLine(args[0]))
				return nil
			})
		}}
}

// applyPolicy sets the options of a host that the settings of a file say about its policy.
func applyPolicy(f *config.File, opts *host.Options) error {
	settings, err := f.Settings()
	if err != nil || settings.Policy == nil {
		return err
	}
	compiled, err := celpolicy.New(f, nil)
	if err != nil {
		return err
	}
	opts.Policy = compiled
	for _, channel := range settings.Approve {
		opts.Channels = append(opts.Channels, host.Channel(channel))
	}
	if settings.Webhook != nil {
		if opts.Webhook, err = celpolicy.Webhook(settings.Webhook, os.LookupEnv); err != nil {
			return err
		}
		if u, err := url.Parse(settings.Webhook.URL); err == nil {
			opts.WebhookName = u.Host
		}
	}
	return nil
}
