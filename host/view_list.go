package host

import (
	"context"
	"encoding/json"

	"github.com/patchbay-mcp/patchbay/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// pageSize is the number of items of a page, so that few requests read most catalogues.
const pageSize = 500

// list serves a list method.
func (v *View) list(ctx context.Context, req *mcp.Request, kind catalogue.Kind) (mcp.Result, error) {
	after, err := v.openCursor(req, kind)
	if err != nil {
		return nil, err
	}
	m, err := v.current(ctx)
	if err != nil {
		return nil, err
	}
	if len(v.pools) == 1 {
		if err := v.pools[0].listError(kind); err != nil {
			return nil, err
		}
	}
	items, next := m.catalogue.Page(kind, after, pageSize)
	b := append([]byte(`{"resultType":"complete","`), kind.Member()...)
	b = append(append(b, `":`...), items...)
	if next != "" {
		sealed := v.host.states.ring.SealText([]byte(next), v.cursorBound(kind)...)
		b = jsonscan.AppendQuote(append(b, `,"nextCursor":`...), sealed)
	}
	// The lists of a caller are for no other, and change when a server says so.
	return mcp.RawResult(append(b, `,"ttlMs":0,"cacheScope":"private"}`...)), nil
}

func (v *View) cursorBound(kind catalogue.Kind) []string {
	return []string{"cursor", v.caller.principal(), v.caller.Profile, v.caller.Server, kind.Method()}
}

// openCursor returns the position that the cursor of a request has sealed, empty for none.
func (v *View) openCursor(req *mcp.Request, kind catalogue.Kind) (after string, err error) {
	raw, ok := req.Param("cursor")
	if !ok {
		return "", nil
	}
	text, err := jsonscan.Unquote(raw)
	if err == nil {
		var plain []byte
		if plain, _, err = v.host.states.ring.OpenText(text, v.cursorBound(kind)...); err == nil {
			return string(plain), nil
		}
	}
	return "", mcp.Errorf(mcp.CodeInvalidParams, "invalid params.cursor: unknown or of another list")
}

// listError returns why a list of a pool has never been read, nil if it has.
func (p *pool) listError(kind catalogue.Kind) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := &p.lists[kind]; l.list == nil && l.err != nil {
		return l.err
	}
	return nil
}

// merge merges lists of the servers, in the order of v.pools.
func (v *View) merge(lists [][catalogue.Kinds]*catalogue.List) *merged {
	m := &merged{lists: lists, pools: map[string]*pool{}}
	servers := make([]catalogue.Server, len(v.pools))
	for n, p := range v.pools {
		m.pools[p.up.name] = p
		servers[n] = p.up.catalogueServer(lists[n])
	}
	c, problems := catalogue.Merge(servers, v.catalogueOptions())
	for _, problem := range problems {
		v.host.opts.Logger.Warn("host: item left out", "error", problem)
	}
	m.catalogue = c
	return m
}

// notify tells subscriptions which lists differ.
func (v *View) notify(old, now *merged) {
	for kind, event := range map[catalogue.Kind]mcp.EventKind{
		catalogue.Tools: mcp.EventToolsChanged, catalogue.Prompts: mcp.EventPromptsChanged,
	} {
		if !now.catalogue.Equal(kind, old.catalogue) {
			v.hub.Send(mcp.Event{Kind: event})
		}
	}
	if !now.catalogue.Equal(catalogue.Resources, old.catalogue) || !now.catalogue.Equal(catalogue.Templates, old.catalogue) {
		v.hub.Send(mcp.Event{Kind: mcp.EventResourcesChanged})
	}
}

var _ json.RawMessage
