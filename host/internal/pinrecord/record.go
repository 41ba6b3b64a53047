// Package pinrecord contains the record of a server's definitions, as a host stores it.
package pinrecord

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/host/state"
)

const (
	// maxApproved limits the approved forms of a definition, maxPending its quarantined forms:
	// callers of a server seldom get more than a few.
	maxApproved, maxPending = 16, 8
	// maxPinned limits a definition whose text is stored, and maxPinnedBytes the texts of a kind, in bytes.
	// The record of a larger definition contains only its digest.
	maxPinned, maxPinnedBytes = 64 << 10, 4 << 20
	// maxUnlisted limits the names of resources that the record contains although they are not listed: some
	// servers return a new resource with every result.
	maxUnlisted = 10_000
	// maxConflicts limits how often a change is repeated after a change of another process.
	maxConflicts = 100

	// Kind is the kind of the entries in a [state.Store]. Their keys are identities of servers.
	Kind = "pins"
)

// A Record contains the definitions of a server. Package pin declares the kinds.
type Record struct {
	Server string `json:"server"`
	// Capabilities are the server's capabilities in the last connection of the local user or, until
	// the local user connects, in the first connection of another caller.
	Capabilities json.RawMessage `json:"capabilities,omitempty"`
	// Common means that capabilities and lists do not depend on the caller.
	Common   bool                    `json:"common,omitempty"`
	Revision string                  `json:"revision,omitempty"`
	Kinds    map[string]*Definitions `json:"kinds"`

	// Version is the version of the entry before the last change.
	Version uint64 `json:"-"`
}

// Definitions contains the definitions of a kind, by name or URI.
type Definitions struct {
	// Complete means that Items contains the whole list that the local user received last or, until
	// then, the first list of another caller.
	Complete bool             `json:"complete,omitempty"`
	Items    map[string]*Item `json:"items"`
}

// An Item contains the forms of a definition, the newest first.
type Item struct {
	Approved []Form `json:"approved,omitempty"`
	Pending  []Form `json:"pending,omitempty"`
	Listed   string `json:"listed,omitempty"` // digest of the form that was last listed for the local user
}

// A Form is a form of a definition.
type Form struct {
	Digest string    `json:"digest"`
	Time   time.Time `json:"time"`
	JSON   string    `json:"json,omitempty"`
	Caller string    `json:"caller,omitempty"` // whose request found it; empty for the local user
}

// Decode returns the record in an entry. The record of an empty entry is empty.
func Decode(text []byte) (*Record, error) {
	r := &Record{}
	if len(text) > 0 {
		if err := jsonv2.Unmarshal(text, r); err != nil {
			return nil, fmt.Errorf("invalid record: %w", err)
		}
	}
	if r.Kinds == nil {
		r.Kinds = map[string]*Definitions{}
	}
	for _, k := range r.Kinds {
		if k == nil {
			return nil, errors.New("invalid record: a kind is null")
		}
		for name, item := range k.Items {
			if item == nil {
				return nil, fmt.Errorf("invalid record: the definition %.64q is null", name)
			}
		}
	}
	return r, nil
}

// Encode returns the value of the entry.
func (r *Record) Encode() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b) // allocates less than jsonv2
	e.SetEscapeHTML(false)
	err := e.Encode(r)
	return b.Bytes(), err
}

// Get returns the record of a server, and the version of its entry.
func Get(ctx context.Context, store state.Store, identity string) (*Record, uint64, error) {
	text, version, err := store.Get(ctx, Kind, identity)
	if err != nil {
		return nil, 0, err
	}
	r, err := Decode(text)
	return r, version, err
}

// Version returns the version of the entry of a server.
func Version(ctx context.Context, store state.Store, identity string) (uint64, error) {
	_, version, err := store.Get(ctx, Kind, identity)
	return version, err
}

