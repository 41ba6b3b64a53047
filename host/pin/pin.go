// Package pin contains the definitions of servers that a host compares with the approved
// definitions.
package pin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/patchbay-mcp/patchbay/host/internal/pinrecord"
	"github.com/patchbay-mcp/patchbay/host/state"
)

// A Pin contains the forms of a definition of a server: the approved forms, and the forms that wait
// for approval. It does not depend on the name of the server in a configuration; see
// [github.com/patchbay-mcp/patchbay/host/config.Server.Identity].
//
// A host with pins must neither list nor use a definition that is not approved. With "trust":
// "first", the settings of a server approve the definitions of the first connection; later
// definitions, and changes, must wait for [Approve].
type Pin struct {
	// Server is the name of the server in the configuration that was used last.
	Server string
	// Identity identifies the server. If several servers of a configuration are identical, the
	// servers after the first get another identity.
	Identity string
	Kind     Kind
	// Name is the name, URI or template that the server uses, or "instructions" or "serverInfo" of
	// Server.
	Name string
	// Approved contains the forms that are used, the newest first: callers may get different forms.
	Approved []Definition
	// Pending contains the forms that are quarantined, the newest first.
	Pending []Definition
	// Removed reports that the last list for the local user contained other definitions of the
	// kind, and not this approved definition.
	Removed bool
}

// A Kind is the kind of a definition.
type Kind string

// Kinds of definitions.
const (
	Tool     Kind = "tool"
	Prompt   Kind = "prompt"
	Resource Kind = "resource"
	Template Kind = "resource template"
	Event    Kind = "event"  // a type of events
	Server   Kind = "server" // its instructions and serverInfo
)

// A Definition is a form of a definition.
type Definition struct {
	// Digest is the SHA-256 digest of the definition in canonical form (RFC 8785, but numbers keep
	// their text), in hexadecimal. The digest of a resource does not depend on its size and
	// lastModified.
	Digest string
	// JSON is the definition as the server sent it, nil if it is too large to be stored. It is not
	// trusted: use [Pin.Diff] to show it.
	JSON json.RawMessage
	// Time is when the form was approved or last found to be different.
	Time time.Time
}

// Status returns "approved", "new" if no form is approved, or "changed".
func (p *Pin) Status() string {
	switch {
	case len(p.Pending) == 0:
		return "approved"
	case len(p.Approved) == 0:
		return "new"
	}
	return "changed"
}

// List returns the pins of all servers in a store, in the order of identity, kind and name.
func List(ctx context.Context, store state.Store) (pins []*Pin, err error) {
	for e, err := range pinrecord.Entries(ctx, store) {
		if err != nil {
			return nil, err
		}
		r, err := pinrecord.Decode(e.Value)
		if err != nil {
			return nil, fmt.Errorf("pin: record of server %.64q: %w", e.Key, err)
		}
		listed := map[string]bool{} // kinds that were listed for the local user
		for kind, k := range r.Kinds {
			for _, item := range k.Items {
				listed[kind] = listed[kind] || item.Listed != ""
			}
		}
		for _, n := range r.Names() {
			p := newPin(e.Key, r, n.Kind, n.Name)
			p.Removed = listed[n.Kind] && len(p.Pending) == 0 && r.Kinds[n.Kind].Items[n.Name].Listed == ""
			pins = append(pins, p)
		}
	}
	return pins, nil
}

func newPin(identity string, r *pinrecord.Record, kind, name string) *Pin {
	p := &Pin{Server: r.Server, Identity: identity, Kind: Kind(kind), Name: name}
	approved, pending := r.Forms(kind, name)
	for _, f := range approved {
		p.Approved = append(p.Approved, Definition{f.Digest, f.Text(), f.Time})
	}
	for _, f := range pending {
		p.Pending = append(p.Pending, Definition{f.Digest, f.Text(), f.Time})
	}
	return p
}

// ErrChanged reports that the pending forms of a pin differ from the forms in the store.
var ErrChanged = errors.New("pin: the definition has changed since it was shown, or is approved already: " +
	"look at it again")

// Approve approves the forms in Pending of each pin, and no others: if the server sent another form
// since, the error is [ErrChanged], and then no pin of this server is approved. Hosts with the same
// store use the definitions within 2 seconds, and at once if it is a [*state.Shared].
func Approve(ctx context.Context, store state.Store, pins ...*Pin) error {
	byServer := map[string][]*Pin{}
	var order []string
	for _, p := range pins {
		if byServer[p.Identity] == nil {
			order = append(order, p.Identity)
		}
		byServer[p.Identity] = append(byServer[p.Identity], p)
	}
	var errs []error
	for _, identity := range order {
		_, err := pinrecord.Update(ctx, store, identity, func(r *pinrecord.Record) error {
			for _, p := range byServer[identity] {
				if !p.approve(r) {
					return fmt.Errorf("%s %q of server %q: %w", p.Kind, p.Name, p.Server, ErrChanged)
				}
			}
			return nil
		})
		errs = append(errs, err)
	}
	state.Announce(ctx, store, pinrecord.Kind)
	return errors.Join(errs...)
}

// approve approves the pending forms of a pin. It reports whether all forms are pending in the
// record.
func (p *Pin) approve(r *pinrecord.Record) bool {
	item := r.Of(string(p.Kind)).Items[p.Name]
	if item == nil || len(p.Pending) == 0 {
		return false
	}
	for _, d := range slices.Backward(p.Pending) {
		if !item.Approve(d.Digest) {
			return false
		}
	}
	return true
}
