package host

import (
	"context"
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
	servers := v.connected(ctx)
	res := &mcp.DiscoverResult{SupportedVersions: newestRevisions(), Instructions: v.instructions(servers)}
	res.Capabilities = mcp.ServerCapabilities{
		Tools: &mcp.ListCapability{ListChanged: true}, Prompts: &mcp.ListCapability{ListChanged: true},
		Resources:   &mcp.ResourceCapability{Subscribe: true, ListChanged: true},
		Completions: &struct{}{}, Logging: &struct{}{},
	}
	res.Capabilities.Extensions = extensions(servers)
	res.Meta = mcp.Meta{wire.MetaServerInfo: v.host.identity()}
	return res, nil
}

func (v *View) discoverSingle(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	p := v.pools[0]
	s, release, err := p.acquire(ctx, p.up.class(req))
	if err != nil {
		return nil, err
	}
	defer release()
	return mcp.Forward(s.client).ServeMCP(ctx, req)
}

func newestRevisions() (all []string) {
	for _, r := range wire.Revisions() {
		all = append([]string{r.String()}, all...)
	}
	return all
}

// A discovered is a connected server.
type discovered struct {
	pool   *pool
	client *mcp.Client
}

// connected returns the connected servers in the order of the file. It waits up to listWait for
// those that are starting, the first time that a caller does so.
func (v *View) connected(ctx context.Context) []discovered {
	ctx, cancel := context.WithTimeout(ctx, listWait)
	defer cancel()
	all := make([]discovered, len(v.pools))
	var wait sync.WaitGroup
	for n, p := range v.pools {
		wait.Go(func() {
			if c := p.peek(ctx); c != nil {
				all[n] = discovered{p, c}
			}
		})
	}
	wait.Wait()
	return compact(all)
}

func compact(all []discovered) (some []discovered) {
	for _, d := range all {
		if d.client != nil {
			some = append(some, d)
		}
	}
	return some
}

// peek returns the client of a connected server. A server that did not become ready in time once is
// not waited for again.
func (p *pool) peek(ctx context.Context) *mcp.Client {
	p.mu.Lock()
	slow := p.slow
	p.mu.Unlock()
	if slow {
		var cancel func()
		ctx, cancel = context.WithTimeout(ctx, time.Millisecond)
		defer cancel()
	}
	s, release, err := p.acquire(ctx, "")
	p.mu.Lock()
	p.slow = err != nil
	p.mu.Unlock()
	if err != nil {
		return nil
	}
	defer release()
	return s.client
}

func (v *View) instructions(servers []discovered) string {
	var texts []catalogue.Instruction
	for _, d := range servers {
		texts = append(texts, catalogue.Instruction{Server: d.pool.up.name, Text: d.client.Instructions()})
	}
	return catalogue.MergeInstructions(v.host.opts.Instructions, texts)
}

// extensions returns the union of the extensions of servers. The settings are those of the first.
func extensions(servers []discovered) map[string]any {
	all := map[string]any{}
	for _, d := range servers {
		for id, settings := range d.client.Capabilities().Extensions {
			if _, ok := all[id]; !ok {
				all[id] = settings
			}
		}
	}
	return all
}
