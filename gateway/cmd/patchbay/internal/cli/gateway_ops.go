package cli

import (
	"cmp"
	"context"
	"errors"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/telemetry"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
)

// observeGateway starts what a gateway exports about its requests, and the ops listener of --ops or of the
// settings. A gateway on stdio has none: several may run with one configuration.
func observeGateway(ctx context.Context, f *factory, g *gatewayRun) error {
	o := &observeOptions{Options: telemetry.Options{Service: serviceGateway}, lenient: g.stdio}
	if !g.stdio {
		settings, err := g.config.file.Settings()
		if err != nil {
			return usage(err)
		}
		server := gatewayAddr(g.config.settings, g.addr)
		o.public = (settings.PublicURL != "" || !isLoopbackAddr(server)) && !settings.TrustTraceContext
		if addr := cmp.Or(g.ops, settings.Ops); addr != "" {
			o.ops = &opsOptions{addr: addr, server: server, pprof: settings.Pprof}
		}
	}
	b, err := f.Observe.observe(ctx, o)
	if err != nil {
		return err
	}
	g.observed, g.config.observer = b, b.mcpObserver()
	return nil
}

// A gatewayReadiness is the condition of a gateway, for /readyz?verbose. It has no texts of failures: they
// may have addresses and command lines, and the ops listener has no authorization.
type gatewayReadiness struct {
	// Configuration is "current", or "rejected" if the files are invalid and the last valid ones are in
	// force.
	Configuration string            `json:"configuration"`
	Servers       []serverReadiness `json:"servers"`
}

// A serverReadiness is the condition of a server. One that does not run is no failure: it starts when it is
// first used.
type serverReadiness struct {
	Name  string       `json:"name"`
	State host.State   `json:"state"`
	Code  hosterr.Code `json:"code,omitempty"` // of the last failure
}

func (g *gatewayRun) readiness() any {
	r := gatewayReadiness{Configuration: "current", Servers: []serverReadiness{}}
	if g.rejected.Load() != nil {
		r.Configuration = "rejected"
	}
	for _, u := range g.host.Upstreams() {
		if !g.host.InProfile(g.profile, u.Name()) {
			continue
		}
		st := u.Status()
		s := serverReadiness{Name: u.Name(), State: st.State}
		if e, ok := errors.AsType[*host.Error](st.Err); ok {
			s.Code = e.Code
		}
		r.Servers = append(r.Servers, s)
	}
	return r
}
