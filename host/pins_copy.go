package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/patchbay-mcp/patchbay/host/state"
)

// CopyPins records in a state what another one has found, for every server of it: the forms of
// definitions that were listed last for the local user. Those that are approved there become approved,
// in addition to others, and the rest waits for approval unless state has it as approved. Lists without
// items are recorded too, so that "trust": "first" does not approve what the server adds later.
//
// It returns the pins of these forms, as they are in state then. undo restores what state had before; its
// error is [ErrConflict] for a server whose pins have changed since, which stay. Hosts with the same
// state use the definitions within 2 seconds.
func CopyPins(ctx context.Context, store, found state.Store) (
	pins []*Pin, undo func(ctx context.Context) error, err error,
) {
	var all []pinsCopy
	undo = func(ctx context.Context) error {
		var errs []error
		for _, c := range all {
			errs = append(errs, c.undo(ctx, store))
		}
		return errors.Join(errs...)
	}
	for e, err := range found.List(ctx, pinsKind) {
		var c pinsCopy
		if err == nil {
			c, err = copyPins(ctx, store, e)
		}
		if err != nil {
			return nil, nil, errors.Join(fmt.Errorf("host: pins of server %.64q: %w", e.Key, err), undo(ctx))
		}
		all = append(all, c)
		pins = append(pins, c.pins...)
	}
	return pins, undo, nil
}

// A pinsCopy is the change of the record of one server.
type pinsCopy struct {
	identity string
	pins     []*Pin
	old, now []byte
}

// copyPins adds an entry of another state to the record of the same server.
func copyPins(ctx context.Context, store state.Store, found state.Entry) (c pinsCopy, err error) {
	from, err := decodePins(found.Value)
	if err != nil {
		return c, err
	}
	c.identity = found.Key
	r, err := updatePins(ctx, store, found.Key, func(r *pinRecord) (err error) {
		c.old = nil
		if r.version > 0 {
			c.old, err = r.encode()
		}
		c.pins = r.copyListed(found.Key, from)
		return err
	})
	if err != nil {
		return c, err
	}
	c.now, err = r.encode()
	return c, err
}

// undo restores the record unless another program has changed it.
func (c *pinsCopy) undo(ctx context.Context, store state.Store) error {
	now, version, err := store.Get(ctx, pinsKind, c.identity)
	switch {
	case err != nil:
		return err
	case !bytes.Equal(now, c.now):
		return fmt.Errorf("host: pins of server %.64q: %w", c.identity, state.ErrConflict)
	case bytes.Equal(c.now, c.old):
		return nil
	}
	return store.CompareAndSet(ctx, pinsKind, c.identity, version, c.old)
}

// copyListed records what another record has as listed last, and returns the pins of that.
func (r *pinRecord) copyListed(identity string, found *pinRecord) (pins []*Pin) {
	r.Server = found.Server
	if found.Capabilities != nil {
		r.Capabilities, r.Revision = found.Capabilities, found.Revision
	}
	for _, kind := range slices.Sorted(maps.Keys(found.Kinds)) {
		from := found.Kinds[kind]
		listed := from.listed()
		(&pinReview{kind: kind, found: listed, approved: found}).apply(identity, r)
		to := r.Kinds[kind]
		to.Complete = from.Complete
		for _, d := range listed {
			item := to.Items[d.name]
			if item.isApproved(d.digest) { // also for callers that have found it before
				item.Pending = slices.DeleteFunc(item.Pending, func(p storedDefinition) bool {
					return p.Digest == d.digest
				})
			}
			pins = append(pins, item.pin(r.Server, identity, kind, d.name))
		}
	}
	return pins
}

// listed returns the forms that were listed last for the local user, in the order of their names.
func (k *pinnedKind) listed() (all []foundDefinition) {
	for _, name := range slices.Sorted(maps.Keys(k.Items)) {
		item := k.Items[name]
		for _, d := range slices.Concat(item.Approved, item.Pending) {
			if d.Digest == item.Listed {
				all = append(all, foundDefinition{name, d.Digest, []byte(d.JSON)})
				break
			}
		}
	}
	return all
}
