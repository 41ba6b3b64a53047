package connect

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"strings"

	"github.com/patchbay-mcp/patchbay/ext/servercard"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
)

// Cards returns the server cards of the site of a URL. They are claims of the site: no command
// connects to an endpoint of a card that the user did not name. The requests contain no
// credentials.
func (d *Dialer) Cards(ctx context.Context, u *url.URL) ([]servercard.Claim, error) {
	ctx, cancel := context.WithTimeout(ctx, endpointTimeout)
	defer cancel()
	d.IO.Err.Status("looking for server cards at " + term.CleanLine(u.Host) + " …")
	defer d.IO.Err.Done()
	site := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path} // without secrets
	return servercard.Find(ctx, d.Net.NewFetcher(slog.New(slog.DiscardHandler), nil), site.String())
}

// claimedEndpoints returns the endpoints of cards, apart from the endpoint at a URL, as a list for
// a message.
func claimedEndpoints(claims []servercard.Claim, except string) string {
	const most = 5 // in a message
	var all []string
	for _, claim := range claims {
		for _, endpoint := range claim.Card.Endpoints() {
			if endpoint != except && len(all) < most {
				all = append(all, fmt.Sprintf("%s (%s)", term.CleanLine(endpoint), claim.Card.Name))
			}
		}
	}
	return strings.Join(all, ", ")
}
