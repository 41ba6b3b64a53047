package run

import (
	"cmp"
	"context"
	"errors"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/hosting"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/observe"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/telemetry"
	"github.com/patchbay-mcp/patchbay/gateway/gatewayconfig"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
)

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
}

// A ServerReadiness is the condition of a server. A server that is not running has not failed: it
// starts when it is first used.
type ServerReadiness struct {
	Name  string       `json:"name"`
	State host.State   `json:"state"`
	Code  hosterr.Code `json:"code,omitempty"` // of the last failure
}

func (g *Run) readiness() any {
	r := GatewayReadiness{Configuration: "current", Servers: []ServerReadiness{}}
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
