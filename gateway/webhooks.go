package gateway

import (
	"context"
	"errors"

	"github.com/patchbay-mcp/patchbay/ext/events"
	"github.com/patchbay-mcp/patchbay/ext/events/webhook"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/oauth"
)

// WebhookOptions configures [OfferWebhooks].
type WebhookOptions struct {
	// Store keeps the subscriptions; required. Only keys receive subscriptions without end, and only if the store is
	// durable: the gateway learns that a key was revoked, but not that a token or certificate was.
	Store webhook.Store
	// Fetcher sends the deliveries. Its options decide which addresses may be called besides public addresses.
	// Default: an [oauth.Fetcher] without options.
	Fetcher *oauth.Fetcher
}

// OfferWebhooks makes a gateway deliver events to the URLs of callers with a key of the [KeyStore], a token or a client
// certificate, and continue the subscriptions in the store. A subscription ends with its key, and with the profile or
// server of its path. It must be called at most once, before the first request; [host.Host.Close] ends the deliveries.
func OfferWebhooks(ctx context.Context, g *Gateway, o *WebhookOptions) error {
	return g.host.OfferWebhooks(ctx, &host.EventWebhooks{Store: o.Store, Fetcher: o.Fetcher,
		Caller:  func(_ context.Context, c *policy.Caller) (*policy.Caller, error) { return currentCaller(g, c) },
		Endless: func(c *policy.Caller) bool { return c.Principal.Issuer == KeyIssuer }})
}

// currentCaller returns the caller of a stored subscription with the rights that its credentials have now.
func currentCaller(g *Gateway, c *policy.Caller) (*policy.Caller, error) {
	now, route := *c, Route{Profile: c.Profile, Server: c.Server}
	if c.Principal.Issuer == KeyIssuer {
		k, err := currentKey(g.live, c)
		switch {
		case errors.Is(err, errKeysUnread):
			return nil, err
		case err != nil:
			return nil, events.Forbidden("the key of the subscription has ended")
		}
		l := &k.opens.limits
		now.Servers, now.Only, now.ReadOnly = l.servers, l.only, l.readOnly
		if allowed, err := k.opens.route(route); err != nil || allowed != route {
			return nil, events.Forbidden("the key no longer opens the path of the subscription")
		}
	}
	if g.check(route) != nil || g.host.Operator().IsLocal(route.Server) {
		return nil, events.NotFound("event")
	}
	return &now, nil
}

// currentKey returns the key of a stored caller. The error is errKeysUnread while it is not known.
func currentKey(l *liveKeys, c *policy.Caller) (*liveKey, error) {
	name, _ := c.Principal.Claims["key"].(string)
	k, err := l.named(name)
	if err == nil && k.caller.Key() != c.Principal.Key() {
		err = errRevokedKey // the name belongs to another principal now
	}
	return k, err
}
