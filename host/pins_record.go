package host

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

const (
	// maxApproved bounds the approved forms of one definition, maxPending those that wait: callers of
	// one server seldom get more than a few.
	maxApproved, maxPending = 16, 8
	// maxPinned bounds a definition that is kept to be shown and listed, and maxPinnedBytes all of a
	// kind, in bytes. Only the digests of larger ones are kept.
	maxPinned, maxPinnedBytes = 64 << 10, 4 << 20
	// maxUnlisted bounds the names of resources that are remembered although they are not listed: some
	// servers have a new one for every result.
	maxUnlisted = 10_000
	// maxConflicts bounds how often a change is tried again after that of another process.
	maxConflicts = 100
)

// A pinRecord has the pins of one server.
type pinRecord struct {
	Server string `json:"server"`
	// Capabilities are the server's capabilities in the last connection of the local user or, until
	// the local user connects, in the first connection of another caller.
	Capabilities json.RawMessage `json:"capabilities,omitempty"`
	// Common means that capabilities and lists do not depend on the caller.
	Common   bool                    `json:"common,omitempty"`
	Revision string                  `json:"revision,omitempty"`
	Kinds    map[PinKind]*pinnedKind `json:"kinds"`

	version uint64 // before the last change
}

// A pinnedKind has the pins of one kind.
type pinnedKind struct {
	// Complete means that Items contains the whole list that the local user received last or, until
	// then, the first list of another caller.
	Complete bool                   `json:"complete,omitempty"`
	Items    map[string]*pinnedItem `json:"items"`
}

// A pinnedItem has the forms of one definition, the newest first.
type pinnedItem struct {
	Approved []storedDefinition `json:"approved,omitempty"`
	Pending  []storedDefinition `json:"pending,omitempty"`
	Listed   string             `json:"listed,omitempty"` // digest of what was listed last for the local user
}

type storedDefinition struct {
	Digest string    `json:"digest"`
	Time   time.Time `json:"time"`
	JSON   string    `json:"json,omitempty"`
	Caller string    `json:"caller,omitempty"` // whose request has found it; see pool.pinCaller
}

// A foundDefinition is a definition that a server has sent.
type foundDefinition struct {
	name, digest string
	raw          json.RawMessage
}