// Entries returns the entries of all servers in a store.
func Entries(ctx context.Context, store state.Store) iter.Seq2[state.Entry, error] {
	return store.List(ctx, Kind)
}

// Update changes the record of a server, and returns it. It writes only a changed record. change must change
// only its argument, because Update repeats it after a change of another process.
func Update(
	ctx context.Context, store state.Store, identity string, change func(r *Record) error,
) (*Record, error) {
	for range maxConflicts {
		old, version, err := store.Get(ctx, Kind, identity)
		if err != nil {
			return nil, err
		}
		r, err := Decode(old)
		if err != nil {
			return nil, err
		}
		r.Version = version
		if err := change(r); err != nil {
			return nil, err
		}
		text, err := r.Encode()
		if err != nil || bytes.Equal(text, old) {
			return r, err
		}
		err = store.CompareAndSet(ctx, Kind, identity, version, text)
		if err == nil {
			return r, nil
		}
		if !errors.Is(err, state.ErrConflict) {
			return nil, err
		}
	}
	return nil, state.ErrConflict
}

// Undo writes old in place of the entry of a server. The entry must equal now; otherwise Undo fails with
// [state.ErrConflict]. A nil entry does not exist.
func Undo(ctx context.Context, store state.Store, identity string, old, now []byte) error {
	current, version, err := store.Get(ctx, Kind, identity)
	switch {
	case err != nil:
		return err
	case !bytes.Equal(current, now):
		return state.ErrConflict
	case bytes.Equal(now, old):
		return nil
	}
	return store.CompareAndSet(ctx, Kind, identity, version, old)
}

// Of returns the definitions of a kind. Empty definitions are not part of the record.
func (r *Record) Of(kind string) *Definitions {
	if found := r.Kinds[kind]; found != nil {
		return found
	}
	return &Definitions{}
}

// A Name identifies a definition in a record.
type Name struct{ Kind, Name string }

// Names returns the names of all definitions, in order.
func (r *Record) Names() (names []Name) {
	for _, kind := range slices.Sorted(maps.Keys(r.Kinds)) {
		for _, name := range slices.Sorted(maps.Keys(r.Kinds[kind].Items)) {
			names = append(names, Name{kind, name})
		}
	}
	return names
}

// Forms returns the forms of a definition, each once.
func (r *Record) Forms(kind, name string) (approved, pending []Form) {
	item := r.Of(kind).Items[name]
	if item == nil {
		return nil, nil
	}
	for _, f := range item.Pending {
		if !slices.ContainsFunc(pending, func(d Form) bool { return d.Digest == f.Digest }) {
			pending = append(pending, f)
		}
	}
	return item.Approved, pending
}

// Text returns the definition as the server sent it, nil if it is too large to be stored.
func (f *Form) Text() json.RawMessage {
	if f.JSON == "" {
		return nil
	}
	return json.RawMessage(f.JSON)
}

// IsApproved reports whether a form of a definition is approved.
func (r *Record) IsApproved(kind, name, digest string) bool {
	item := r.Of(kind).Items[name]
	return item != nil && item.IsApproved(digest)
}

// IsApproved reports whether a form is approved.
func (i *Item) IsApproved(digest string) bool {
	return slices.ContainsFunc(i.Approved, func(d Form) bool { return d.Digest == digest })
}

// Approve approves a pending form. It reports whether the form is pending.
func (i *Item) Approve(digest string) bool {
	n := slices.IndexFunc(i.Pending, func(d Form) bool { return d.Digest == digest })
	if n < 0 {
		return false
	}
	approved := i.Pending[n]
	approved.Caller, approved.Time = "", time.Now()
	i.Pending = slices.DeleteFunc(i.Pending, func(d Form) bool { return d.Digest == digest })
	i.addApproved(approved)
	return true
}

func (i *Item) addApproved(d Form) {
	i.Approved = slices.Insert(i.Approved, 0, d)
	i.Approved = i.Approved[:min(len(i.Approved), maxApproved)]
}
