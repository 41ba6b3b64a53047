package gateway

import (
	"cmp"
	"errors"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/ext/servercard"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// useCard prepares the card of the gateway. It must depend on no server, profile or caller, because
// everybody may read it. An invalid card panics.
func (g *Gateway) useCard() error {
	if g.opts.Card == nil {
		return nil
	}
	u, err := url.Parse(g.opts.PublicURL)
	if err != nil || u.Host == "" {
		return errors.New("Card needs PublicURL: a card says where the gateway is")
	}
	card := *g.opts.Card
	card.Name = cmp.Or(card.Name, reversed(u.Hostname())+"/patchbay")
	card.Title = cmp.Or(card.Title, "Patchbay gateway")
	card.Description = cmp.Or(card.Description, "MCP servers behind a single endpoint")
	revisions := driver.Revisions()
	slices.Reverse(revisions)
	remote := servercard.Remote{Type: servercard.StreamableHTTP, URL: u.Scheme + "://" + u.Host + pathAll,
		SupportedProtocolVersions: revisions}
	if g.tokens == nil && !g.opts.InsecureNoAuth { // clients with tokens find the login by its metadata
		key := servercard.Input{Description: "a key of the gateway", IsRequired: true, IsSecret: true}
		remote.Headers = []servercard.Header{{Name: "Authorization",
			Input:     servercard.Input{IsRequired: true, IsSecret: true, Value: "Bearer {key}"},
			Variables: map[string]servercard.Input{"key": key}}}
	}
	card.Remotes = []servercard.Remote{remote}
	g.cards = servercard.Serve(&card)
	return nil
}

// reversed returns the domain of a host with its labels in reverse order, and localhost for an
// address.
func reversed(host string) string {
	if _, err := netip.ParseAddr(host); err == nil {
		return "localhost"
	}
	labels := strings.Split(host, ".")
	slices.Reverse(labels)
	return strings.Join(labels, ".")
}
