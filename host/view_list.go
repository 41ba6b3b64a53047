package host

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/listing"
	"github.com/patchbay-mcp/patchbay/host/internal/round"
	"github.com/patchbay-mcp/patchbay/host/internal/upstream"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// list serves a list method.
func (v *View) list(ctx context.Context, req *mcp.Request, kind catalogue.Kind) (mcp.Result, error) {
	after, err := v.openCursor(req, kind)
	if err != nil {
		return nil, err
	}
	v.noteClass(req)
	missing := v.loginServers(ctx, lacksLogin)
	m, err := v.wholeList(ctx, req)
	if err != nil {
		return nil, err
	}
	if len(m.servers.pools) == 1 && len(missing) == 0 {
		if err := m.servers.pools[0].Lists().Err(kind); err != nil {
			return nil, err
		}
	}
	p := m.pages.get(kind, after)
	if kind == catalogue.Tools && v.searches(m.catalogue) {
		p = v.newListPage(kind, v.searchPage(m.catalogue), "")
	} else if p == nil {
		items, next, err := m.catalogue.Page(kind, after, 0)
		if err != nil {
			return nil, round.ErrInvalidCursor
		}
		p = v.newListPage(kind, items, next)
		m.pages.put(kind, after, p)
	}
	if kind == catalogue.Tools && after == "" {
		p = v.withLoginTools(p, missing, v.loginServers(ctx, hasLogin))
	}
	if kind == catalogue.Tools && v.changesTools(req, p) {
		return v.complement(ctx, req, m, kind, v.listResult(kind, v.toolsFor(req, m, p.items), p.next)), nil
	}
	result := v.complement(ctx, req, m, kind, p.result)
	req.Driver().Valid = json.RawMessage(result)
	return result, nil
}

func (v *View) listResult(kind catalogue.Kind, items json.RawMessage, next string) mcp.RawResult {
	const room = 256 // for what is around the items
	b := append(make([]byte, 0, len(items)+room), `{"resultType":"complete","`...)
	b = append(append(append(b, kind.Member()...), `":`...), items...)
	if next != "" {
		sealed := v.host.states.Ring.SealText([]byte(next), v.cursorBound(kind)...)
		b = jsonscan.AppendQuote(append(b, `,"nextCursor":`...), sealed)
	}
	// The lists of a caller are for no other, and change when a server says so.
	return append(b, `,"ttlMs":0,"cacheScope":"private"}`...)
}

// maxListPages limits the number of pages that are kept of one catalogue, and listing.LargeList their bytes. Clients
// read few pages of most lists.
const maxListPages = 64

// A listPages has the pages of lists of one catalogue. It is safe for concurrent use.
type listPages struct {
	mu    sync.Mutex // guards pages
	pages map[pagePosition]*listPage
	bytes int // of their results
}

// A pagePosition is what a page follows.
type pagePosition struct {
	kind  catalogue.Kind
	after string
}

// A listPage is a page for clients that receive all items unchanged. It never changes.
type listPage struct {
	items             json.RawMessage
	next              string // position
	result            mcp.RawResult
	tasks, visibility bool // some items may have these members
}

func (v *View) newListPage(kind catalogue.Kind, items json.RawMessage, next string) *listPage {
	result := v.listResult(kind, items, next)
	items = json.RawMessage(result[bytes.IndexByte(result, '['):][:len(items):len(items)])
	return &listPage{
		items: items, next: next, result: result,
		tasks:      bytes.Contains(items, []byte(`"taskSupport"`)),
		visibility: bytes.Contains(items, []byte(`"visibility"`)),
	}
}

func (l *listPages) get(kind catalogue.Kind, after string) *listPage {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pages[pagePosition{kind, after}]
}

func (l *listPages) put(kind catalogue.Kind, after string, p *listPage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pages == nil || len(l.pages) >= maxListPages || l.bytes+len(p.result) > listing.LargeList {
		l.pages, l.bytes = map[pagePosition]*listPage{}, 0
	}
	if l.bytes += len(p.result); l.bytes <= listing.LargeList {
		l.pages[pagePosition{kind, after}] = p
	}
}

func (v *View) cursorBound(kind catalogue.Kind) []string {
	return []string{"cursor", v.caller.Key(), v.caller.Profile, v.caller.Server, kind.Method()}
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
		if plain, _, err = v.host.states.Ring.OpenText(text, v.cursorBound(kind)...); err == nil {
			return string(plain), nil
		}
	}
	return "", round.ErrInvalidCursor
}

