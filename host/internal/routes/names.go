package routes

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/connection"
	"github.com/patchbay-mcp/patchbay/host/internal/listing"
	"github.com/patchbay-mcp/patchbay/host/internal/pinrecord"
	"github.com/patchbay-mcp/patchbay/host/internal/pins"
	"github.com/patchbay-mcp/patchbay/host/pin"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

// Find returns the item with a public name, and its server. It returns nil for an unknown name, and a
// [*QuarantinedError] for a name whose definition is not approved. Lists are read again only if the name is
// unknown.
func (t *Table) Find(ctx context.Context, kind catalogue.Kind, name string) (*catalogue.Item, Server, error) {
	m := t.Latest()
	if m != nil {
		if item := m.Catalogue.Find(kind, name); item != nil {
			return item, m.Server(item.Server), nil
		}
	}
	deadline := time.Now().Add(listing.Wait)
	for waited := false; ; waited = true {
		m, err := t.Current(ctx)
		if err != nil {
			return nil, nil, err
		}
		if item := m.Catalogue.Find(kind, name); item != nil {
			return item, m.Server(item.Server), nil
		}
		if err := m.quarantined(ctx, kind, name); err != nil {
			return nil, nil, err
		}
		if !waited && t.awaitFirst(ctx, kind, name, deadline) {
			continue
		}
		if err := t.unread(kind, name); err != nil || !m.isBehind(kind) {
			return nil, nil, err
		}
	}
}

// isBehind reports whether a list that the snapshot lacks was read since: while a request waited for the
// list of another server.
func (m *Snapshot) isBehind(kind catalogue.Kind) bool {
	for n, p := range m.servers.All {
		if m.lists[n][kind] == nil && p.Lists().Last()[kind] != nil {
			return true
		}
	}
	return false
}

// awaitFirst waits until the servers to which an unknown name may belong have been listed for the first time:
// a call waits for a server that is starting, also if lists no longer wait for it. It reports whether a
// list may have been read.
func (t *Table) awaitFirst(ctx context.Context, kind catalogue.Kind, name string, deadline time.Time) (read bool) {
	for _, p := range t.Servers().All {
		done := p.Lists().FirstReading(kind)
		if done == nil || !t.mayBelongTo(p, name) {
			continue
		}
		timer := time.NewTimer(time.Until(deadline))
		select {
		case <-done:
			read = true
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	return read
}

// mayBelongTo reports whether the server's prefix matches an unknown name, or it is the only server.
func (t *Table) mayBelongTo(p Server, name string) bool {
	return len(t.Servers().All) == 1 || strings.HasPrefix(name, p.Entry().ID+"__")
}

// unread returns why the list was never read of the server to which an unknown name probably belongs.
func (t *Table) unread(kind catalogue.Kind, name string) error {
	for _, p := range t.Servers().All {
		if !t.mayBelongTo(p, name) {
			continue
		}
		if err := p.Lists().Err(kind); err != nil {
			return connection.NotRun(err)
		}
	}
	return nil
}

// A QuarantinedError refuses a name whose definition is not approved. A call of the name must pass the policy
// before it is refused.
type QuarantinedError struct {
	Err    error
	Server Server
	// Item is the item without its definition, which nobody approved.
	Item catalogue.Item
}

// Error returns the refusal.
func (e *QuarantinedError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *QuarantinedError) Unwrap() error { return e.Err }

// quarantined returns a [*QuarantinedError] for a name whose definition is not approved, nil for other names.
func (m *Snapshot) quarantined(ctx context.Context, kind catalogue.Kind, name string) error {
	item := m.Catalogue.Hidden(kind, name)
	if item == nil {
		return nil
	}
	s := m.Server(item.Server)
	reviewed, ok := s.(pins.Lists)
	if !ok {
		return nil
	}
	_, server := reviewed.Reviewed(kind)
	if server == nil { // the list was read again meanwhile, without pins
		return nil
	}
	unseen := *item
	unseen.Raw, unseen.Digest = nil, [32]byte{}
	return &QuarantinedError{server.Refusal(ctx, pin.Kind(pinrecord.Kinds[kind]), item.Original), s, unseen}
}

// AppTool returns the tool that a page of an app calls, and its server: a page knows only the names that its
// server uses. It returns nil unless exactly one tool may be meant.
//
// Spec: SEP-1865, Tool Visibility.
func (t *Table) AppTool(name string) (*catalogue.Item, Server) {
	m := t.Latest()
	if m == nil || t.Servers().Single {
		return nil, nil
	}
	item := m.Catalogue.AppTool(name)
	if item == nil {
		return nil, nil
	}
	return item, m.Server(item.Server)
}

// Tool returns the public name of a tool that a request names, or "" for an unknown name. It reads no lists.
func (t *Table) Tool(m *Snapshot, name string) string {
	s := t.Servers()
	switch {
	case slices.Contains(searchNames, name) && t.Searches(m.Catalogue), slices.Contains(loginNames, name) && s.Logins:
		return name
	case s.Single:
		return ""
	}
	if item := m.Catalogue.AppTool(name); item != nil {
		return item.Public
	}
	return ""
}

// Reference returns the server of a reference of completion/complete, and the reference that the server
// knows. It returns a nil server for an unknown reference.
func (t *Table) Reference(ctx context.Context, ref []byte) (s Server, own []byte, err error) {
	latest := func(context.Context) (*Snapshot, error) { return t.Latest(), nil }
	for _, load := range []func(context.Context) (*Snapshot, error){latest, t.Current} {
		m, err := load(ctx)
		if err != nil {
			return nil, nil, err
		}
		if m == nil {
			continue
		}
		if server, own, ok := m.Catalogue.Reference(ref); ok {
			return m.Server(server), own, nil
		}
	}
	return nil, nil, nil
}

// Extension returns the only server to which a method or a topic of another extension may belong: the only
// server of the caller, the first server that the configuration maps the name to, or else the only
// server with other extensions. It returns nil without such a server.
func (t *Table) Extension(name string) Server {
	all := t.Servers().All
	if len(all) == 1 {
		return all[0]
	}
	var mapped, declared []Server
	for _, p := range all {
		if config.Match(p.Entry().Settings.Methods, name) {
			mapped = append(mapped, p)
		}
		if hasOtherExtensions(p) {
			declared = append(declared, p)
		}
	}
	switch {
	case len(mapped) > 0:
		return mapped[0] // the first in the order of the file
	case len(declared) == 1:
		return declared[0]
	}
	return nil
}

// hasOtherExtensions reports whether a server has declared extensions that the host does not know.
func hasOtherExtensions(s Server) bool {
	capabilities := s.Lists().About().Capabilities
	if !jsonscan.HasObject(capabilities, "extensions") {
		return false
	}
	extensions, _ := jsonscan.Get(capabilities, "extensions")
	for id := range jsonscan.Members(extensions) {
		if !mergesExtension(string(id), nil) {
			return true
		}
	}
	return false
}
