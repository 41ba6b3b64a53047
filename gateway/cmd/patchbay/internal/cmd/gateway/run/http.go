package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/build"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/connect"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/launch"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/gatewayclient"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/hosting"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/https"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/observe"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/telemetry"
	"github.com/patchbay-mcp/patchbay/gateway/gatewayconfig"
	"github.com/patchbay-mcp/patchbay/gateway/internal/netx"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/status"
	"github.com/patchbay-mcp/patchbay/oauth"
)

// serveGateway serves HTTP.
func serveGateway(ctx context.Context, f *cmdutil.Factory, g *Run) error {
	settings, err := gatewayconfig.Read(g.Config.File)
	if err != nil {
		return exit.UsageError(err)
	}
	opts, key, err := gatewayAuth(ctx, f, g, settings)
	if err != nil {
		return err
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", hosting.GatewayAddr(g.Config.Settings, g.Addr))
	if err != nil {
		if _, err := strconv.ParseUint(g.Addr, 10, 16); err == nil {
			return exit.UsageError(fmt.Errorf("invalid --addr %q: want host:port, such as 127.0.0.1:%[1]s, or :%[1]s",
				g.Addr))
		}
		return &exit.Error{Code: exit.Failure, Err: fmt.Errorf("%w (%suse --addr for another address)", err,
			runningAdvice(ctx, f))}
	}
	defer l.Close()
	host, port, _ := net.SplitHostPort(l.Addr().String()) // an address of TCP
	if !netx.IsLocalHost(host) {
		if settings.TLS == nil {
			given, _, _ := net.SplitHostPort(hosting.GatewayAddr(g.Config.Settings, g.Addr)) // 0.0.0.0 listens on [::]
			f.IO.Err.Printf("patchbay: warning: other machines reach %s, and keys and results are sent unencrypted: "+
				"configure tls, or use a reverse proxy with TLS", net.JoinHostPort(given, port))
		}
		if opts.OAuth != nil && opts.PublicURL == "" {
			return exit.UsageError(fmt.Errorf(
				"missing publicURL: with auth.oidc at %s the settings must have the https URL "+
					"that clients use", l.Addr()))
		}
	}
	if (opts.OAuth != nil || settings.TLS != nil) && opts.PublicURL == "" && netx.IsLocalHost(host) {
		opts.PublicURL = settings.BaseURL(observe.Authority(l.Addr())) // of the pages for logins
	}
	secure, endTLS, err := useTLS(ctx, f, g, settings.TLS, opts)
	if err != nil {
		return err
	}
	defer endTLS()
	g.url = settings.BaseURL(observe.Authority(l.Addr())) + connect.Endpoint
	defer joinReplicas(ctx, f, g, l.Addr())()
	gw := newGateway(ctx, f, g, opts)
	if !g.NoAuth { // otherwise there are no principals
		if err := offerWebhooks(ctx, f, g, gw, settings); err != nil {
			return err
		}
	}
	if err := g.observed.ObserveStats(g.Host, gw); err != nil {
		return err
	}
	if err := g.observed.Exporters.ObserveProcesses(g.countReplicas); err != nil {
		return err
	}
	g.observed.Ready(ctx, g.readiness)
	serveConsole := func(context.Context) (stop func()) { return func() {} }
	if g.console != nil {
		serveConsole, err = launch.Gateway(f, g.console, &launch.Options{Factory: f, Config: g.Config, Gateway: gw,
			Mask: g.Host.Operator().Mask, Sources: g.sources}, opts)
		if err != nil {
			return err
		}
	}
	defer serveAdmin(ctx, f, g, gw)()
	g.Config.Stores.Announce(f)
	announceGateway(f, g, settings.BaseURL(observe.Authority(l.Addr())), key)
	defer serveConsole(ctx)()
	serving, l := g.Config.Stores.Serving(ctx, l)
	return gw.Serve(serving, secure(l))
}

// useTLS reads the certificates of the settings, and adds client certificates to the options. The listener of secure
// uses TLS; without settings, it is the given one.
func useTLS(ctx context.Context, f *cmdutil.Factory, g *Run, settings *gatewayconfig.TLS, o *gateway.Options) (
	secure func(net.Listener) net.Listener, end func(), err error) {
	if settings == nil {
		return func(l net.Listener) net.Listener { return l }, func() {}, nil
	}
	entries, err := g.Config.State(ctx, f)
	if err != nil {
		return nil, nil, err
	}
	s, err := https.Open(&https.Options{Settings: settings, State: entries, Transport: f.Client.Net.NewBase(),
		Logger: f.IO.Logger()})
	if err != nil {
		return nil, nil, exit.UsageError(fmt.Errorf("tls: %w", err))
	}
	if !g.NoAuth {
		o.Certificates = s.ClientCertificates()
	}
	end, err = s.Follow(ctx)
	return s.Listener, end, err
}

// runningAdvice returns a clause that names the running gateway of the configuration, or "".
func runningAdvice(ctx context.Context, f *cmdutil.Factory) string {
	if _, ok, err := gatewayclient.Find(ctx, f); err != nil || !ok {
		return ""
	}
	return gatewayclient.ErrGatewayRuns.Error() + ": see \"patchbay gateway status\"; "
}

// gatewayAuth returns the callers that a gateway must serve over HTTP, and the key of the local
// user, which is empty if keys are off.
func gatewayAuth(
	ctx context.Context, f *cmdutil.Factory, g *Run, settings *gatewayconfig.Settings,

) (o *gateway.Options, key string, err error) {
	o = &gateway.Options{PublicURL: settings.PublicURL}
	o.HTTP.AllowedHosts = settings.AllowedHosts
	if settings.Card != nil {
		o.Card = settings.Card.Served(build.Version())
	}
	g.Config.Stores.Configure(&o.HTTP)
	if g.NoAuth {
		return o, "", nil
	}
	auth := settings.Auth
	if auth == nil {
		auth = &gatewayconfig.Auth{Keys: true}
	}
	if auth.Keys {
		if key, err = GatewayKey(ctx, f); err != nil {
			return nil, "", err
		}
		o.Keys = []string{key}
		st, err := g.Config.State(ctx, f)
		if err != nil {
			return nil, "", err
		}
		o.KeyStore = gateway.NewKeyStore(st)
	}
	if auth.OIDC != nil {
		o.OAuth, err = gatewayOAuth(f, auth.OIDC)
	}
	return o, key, err
}

// gatewayOAuth returns how tokens of the authorization server of the settings are verified.
func gatewayOAuth(f *cmdutil.Factory, o *gatewayconfig.OIDC) (*gateway.OAuth, error) {
	fetcher := f.Client.Net.NewFetcher(f.IO.Logger(), nil)
	secret := ""
	if o.ClientSecret != "" {
		if secret = os.Getenv(o.ClientSecret); secret == "" {
			return nil, exit.UsageError(hosting.ErrNoClientSecret(o.ClientSecret))
		}
	}
	return &gateway.OAuth{
		Verifier: oauth.NewJWTVerifier(o.Issuer, &oauth.JWTOptions{
			InsecureAnyType: o.InsecureAnyTokenType, Fetcher: fetcher}),
		AuthorizationServers: []string{o.Issuer}, Audiences: []string{o.Audience}, Scopes: o.Scopes,
		Profiles: o.Profiles, ClientID: o.ClientID, ClientSecret: secret, Fetcher: fetcher,
	}, nil
}

// observeGateway starts the telemetry of a gateway, and the ops listener of --ops or the settings.
// A gateway on stdio must not open a listener, because several may run with the same configuration.
func observeGateway(ctx context.Context, f *cmdutil.Factory, g *Run) error {
	o := &observe.Options{Options: telemetry.Options{Service: observe.ServiceGateway}, Lenient: g.Stdio}
	if !g.Stdio {
		settings, err := gatewayconfig.Read(g.Config.File)
		if err != nil {
			return exit.UsageError(err)
		}
		server := hosting.GatewayAddr(g.Config.Settings, g.Addr)
		o.Public = (settings.PublicURL != "" || !cmdutil.IsLoopbackAddr(server)) && !settings.TrustTraceContext
		if addr := cmp.Or(g.Ops, settings.Ops); addr != "" {
			o.Ops = &observe.OpsOptions{Addr: addr, Server: server, Pprof: settings.Pprof}
		}
	}
	b, err := f.Observe.Start(ctx, o)
	if err != nil {
		return err
	}
	g.observed, g.Config.Observer = b, b.McpObserver()
	return nil
}

// A GatewayReadiness is the condition of a gateway, for /readyz?verbose. It must not contain texts
// of failures: they may contain addresses and command lines, and the ops listener checks no
// authorization.
type GatewayReadiness struct {
	// Configuration is "current", or "rejected" while files are invalid and the last valid ones
	// apply.
	Configuration string            `json:"configuration"`
	Servers       []ServerReadiness `json:"servers"`
	// Stores is absent if the gateway shares no store with others.
	Stores []hosting.StoreReadiness `json:"stores,omitempty"`
	// Replicas are the processes that share the store; absent without a store.
	Replicas *gateway.Replicas `json:"replicas,omitempty"`
}

// A ServerReadiness is the condition of a server. A server that is not running has not failed: it
// starts when it is first used.
type ServerReadiness struct {
	Name  string       `json:"name"`
	State status.State `json:"state"`
	Code  hosterr.Code `json:"code,omitempty"` // of the last failure
}

func (g *Run) readiness() any {
	r := GatewayReadiness{Configuration: "current", Servers: []ServerReadiness{},
		Stores: g.Config.Stores.Readiness(), Replicas: g.otherReplicas()}
	if g.rejected.Load() != nil {
		r.Configuration = "rejected"
	}
	for _, u := range g.Host.Upstreams() {
		if !g.Host.Operator().HasServer(g.Profile, u.Name()) {
			continue
		}
		st := u.Status()
		s := ServerReadiness{Name: u.Name(), State: st.State}
		if e, ok := errors.AsType[*hosterr.Error](st.Err); ok {
			s.Code = e.Code
		}
		r.Servers = append(r.Servers, s)
	}
	return r
}
