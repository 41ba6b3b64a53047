package cli

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/internal/netx"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/oauth"
)

// serveGateway serves HTTP.
func serveGateway(ctx context.Context, f *factory, g *gatewayRun) error {
	settings, err := g.config.file.Settings()
	if err != nil {
		return usage(err)
	}
	opts, key, err := gatewayAuth(ctx, f, g, settings)
	if err != nil {
		return err
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", gatewayAddr(g.config.settings, g.addr))
	if err != nil {
		if _, err := strconv.ParseUint(g.addr, 10, 16); err == nil {
			return usage(fmt.Errorf("invalid --addr %q: want host:port, such as 127.0.0.1:%[1]s, or :%[1]s", g.addr))
		}
		return &coded{exitFailure, fmt.Errorf("%w (%suse --addr for another address)", err, runningAdvice(ctx, f))}
	}
	defer l.Close()
	if host, port, err := net.SplitHostPort(l.Addr().String()); err == nil && !netx.IsLocalHost(host) {
		given, _, _ := net.SplitHostPort(gatewayAddr(g.config.settings, g.addr)) // 0.0.0.0 listens on [::]
		address := net.JoinHostPort(given, port)
		f.IO.Err.printf("patchbay: warning: other machines reach %s, and keys and results are sent unencrypted: use a "+
			"reverse proxy with TLS", address)
		if opts.OAuth != nil && opts.PublicURL == "" {
			return usage(fmt.Errorf("missing publicURL: with auth.oidc at %s the settings must have the https URL "+
				"that clients use", l.Addr()))
		}
	}
	if opts.OAuth != nil && opts.PublicURL == "" {
		opts.PublicURL = "http://" + authority(l.Addr())
	}
	g.url = gatewayBase(settings, l.Addr()) + endpoint
	gw := newGateway(f, g, opts)
	if err := g.observed.observeStats(g.host, gw); err != nil {
		return err
	}
	g.observed.ready(ctx, g.readiness)
	defer serveAdmin(ctx, f, g, gw)()
	announceGateway(f, g, gatewayBase(settings, l.Addr()), key)
	return gw.Serve(ctx, l)
}

// runningAdvice returns a clause that names the running gateway of the configuration, "" without one.
func runningAdvice(ctx context.Context, f *factory) string {
	if _, ok, err := findRunning(ctx, f); err != nil || !ok {
		return ""
	}
	return errGatewayRuns.Error() + ": see \"patchbay gateway status\"; "
}

// gatewayBase returns the URL of a gateway without a path, for its clients.
func gatewayBase(settings *config.Settings, addr net.Addr) string {
	if settings.PublicURL != "" {
		return settings.PublicURL
	}
	return "http://" + authority(addr)
}

// gatewayAuth returns whom a gateway serves over HTTP, and the key of the local user, empty if it has none.
func gatewayAuth(
	ctx context.Context, f *factory, g *gatewayRun, settings *config.Settings,
) (o *gateway.Options, key string, err error) {
	o = &gateway.Options{PublicURL: settings.PublicURL}
	o.HTTP.AllowedHosts = settings.AllowedHosts
	if g.noAuth {
		return o, "", nil
	}
	auth := settings.Auth
	if auth == nil {
		auth = &config.Auth{Keys: true}
	}
	if auth.Keys {
		if key, err = gatewayKey(ctx, f); err != nil {
			return nil, "", err
		}
		o.Keys = []string{key}
		if o.KeyStore, err = keyStore(); err != nil {
			return nil, "", err
		}
	}
	if auth.OIDC != nil {
		o.OAuth, err = gatewayOAuth(f, auth.OIDC)
	}
	return o, key, err
}

// gatewayOAuth returns how tokens of the authorization server of the settings are verified.
func gatewayOAuth(f *factory, o *config.OIDC) (*gateway.OAuth, error) {
	fetcher := f.Net.newFetcher(f.IO.logger())
	secret := ""
	if o.ClientSecret != "" {
		if secret = os.Getenv(o.ClientSecret); secret == "" {
			return nil, usage(errNoClientSecret(o.ClientSecret))
		}
	}
	return &gateway.OAuth{
		Verifier: oauth.NewJWTVerifier(o.Issuer, &oauth.JWTOptions{
			InsecureAnyType: o.InsecureAnyTokenType, Fetcher: fetcher}),
		AuthorizationServers: []string{o.Issuer}, Audiences: []string{o.Audience}, Scopes: o.Scopes,
		Profiles: o.Profiles, ClientID: o.ClientID, ClientSecret: secret, Fetcher: fetcher,
	}, nil
}

func errNoClientSecret(variable string) error {
	return fmt.Errorf("%s is not set: the settings name it for the secret of the client", variable)
}
