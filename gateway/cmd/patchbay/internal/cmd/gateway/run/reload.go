package run

import (
	"context"
	"slices"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/follow"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/hosting"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/host"
)

// reloadConfig reads the configuration again. If the configuration is invalid, the previous one
// stays in force, and reloadConfig returns nil.
func reloadConfig(ctx context.Context, f *cmdutil.Factory, g *Run) *host.Diff {
	d, _ := tryReload(ctx, f, g) // the error was reported
	return d
}

// tryReload is reloadConfig, with the error.
func tryReload(ctx context.Context, f *cmdutil.Factory, g *Run) (*host.Diff, error) {
	g.reloading.Lock()
	defer g.reloading.Unlock()
	d, now, isRead, err := follow.Reload(ctx, f, g.Config, g.Host, g.Addr)
	if err != nil {
		g.reject(err)
		if !isRead {
			reportReload(f, g, host.Event{Err: err})
		}
		return nil, err
	}
	if g.replicas != nil {
		g.replicas.Use(g.configurationDigest(now))
	}
	before := g.inForce.Swap(now)
	if before == nil {
		before = g.Config.File
	}
	hosting.WarnRemoved(f, before, now)
	if g.rejected.Swap(nil) != nil && d.IsEmpty() {
		f.IO.Err.Printf("patchbay: the configuration is valid again: nothing has changed")
	}
	return d, nil
}

// reject records why the files are not in force, and since when.
func (g *Run) reject(err error) {
	text := "not used since " + time.Now().Format(time.DateTime) + ": " + follow.Text(g.Config, err)
	g.rejected.Store(&text)
}

// reportReload prints the outcome of a reload.
func reportReload(f *cmdutil.Factory, g *Run, e host.Event) {
	follow.PrintReload(f, g.Config, "gateway", e.Reload, e.Err)
	if e.Err == nil && g.Profile != "" && !slices.Contains(g.Host.Operator().Profiles(), g.Profile) {
		f.IO.Err.Printf("patchbay: the configuration no longer has the profile %s: its clients see no servers",
			term.CleanLine(g.Profile))
	}
}
