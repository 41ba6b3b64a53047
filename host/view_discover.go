package host

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// discover serves server/discover. A client learns only once what a server offers, so a view of
// several servers offers all that any of them may offer later.
func (v *View) discover(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	if v.single() && len(v.pools) == 1 {
		return v.discoverSingle(ctx, req)
	}
	v.noteClass(req)
	wait, cancel := context.WithTimeout(ctx, discoverWait)
	defer cancel()
	v.connect(wait)
	m, err := v.currentWithin(ctx, wait)
	if err != nil {
		return nil, err
	}
	res := &mcp.DiscoverResult{SupportedVersions: newestRevisions(), Instructions: m.catalogue.Instructions()}
	if err := json.Unmarshal(m.catalogue.Capabilities(), &res.Capabilities); err != nil {
		return nil, err
	}
	caps := &res.Capabilities
	caps.Tools, caps.Prompts = &mcp.ListCapability{ListChanged: true}, &mcp.ListCapability{ListChanged: true}
	caps.Resources = &mcp.ResourceCapability{Subscribe: true, ListChanged: true}
	caps.Completions, caps.Logging = &struct{}{}, &struct{}{}
	v.declareTasks(req, caps)
	res.Meta = mcp.Meta{wire.MetaServerInfo: v.host.identity()}
	return res, nil
}

// identity returns how the host presents itself to clients.
func (h *Host) identity() mcp.Implementation {
	if info := h.opts.Client.Info; info.Name != "" {
		return info
	}
	return mcp.Implementation{Name: "patchbay-host", Version: "unknown"}
}

func (v *View) discoverSingle(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	p := v.pools[0]
	s, err := p.acquire(ctx, p.class(req))
	if err != nil {
		return nil, err
	}
	defer s.release()
	res, err := mcp.Forward(s.client).ServeMCP(ctx, req)
	if d, ok := res.(*mcp.DiscoverResult); ok && err == nil {
		d.Instructions = cutInstructions(d.Instructions, catalogue.MaxInstructions)
		v.declareTasks(req, &d.Capabilities)
	}
	return res, err
}

func newestRevisions() (all []string) {
	for _, r := range wire.Revisions() {
		all = append([]string{r.String()}, all...)
	}
	return all
}

// discoverWait is how long server/discover waits for servers that are starting. Clients wait for
// few seconds before they try an older revision.
const discoverWait = 2 * time.Second

// connect connects to the servers, and waits for those that are starting until ctx ends.
func (v *View) connect(ctx context.Context) {
	var wait sync.WaitGroup
	for _, p := range v.pools {
		wait.Go(func() { p.connect(ctx) })
	}
	wait.Wait()
}

// connect connects to the server of a pool. A server that has not become ready in time once is not
// waited for again.
func (p *pool) connect(ctx context.Context) {
	p.mu.Lock()
	slow := p.slow
	p.mu.Unlock()
	if slow {
		return
	}
	s, err := p.acquire(ctx, "")
	p.mu.Lock()
	p.slow = err != nil && ctx.Err() != nil
	p.mu.Unlock()
	if err == nil {
		s.release()
	}
}
