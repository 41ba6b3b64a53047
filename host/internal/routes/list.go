package routes

import (
	"context"
	"encoding/json"
	"math"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/round"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// silentWait limits how long a list waits for servers that are starting if the client does not
	// ask for progress, because many clients end a request after 60 seconds.
	silentWait = 50 * time.Second
	// waitInterval is the interval of progress notifications while a request waits for servers.
	waitInterval = 5 * time.Second
)

// List serves a list method.
func (t *Table) List(ctx context.Context, req *mcp.Request, kind catalogue.Kind) (mcp.Result, error) {
	after, err := t.openCursor(req, kind)
	if err != nil {
		return nil, err
	}
	missing := t.LoginServers(ctx, lacksLogin)
	m, err := t.whole(ctx, req)
	if err != nil {
		return nil, err
	}
	if len(m.servers.All) == 1 && len(missing) == 0 {
		if err := m.servers.All[0].Lists().Err(kind); err != nil {
			return nil, err
		}
	}
	var p *page
	if kind == catalogue.Tools && t.Searches(m.Catalogue) {
		p = t.newPage(kind, searcher{t}.page(m.Catalogue), "")
	} else if p, err = t.page(m, kind, after); err != nil {
		return nil, err
	}
	if kind == catalogue.Tools && after == "" {
		p = t.withLoginTools(p, missing, t.LoginServers(ctx, HasLogin))
	}
	absent := m.missing(kind)
	if _, continued := req.Param("cursor"); !continued {
		absent.log(ctx, req)
	}
	if client := t.toolsOf(req); kind == catalogue.Tools && client.changes(p) {
		return absent.appendTo(t.listResult(kind, client.list(m, p.items), p.next)), nil
	}
	result := absent.appendTo(p.result)
	req.Driver().Valid = json.RawMessage(result)
	return result, nil
}

// whole returns the snapshot for a list request. It waits for servers that are starting for the first time,
// until their start timeout. If the client does not ask for progress, it waits for at most silentWait.
func (t *Table) whole(ctx context.Context, req *mcp.Request) (*Snapshot, error) {
	if _, ok := req.Meta(wire.MetaProgressToken); !ok {
		return t.within(ctx, ctx, silentWait)
	}
	waiting, stop := context.WithCancel(ctx)
	var reporting sync.WaitGroup
	reporting.Go(func() { reportWaiting(waiting, req) })
	defer reporting.Wait()
	defer stop()
	return t.within(ctx, ctx, math.MaxInt64)
}

// reportWaiting sends progress notifications for a request that waits for servers, until ctx ends.
func reportWaiting(ctx context.Context, req *mcp.Request) {
	ticker := time.NewTicker(waitInterval)
	defer ticker.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			round.NotifyProgress(ctx, req, n, "waiting for servers that are starting")
		}
	}
}
