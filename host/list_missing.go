package host

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/approve"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/listing"
	"github.com/patchbay-mcp/patchbay/host/internal/upstream"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// metaMissing is the member of `_meta` in an incomplete list result. It names the servers whose
	// items are missing.
	metaMissing = "dev.patchbay/missing"
	// maxMissingNamed limits the number of servers that a result names, maxMissingName the length
	// of each name.
	maxMissingNamed, maxMissingName = 20, 100
	// silentWait limits how long a list waits for servers that are starting if the client does not
	// ask for progress, because many clients end a request after 60 seconds.
	silentWait = 50 * time.Second
	// waitInterval is the interval of progress notifications while a request waits for servers.
	waitInterval = 5 * time.Second
)

// missingLists describes the servers whose items are missing in a list.
type missingLists struct {
	servers  int              // of the view
	starting int              // missing servers that may still become ready
	pools    []*upstream.Pool // missing servers
	codes    []hosterr.Code   // why each of pools is missing
}

// missing returns the servers whose list of this kind is not part of the catalogue.
func (m *merged) missing(kind catalogue.Kind) *missingLists {
	missing := &missingLists{servers: len(m.servers.pools)}
	for n, p := range m.servers.pools {
		if m.lists[n][kind] != nil {
			continue
		}
		code := hosterr.CodeStarting // also if the list was read after the catalogue was merged
		if e, ok := errors.AsType[*hosterr.Error](p.Lists().Err(kind)); ok {
			code = e.Code
		}
		if code == hosterr.CodeStarting {
			missing.starting++
		}
		missing.pools, missing.codes = append(missing.pools, p), append(missing.codes, code)
	}
	return missing
}

// String describes the missing servers, such as "2 of 3 servers are still starting: everything, memory".
func (m *missingLists) String() string {
	var starting, failed []string
	for n, p := range m.pools {
		if name := listing.Cut(p.Name(), maxMissingName); m.codes[n] == hosterr.CodeStarting {
			starting = append(starting, name)
		} else {
			failed = append(failed, fmt.Sprintf("%s (%s)", name, m.codes[n]))
		}
	}
	var parts []string
	for state, names := range map[string][]string{"are still starting": starting, "have failed": failed} {
		if n := len(names); n > 0 {
			text := strings.Join(names[:min(n, maxMissingNamed)], ", ")
			if n > maxMissingNamed {
				text += fmt.Sprintf(" and %d more", n-maxMissingNamed)
			}
			parts = append(parts, fmt.Sprintf("%d of %d servers %s: %s", n, m.servers, state, text))
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, "; ")
}

// appendTo returns the result of a list with a member `_meta` that names the missing servers.
func (m *missingLists) appendTo(result mcp.RawResult) mcp.RawResult {
	b := fmt.Appendf(slices.Clone(result[:len(result)-1]),
		`,"_meta":{%q:{"of":%d,"starting":%d,"failed":%d,"servers":[`,
		metaMissing, m.servers, m.starting, len(m.pools)-m.starting)
	for n, p := range m.pools[:min(len(m.pools), maxMissingNamed)] {
		if n > 0 {
			b = append(b, ',')
		}
		b = jsonscan.AppendQuote(append(b, `{"server":`...), listing.Cut(p.Name(), maxMissingName))
		b = fmt.Appendf(b, `,"code":%q}`, m.codes[n])
	}
	return append(b, `]}}}`...)
}

// log sends a log message about the missing servers if the client requested warnings.
func (m *missingLists) log(ctx context.Context, req *mcp.Request) {
	asked, known := wire.LogSeverity(string(req.LogLevel()))
	warning, _ := wire.LogSeverity("warning")
	if req.Notify == nil || !known || asked > warning {
		return
	}
	b := []byte(`{"level":"warning","logger":"patchbay","data":`)
	b = jsonscan.AppendQuote(b, "The list is not complete: "+m.String())
	_ = req.Notify(ctx, "notifications/message", append(b, '}')) // best effort: the result names the servers too
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
			approve.NotifyProgress(ctx, req, n, "waiting for servers that are starting")
		}
	}
}

// wholeList returns the catalogue for a list request. It waits for servers that are starting for
// the first time, until their start timeout. If the client does not ask for progress, it waits for
// at most silentWait.
func (v *View) wholeList(ctx context.Context, req *mcp.Request) (*merged, error) {
	if _, ok := req.Meta(wire.MetaProgressToken); !ok {
		return v.currentWithin(ctx, ctx, silentWait)
	}
	waiting, stop := context.WithCancel(ctx)
	var reporting sync.WaitGroup
	reporting.Go(func() { reportWaiting(waiting, req) })
	defer reporting.Wait()
	defer stop()
	return v.currentWithin(ctx, ctx, math.MaxInt64)
}

// complement adds the names of missing servers to the result of a list.
func (v *View) complement(
	ctx context.Context, req *mcp.Request, m *merged, kind catalogue.Kind, result mcp.RawResult,
) mcp.RawResult {
	missing := m.missing(kind)
	if len(missing.pools) == 0 {
		return result
	}
	if _, continued := req.Param("cursor"); !continued {
		missing.log(ctx, req)
	}
	return missing.appendTo(result)
}
