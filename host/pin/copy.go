package pin

import (
	"context"
	"errors"
	"fmt"

	"github.com/patchbay-mcp/patchbay/host/internal/pinrecord"
	"github.com/patchbay-mcp/patchbay/host/state"
)

// Copy adds the definitions in another store to a store, for every server: the forms that were last
// listed for the local user. Forms that are approved in found become approved in addition to other
// forms. The others must wait for approval, unless the store contains them as approved. Copy also
// adds lists without items, so that "trust": "first" does not approve definitions that the server
// adds later.
//
// Copy returns the pins of these forms, as the store then contains them. undo restores the earlier
// content of the store. If the pins of a server changed meanwhile, they remain, and the error of
// undo is [state.ErrConflict]. Hosts with the same store use the definitions within 2 seconds.
func Copy(ctx context.Context, store, found state.Store) (
	pins []*Pin, undo func(ctx context.Context) error, err error,
) {
	var all []recordCopy
	undo = func(ctx context.Context) error {
		var errs []error
		for _, c := range all {
			if err := pinrecord.Undo(ctx, store, c.identity, c.old, c.now); err != nil {
				errs = append(errs, fmt.Errorf("pin: record of server %.64q: %w", c.identity, err))
			}
		}
		return errors.Join(errs...)
	}
	for e, err := range pinrecord.Entries(ctx, found) {
		var c recordCopy
		if err == nil {
			c, err = copyRecord(ctx, store, e)
		}
		if err != nil {
			return nil, nil, errors.Join(fmt.Errorf("pin: record of server %.64q: %w", e.Key, err), undo(ctx))
		}
		all = append(all, c)
		pins = append(pins, c.pins...)
	}
	return pins, undo, nil
}

// A recordCopy is the change of the record of a server.
type recordCopy struct {
	identity string
	pins     []*Pin
	old, now []byte
}

// copyRecord adds an entry of another store to the record of the same server.
func copyRecord(ctx context.Context, store state.Store, found state.Entry) (c recordCopy, err error) {
	from, err := pinrecord.Decode(found.Value)
	if err != nil {
		return c, err
	}
	c.identity = found.Key
	var names []pinrecord.Name
	r, err := pinrecord.Update(ctx, store, found.Key, func(r *pinrecord.Record) (err error) {
		c.old = nil
		if r.Version > 0 {
			c.old, err = r.Encode()
		}
		names = r.CopyListed(from)
		return err
	})
	if err != nil {
		return c, err
	}
	for _, n := range names {
		c.pins = append(c.pins, newPin(found.Key, r, n.Kind, n.Name))
	}
	c.now, err = r.Encode()
	return c, err
}
