package servercard

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// Describe returns a card whose empty fields contain the values that a server reports to every
// client: its version, title, description, website, icons and revisions, and its name if the name
// is in the form of a card. It connects to h in memory, so the card does not contradict the server.
// It reads no instructions, capabilities and lists.
//
// c must contain a Remote with a URL. Describe returns an error if h refuses to describe itself to a
// caller without a principal, or if the card is invalid: a description of more than 100 characters
// needs a shorter one in c.
//
// Spec: docs/discovery.md, Consistency with Runtime Behavior.
func Describe(ctx context.Context, h mcp.Handler, c Card) (*Card, error) {
	client, err := mcp.Connect(ctx, mcp.InMemory(h), &mcp.ClientOptions{
		Info: mcp.Implementation{Name: "servercard", Version: "1"}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, fmt.Errorf("servercard: describe: %w", err)
	}
	info, revisions := client.ServerInfo(), client.SupportedRevisions()
	if err := client.Close(); err != nil {
		return nil, fmt.Errorf("servercard: describe: %w", err)
	}
	if namePattern.MatchString(info.Name) {
		c.Name = cmp.Or(c.Name, info.Name)
	}
	c.Version, c.Title = cmp.Or(c.Version, info.Version), cmp.Or(c.Title, info.Title)
	c.Description = cmp.Or(c.Description, info.Description)
	c.WebsiteURL = cmp.Or(c.WebsiteURL, info.WebsiteURL)
	if c.Icons == nil {
		c.Icons = info.Icons
	}
	if len(c.Remotes) == 0 {
		return nil, fmt.Errorf("servercard: describe: the card %q has no Remotes: add the server's URL", c.Name)
	}
	c.Remotes = slices.Clone(c.Remotes)
	for i := range c.Remotes {
		r := &c.Remotes[i]
		r.Type = cmp.Or(r.Type, StreamableHTTP)
		if r.SupportedProtocolVersions == nil {
			r.SupportedProtocolVersions = revisions
		}
	}
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("servercard: describe: %w", err)
	}
	return &c, nil
}
