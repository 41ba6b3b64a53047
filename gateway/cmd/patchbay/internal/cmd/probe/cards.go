package probe

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/ext/servercard"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
)

// A card is a server card of the site of the server.
type card struct {
	servercard.Claim
	// Differs says in which values the card contradicts the server, if the card names its URL.
	Differs []string `json:"differs,omitzero"`
}

// readCards adds the server cards of the site to a report.
func readCards(ctx context.Context, f *cmdutil.Factory, t *target.Target, r *Report) {
	u, err := url.Parse(t.URL)
	if t.URL == "" || err != nil {
		return
	}
	claims, err := f.Client.Cards(ctx, u)
	if err != nil {
		r.CardProblem = err.Error()
	}
	for _, claim := range claims {
		c := card{Claim: claim}
		at := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
		if slices.Contains(claim.Card.Endpoints(), at.String()) {
			c.Differs = differences(claim.Card, r)
		}
		r.Cards = append(r.Cards, c)
	}
}

// differences returns the values of a card that contradict the server. Spec: docs/discovery.md,
// Consistency with Runtime Behavior.
func differences(c *servercard.Card, r *Report) (all []string) {
	compare := func(member, claimed, actual string) {
		if claimed != "" && actual != "" && claimed != actual {
			all = append(all, fmt.Sprintf("%s is %q, and the server reports %q", member, claimed, actual))
		}
	}
	if strings.Contains(r.Server.Name, "/") { // a name in the form of a card
		compare("name", c.Name, r.Server.Name)
	}
	compare("version", c.Version, r.Server.Version)
	compare("title", c.Title, r.Server.Title)
	for _, remote := range c.Remotes {
		for _, a := range r.Revisions {
			if !a.Spoken && a.Error == "" && slices.Contains(remote.SupportedProtocolVersions, a.Revision) {
				all = append(all, fmt.Sprintf("revision %s, which the server does not support", a.Revision))
			}
		}
	}
	return all
}

func showCards(f *cmdutil.Factory, r *Report) {
	for _, c := range r.Cards {
		name := c.Card.Name + " " + c.Card.Version
		if c.Card.Title != "" {
			name += " (" + c.Card.Title + ")"
		}
		f.IO.Out.Field(11, "card", name+", as "+c.Source+" claims, unverified")
		f.IO.Out.Field(11, "  endpoints", strings.Join(c.Card.Endpoints(), ", "))
		f.IO.Out.Field(11, "  differs", strings.Join(c.Differs, "; "))
	}
	if r.CardProblem != "" {
		f.IO.Out.Field(11, "card", "not read: "+strings.ReplaceAll(term.Clean(r.CardProblem), "\n", "; "))
	}
}