func decodePins(text []byte) (*pinRecord, error) {
	r := &pinRecord{}
	if len(text) > 0 {
		if err := json.Unmarshal(text, r); err != nil {
			return nil, fmt.Errorf("invalid record: %w", err)
		}
	}
	if r.Kinds == nil {
		r.Kinds = map[PinKind]*pinnedKind{}
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

func (r *pinRecord) encode() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(r)
	return b.Bytes(), err
}

// updatePins changes the record of a server, and returns it. It writes nothing if nothing has changed.
func updatePins(
	ctx context.Context, store state.Store, identity string, change func(r *pinRecord) error,
) (*pinRecord, error) {
	for range maxConflicts {
		old, version, err := store.Get(ctx, pinsKind, identity)
		if err != nil {
			return nil, err
		}
		r, err := decodePins(old)
		if err != nil {
			return nil, err
		}
		r.version = version
		if err := change(r); err != nil {
			return nil, err
		}
		text, err := r.encode()
		if err != nil || bytes.Equal(text, old) {
			return r, err
		}
		err = store.CompareAndSet(ctx, pinsKind, identity, version, text)
		if err == nil {
			return r, nil
		}
		if !errors.Is(err, state.ErrConflict) {
			return nil, err
		}
	}
	return nil, state.ErrConflict
}

// kind returns the pins of a kind; a new one is not part of the record.
func (r *pinRecord) kind(k PinKind) *pinnedKind {
	if found := r.Kinds[k]; found != nil {
		return found
	}
	return &pinnedKind{}
}

// isApproved reports whether a form of a definition is approved.
func (r *pinRecord) isApproved(k PinKind, name, digest string) bool {
	item := r.kind(k).Items[name]
	return item != nil && item.isApproved(digest)
}

func (i *pinnedItem) isApproved(digest string) bool {
	return slices.ContainsFunc(i.Approved, func(d storedDefinition) bool { return d.Digest == digest })
}

func (i *pinnedItem) addApproved(d storedDefinition) {
	i.Approved = slices.Insert(i.Approved, 0, d)
	i.Approved = i.Approved[:min(len(i.Approved), maxApproved)]
}

// A pinReview compares what a server has sent for a caller with its record.
type pinReview struct {
	kind    PinKind
	found   []foundDefinition
	caller  string
	lists   bool // the list does not depend on the caller: mark its approved items as listed for all callers
	first   bool // approve what is found if the kind has no record
	approve bool // approve what is found
	added   bool // approve names that the record does not have
	// approve what this record has as approved; nil for none.
	approved *pinRecord
}

// apply records what was found, and returns the pins of forms that were not known.
func (v *pinReview) apply(identity string, r *pinRecord) (unknown []*Pin) {
	k := r.Kinds[v.kind]
	approve := v.approve || v.first && k == nil
	if k == nil {
		k = &pinnedKind{}
		r.Kinds[v.kind] = k
	}
	if k.Items == nil {
		k.Items = map[string]*pinnedItem{}
	}
	now, size, present := time.Now().UTC(), 0, map[string]bool{}
	complete := true
	for _, d := range v.found {
		present[d.name] = true
		stored := storedDefinition{Digest: d.digest, Time: now, Caller: v.caller}
		if size += len(d.raw); len(d.raw) <= maxPinned && size <= maxPinnedBytes {
			stored.JSON = string(d.raw)
		} else {
			complete = false
		}
		item := k.Items[d.name]
		isNew := item == nil
		if isNew {
			item = &pinnedItem{}
			k.Items[d.name] = item
		}
		known := v.approved != nil && v.approved.isApproved(v.kind, d.name, d.digest)
		if item.find(stored, approve || known || v.added && isNew) {
			unknown = append(unknown, item.pin(r.Server, identity, v.kind, d.name))
		}
		if v.caller == "" || v.lists && r.isApproved(v.kind, d.name, d.digest) {
			item.Listed = d.digest
		}
	}
	for name, item := range k.Items {
		if !present[name] {
			item.Pending = item.pendingOfOthers(v.caller)
			if v.caller == "" {
				item.Listed = ""
			}
		}
		if len(item.Approved)+len(item.Pending) == 0 {
			delete(k.Items, name)
		}
	}
	if v.caller == "" || v.lists && !k.Complete {
		k.Complete = complete
	}
	if v.added {
		k.forget(present)
	}
	return unknown
}

// forget removes the text of what is not listed any more and, of more than maxUnlisted, the oldest.
func (k *pinnedKind) forget(present map[string]bool) {
	var names []string
	for name, item := range k.Items {
		if present[name] || item.Listed != "" || len(item.Pending) > 0 {
			continue
		}
		names = append(names, name)
		for i := range item.Approved {
			item.Approved[i].JSON = ""
		}
	}
	if len(names) <= maxUnlisted {
		return
	}
	slices.SortFunc(names, func(a, b string) int { return k.Items[a].last().Compare(k.Items[b].last()) })
	for _, name := range names[:len(names)-maxUnlisted] {
		delete(k.Items, name)
	}
}

// last returns the time of the last form that was approved.
func (i *pinnedItem) last() (t time.Time) {
	if len(i.Approved) > 0 {
		t = i.Approved[0].Time
	}
	return t
}

// find records the form that was found for a caller. It reports whether it is quarantined and new.
func (i *pinnedItem) find(d storedDefinition, approve bool) (isNew bool) {
	known := slices.ContainsFunc(i.Pending, func(p storedDefinition) bool { return p.Digest == d.Digest })
	switch {
	case i.isApproved(d.Digest):
		i.Pending = i.pendingOfOthers(d.Caller)
	case approve:
		i.Pending = i.pendingOfOthers(d.Caller)
		d.Caller = ""
		i.addApproved(d)
	case slices.ContainsFunc(i.Pending, func(p storedDefinition) bool {
		return p.Digest == d.Digest && p.Caller == d.Caller
	}):
	default:
		i.Pending = slices.Insert(i.pendingOfOthers(d.Caller), 0, d)
		i.Pending = i.Pending[:min(len(i.Pending), maxPending)]
		return !known
	}
	return false
}

func (i *pinnedItem) pendingOfOthers(caller string) []storedDefinition {
	return slices.DeleteFunc(slices.Clone(i.Pending), func(d storedDefinition) bool { return d.Caller == caller })
}

// pin returns a pin, with each form once.
func (i *pinnedItem) pin(server, identity string, k PinKind, name string) *Pin {
	p := &Pin{Server: server, Identity: identity, Kind: k, Name: name}
	for _, d := range i.Approved {
		p.Approved = append(p.Approved, d.public())
	}
	for _, d := range i.Pending {
		if !slices.ContainsFunc(p.Pending, func(o Definition) bool { return o.Digest == d.Digest }) {
			p.Pending = append(p.Pending, d.public())
		}
	}
	return p
}

func (d *storedDefinition) public() Definition {
	public := Definition{Digest: d.Digest, Time: d.Time}
	if d.JSON != "" {
		public.JSON = json.RawMessage(d.JSON)
	}
	return public
}

// pins returns all pins of a record.
func (r *pinRecord) pins(identity string) (pins []*Pin) {
	for _, kind := range slices.Sorted(maps.Keys(r.Kinds)) {
		items := r.Kinds[kind].Items
		for _, name := range slices.Sorted(maps.Keys(items)) {
			pins = append(pins, items[name].pin(r.Server, identity, kind, name))
		}
	}
	return pins
}

// list returns the list of a kind as it was last read for the local user, nil if it is not known.
func (r *pinRecord) list(kind catalogue.Kind) *catalogue.List {
	k := r.Kinds[pinKinds[kind]]
	if k == nil || !k.Complete {
		return nil
	}
	page := []byte(`{"` + kind.Member() + `":[`)
	for _, item := range k.Items {
		if item.Listed == "" {
			continue
		}
		all := slices.Concat(item.Approved, item.Pending)
		i := slices.IndexFunc(all, func(d storedDefinition) bool { return d.Digest == item.Listed })
		if i < 0 || all[i].JSON == "" {
			return nil
		}
		page = append(append(page, all[i].JSON...), ',')
	}
	return catalogue.Parse(kind, append(bytes.TrimSuffix(page, []byte{','}), "]}"...))
}

// pinKinds are the kinds of definitions in lists.
var pinKinds = [catalogue.Kinds]PinKind{PinTool, PinPrompt, PinResource, PinTemplate}

// held returns the original names of the items of a list that are not approved.
func (r *pinRecord) held(kind catalogue.Kind, l *catalogue.List) map[string]struct{} {
	held := map[string]struct{}{}
	for _, d := range definitionsOf(kind, l) {
		if !r.isApproved(pinKinds[kind], d.name, d.digest) {
			held[d.name] = struct{}{}
		}
	}
	return held
}

// definitionsOf returns the definitions of a list with the digests of pins.
func definitionsOf(kind catalogue.Kind, l *catalogue.List) (all []foundDefinition) {
	for name, digest := range l.Digests() {
		raw := l.Definition(name)
		if kind == catalogue.Resources {
			digest = catalogue.DigestOf(withoutVolatile(raw))
		}
		all = append(all, foundDefinition{name, hex.EncodeToString(digest[:]), raw})
	}
	return all
}

// withoutVolatile returns the definition of a resource without what changes with its content. The same
// definition is returned if it has nothing of it.
func withoutVolatile(raw json.RawMessage) json.RawMessage {
	if _, ok := jsonscan.Get(raw, "size"); ok {
		raw = jsonscan.Without(raw, "size")
	}
	annotations, _ := jsonscan.Get(raw, "annotations")
	if !jsonscan.IsObject(annotations) {
		return raw
	}
	if _, ok := jsonscan.Get(annotations, "lastModified"); !ok {
		return raw
	}
	if annotations = jsonscan.Without(annotations, "lastModified"); string(annotations) == "{}" {
		return jsonscan.Without(raw, "annotations")
	}
	return jsonscan.WithMember(raw, "annotations", annotations)
}

// changedMembers returns the names of the members in which two definitions differ, as text.
func changedMembers(old, now json.RawMessage) string {
	if !jsonscan.IsObject(old) || !jsonscan.IsObject(now) {
		return ""
	}
	const most = 5
	var names []string
	add := func(a, b json.RawMessage) {
		for key, value := range jsonscan.Members(a) {
			other, ok := jsonscan.Get(b, string(key))
			if name := fmt.Sprintf("%.40q", key); (!ok || catalogue.DigestOf(value) != catalogue.DigestOf(other)) &&
				!slices.Contains(names, name) && len(names) <= most {
				names = append(names, name)
			}
		}
	}
	add(now, old)
	add(old, now)
	if len(names) > most {
		names[most] = "others"
	}
	return strings.ReplaceAll(strings.Join(names, ", "), `"`, "")
}

// hasHidden reports whether a string of a definition has characters that users do not see.
func hasHidden(raw json.RawMessage) bool {
	return slices.ContainsFunc(flatten(raw), func(l textLine) bool { return len(hiddenRunes(l.text)) > 0 })
}

// describe returns what a user and a caller learn of a quarantined definition.
func (p *Pin) describe() string {
	what := fmt.Sprintf("%s %.128q", p.Kind, p.Name)
	if p.Kind == PinServer {
		what = "its " + p.Name
	}
	state := "is new since the server was approved"
	var last Definition
	if len(p.Pending) > 0 {
		last = p.Pending[0]
	}
	if len(p.Approved) > 0 {
		state = "has changed since it was approved"
		if members := changedMembers(p.Approved[0].JSON, last.JSON); members != "" {
			state += " (" + members + ")"
		}
	}
	if hasHidden(last.JSON) {
		state += " and has characters that are not visible"
	}
	return "the definition of " + what + " " + state
}
