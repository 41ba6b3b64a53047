package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/patchbay-mcp/patchbay/host/state"
)

// A Pin is the record of one definition of a server: its approved forms, and those that
// wait for approval. It is independent of the name that the server has in a configuration; see
// [config.Server.Identity].
//
// A host with [Options.Pins] neither lists nor uses a definition that is not approved. With "trust":
// "first", the settings of a server approve what the first connection finds; every other definition,
// and each change of one, waits for [ApprovePins].
type Pin struct {
	// Server is the name of the server in the configuration that was used last.
	Server string
	// Identity is that of the server. Of several servers of a configuration with one
	// [config.Server.Identity], those after the first have another one.
	Identity string
	Kind     PinKind
	// Name is the name, URI or template that the server uses; of PinServer "instructions" or
	// "serverInfo".
	Name string
	// Approved are the forms that are used, the newest first: callers may get different ones.
	Approved []Definition
	// Pending are the forms that are quarantined, the newest first.
	Pending []Definition
}

// A PinKind is the kind of a definition.
type PinKind string

// Kinds of definitions.
const (
	PinTool     PinKind = "tool"
	PinPrompt   PinKind = "prompt"
	PinResource PinKind = "resource"
	PinTemplate PinKind = "resource template"
	PinServer   PinKind = "server" // its instructions and serverInfo
)

// A Definition is one form of a definition.
type Definition struct {
	// Digest is the SHA-256 digest of the definition in canonical form (RFC 8785, but numbers keep
	// their text), in hexadecimal. That of a resource does not depend on its size and lastModified.
	Digest string
	// JSON is the definition as the server sent it, nil if it is too large to be kept. It is not
	// trusted: use [Pin.Diff] to show it.
	JSON json.RawMessage
	// Time is when it was approved or last found to be different.
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

// pinsKind is the kind of the entries with pins. Their keys are identities of servers.
const pinsKind = "pins"

// Pins returns the pins of all servers in a state, in the order of identity, kind and name.
func Pins(ctx context.Context, store state.Store) (pins []*Pin, err error) {
	for e, err := range store.List(ctx, pinsKind) {
		if err != nil {
			return nil, err
		}
		r, err := decodePins(e.Value)
		if err != nil {
			return nil, fmt.Errorf("host: pins of server %.64q: %w", e.Key, err)
		}
		pins = append(pins, r.pins(e.Key)...)
	}
	return pins, nil
}

// ErrPinChanged reports that a definition is not the one that waits for approval any more.
var ErrPinChanged = errors.New("host: the definition has changed since it was shown, or is approved already: " +
	"look at it again")

// ApprovePins approves the forms in Pending of each pin, and nothing else: a form that the server has
// sent since is [ErrPinChanged], and then no pin of this server is approved. Hosts with the same state
// use the definitions within 2 seconds.
func ApprovePins(ctx context.Context, store state.Store, pins ...*Pin) error {
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
		_, err := updatePins(ctx, store, identity, func(r *pinRecord) error {
			for _, p := range byServer[identity] {
				if err := r.approve(p); err != nil {
					return fmt.Errorf("%s %q of server %q: %w", p.Kind, p.Name, p.Server, err)
				}
			}
			return nil
		})
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// approve approves the pending forms of a pin.
func (r *pinRecord) approve(p *Pin) error {
	item := r.kind(p.Kind).Items[p.Name]
	if item == nil || len(p.Pending) == 0 {
		return ErrPinChanged
	}
	for _, d := range slices.Backward(p.Pending) {
		i := slices.IndexFunc(item.Pending, func(s storedDefinition) bool { return s.Digest == d.Digest })
		if i < 0 {
			return ErrPinChanged
		}
		approved := item.Pending[i]
		approved.Caller, approved.Time = "", time.Now()
		item.Pending = slices.DeleteFunc(item.Pending, func(s storedDefinition) bool { return s.Digest == d.Digest })
		item.addApproved(approved)
	}
	return nil
}