// merge merges lists of the servers, in the order of s.pools.
func (v *View) merge(s *viewServers, lists [][catalogue.Kinds]*catalogue.List) *merged {
	m := &merged{servers: s, lists: lists, pools: map[string]*upstream.Pool{}, epoch: v.host.authorize.Epoch()}
	servers := make([]catalogue.Server, len(s.pools))
	for n, p := range s.pools {
		m.pools[p.Name()] = p
		servers[n] = p.Offers(lists[n])
	}
	m.catalogue = catalogue.Merge(servers, v.catalogueOptions(s))
	if v.hideInstructions(servers, m.catalogue) {
		m.catalogue = catalogue.Merge(servers, v.catalogueOptions(s))
	}
	for _, problem := range m.catalogue.Problems() {
		level := slog.LevelDebug
		if problem.Severity == catalogue.Misconfigured && v.host.misnamed.isFirst(problem) {
			level = slog.LevelWarn // the user misses an item that the server has
		}
		v.host.opts.Logger.Log(v.host.ctx, level, "host: item of a list", "server", problem.Server, "list",
			problem.Kind, "name", problem.Name, "severity", problem.Severity, "problem", problem.Reason)
	}
	return m
}

// hideInstructions removes the instructions of servers of which the policy hides all items, also before their
// lists were read. It reports whether there are any.
func (v *View) hideInstructions(servers []catalogue.Server, c *catalogue.Catalogue) (some bool) {
	if v.host.authorize.Policy() == nil {
		return false
	}
	for n := range servers {
		if s := &servers[n]; s.Instructions != "" && !showsItems(s, c) {
			s.Instructions, some = "", true
		}
	}
	return some
}

// showsItems reports whether a catalogue has an item of a server, or the server has none.
func showsItems(s *catalogue.Server, c *catalogue.Catalogue) bool {
	has := false
	for kind := range catalogue.Kinds {
		list := s.Lists[kind]
		has = has || list == nil || list.Len() > 0
		for _, item := range c.Items(catalogue.Kind(kind)) {
			if item.Server == s.Name {
				return true
			}
		}
	}
	return !has
}

// maxMisnamed bounds the items with equal names that are logged: servers choose their names.
const maxMisnamed = 100

// A misnamedItems has the problems with names that were logged. It is safe for concurrent use.
type misnamedItems struct {
	mu   sync.Mutex // guards seen
	seen map[catalogue.Problem]bool
}

// isFirst reports whether a problem is to be logged: it was not before, and few others were.
func (m *misnamedItems) isFirst(p catalogue.Problem) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.seen[p] || len(m.seen) >= maxMisnamed {
		return false
	}
	if m.seen == nil {
		m.seen = map[catalogue.Problem]bool{}
	}
	m.seen[p] = true
	return true
}

func (v *View) catalogueOptions(s *viewServers) *catalogue.Options {
	set := s.set.Settings()
	o := &catalogue.Options{Single: s.single, MaxName: set.Names.Max, OwnInstructions: v.host.opts.Instructions,
		Extension: mergesExtension}
	if !s.single {
		o.ReservedNames = searchNames
		if s.logins {
			o.ReservedNames = slices.Concat(searchNames, loginTools)
		}
	}
	switch set.Names.Mode {
	case config.NamesConflict:
		o.Names = catalogue.PrefixedConflicts
	case config.NamesNone:
		o.Names = catalogue.Unprefixed
	}
	if p := set.Profiles[v.caller.Profile]; p != nil {
		o.ToolGlobs = p.Tools
	}
	policy := v.host.authorize.Policy()
	if policy != nil || v.caller.IsLimited() {
		o.Visible = func(item *catalogue.Item) bool {
			return mayUse(v.caller, item) && (policy == nil || v.host.authorize.Visible(policy, v.caller, item))
		}
	}
	return o
}

// notify announces the lists that differ to subscriptions.
func (v *View) notify(old, now *merged) {
	for kind, event := range map[catalogue.Kind]mcp.EventKind{
		catalogue.Tools: mcp.EventToolsChanged, catalogue.Prompts: mcp.EventPromptsChanged,
	} {
		if !now.catalogue.Equal(kind, old.catalogue) {
			v.changes.Send(mcp.Event{Kind: event})
		}
	}
	if !now.catalogue.Equal(catalogue.Resources, old.catalogue) ||
		!now.catalogue.Equal(catalogue.Templates, old.catalogue) {
		v.changes.Send(mcp.Event{Kind: mcp.EventResourcesChanged})
	}
}
