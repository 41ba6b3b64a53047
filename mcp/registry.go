package mcp

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	jsonv2 "github.com/go-json-experiment/json"
)

// A featureSet has the features of one kind, by name. Readers use an immutable snapshot, so that a
// list or a call takes no lock. The snapshot is built when it is first needed, so that registering
// many features builds one.
//
// V is the type of the feature that clients see, and E that of the server's data about it.
type featureSet[V, E any] struct {
	kind    string
	changed func() // called after each change, without the lock
	snap    atomic.Pointer[featureSnapshot[V, E]]
	ever    atomic.Bool // a feature was registered, and may have been removed

	mu  sync.Mutex // guards the field below
	all map[string]*featureEntry[V, E]
}

// A featureSnapshot is one state of a featureSet: its enabled features.
type featureSnapshot[V, E any] struct {
	byName map[string]*featureEntry[V, E]
	sorted []*featureEntry[V, E]
	first  atomic.Pointer[listPage[V]] // the first page of the list of all features; nil until it is needed
}

// A featureEntry is one registered feature.
type featureEntry[V, E any] struct {
	name     string
	value    *V
	encoded  []byte // the JSON of value
	extra    E
	disabled bool
	owner    *Registration[V]
}

func (s *featureSet[V, E]) init(kind string, changed func()) {
	s.kind, s.changed = kind, changed
	s.all = map[string]*featureEntry[V, E]{}
}

// lookup returns an enabled feature.
func (s *featureSet[V, E]) lookup(name string) (*featureEntry[V, E], bool) {
	e, ok := s.snapshot().byName[name]
	return e, ok
}

// list returns the enabled features, sorted by name.
func (s *featureSet[V, E]) list() []*featureEntry[V, E] { return s.snapshot().sorted }

// firstPage returns the first page of the list of all features, and the name of its last feature if
// another page follows.
func (s *featureSet[V, E]) firstPage(size int) (page *listPage[V], last string) {
	snap := s.snapshot()
	if size < len(snap.sorted) {
		last = snap.sorted[size-1].name
	}
	if page = snap.first.Load(); page != nil {
		return page, last
	}
	page = &listPage[V]{}
	for _, e := range snap.sorted[:min(size, len(snap.sorted))] {
		page.add(e.value, e.encoded)
	}
	page.array = append(append([]byte{'['}, bytes.Join(page.encoded, []byte{','})...), ']')
	snap.first.Store(page)
	return page, last
}

func (s *featureSet[V, E]) snapshot() *featureSnapshot[V, E] {
	if snap := s.snap.Load(); snap != nil {
		return snap
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	snap := &featureSnapshot[V, E]{byName: make(map[string]*featureEntry[V, E], len(s.all))}
	for name, e := range s.all {
		if !e.disabled {
			snap.byName[name] = e
			snap.sorted = append(snap.sorted, e)
		}
	}
	slices.SortFunc(snap.sorted, func(a, b *featureEntry[V, E]) int { return strings.Compare(a.name, b.name) })
	s.snap.Store(snap)
	return snap
}

// add registers a feature and returns its handle. It panics if the name is in use. renew validates
// a feature that [Registration.Update] has changed and returns its new data.
func (s *featureSet[V, E]) add(name string, value *V, extra E, renew func(v *V, old E) E) *Registration[V] {
	r := &Registration[V]{}
	edit := func(f func(e *featureEntry[V, E]) *featureEntry[V, E]) { s.edit(name, r, f) }
	r.update = func(change func(*V)) {
		edit(func(e *featureEntry[V, E]) *featureEntry[V, E] {
			v := *e.value
			change(&v)
			e.extra, e.value = renew(&v, e.extra), &v
			e.encoded = s.encode(name, &v)
			return e
		})
	}
	r.disable = func(off bool) {
		edit(func(e *featureEntry[V, E]) *featureEntry[V, E] { e.disabled = off; return e })
	}
	r.remove = func() {
		edit(func(*featureEntry[V, E]) *featureEntry[V, E] { return nil })
	}
	s.insert(&featureEntry[V, E]{name: name, value: value, encoded: s.encode(name, value), extra: extra, owner: r})
	s.changed()
	return r
}

// encode returns the JSON of a feature for lists.
func (s *featureSet[V, E]) encode(name string, value *V) []byte {
	encoded, err := jsonv2.Marshal(value, deterministic)
	if err != nil {
		panic(fmt.Sprintf("mcp: %s %q: %v", s.kind, name, err))
	}
	return encoded
}

func (s *featureSet[V, E]) insert(e *featureEntry[V, E]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, taken := s.all[e.name]; taken {
		panic(fmt.Sprintf("mcp: %s %q is registered already", s.kind, e.name))
	}
	s.all[e.name] = e
	s.ever.Store(true)
	s.snap.Store(nil)
}

// edit replaces the entry of r by f of a copy; a nil result removes it. It does nothing if the
// feature was removed, even if another one has its name.
func (s *featureSet[V, E]) edit(name string, r *Registration[V], f func(*featureEntry[V, E]) *featureEntry[V, E]) {
	for {
		old := s.owned(name, r)
		if old == nil {
			return
		}
		copied := *old
		e := f(&copied) // calls the user's function, so without the lock
		if s.swap(name, old, e) {
			s.changed()
			return
		}
	}
}

func (s *featureSet[V, E]) owned(name string, r *Registration[V]) *featureEntry[V, E] {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.all[name]; e != nil && e.owner == r {
		return e
	}
	return nil
}

// swap replaces an entry and reports true, unless it was changed concurrently.
func (s *featureSet[V, E]) swap(name string, old, e *featureEntry[V, E]) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[name] != old {
		return false
	}
	if e == nil {
		delete(s.all, name)
	} else {
		s.all[name] = e
	}
	s.snap.Store(nil)
	return true
}

// A Registration is the handle of a registered feature. It changes or removes the feature while
// clients are connected, and notifies them. Its methods are safe for concurrent use.
type Registration[V any] struct {
	update  func(func(*V))
	disable func(bool)
	remove  func()
	removed atomic.Bool
}

// Update changes the description of the feature. The function changes a copy, and may be called
// again after a concurrent change; requests in progress keep the old one. The name and the types of
// the function cannot change. Update panics if the result is invalid.
func (r *Registration[V]) Update(change func(*V)) { r.update(change) }

// Disable hides the feature and refuses its use, until Enable.
func (r *Registration[V]) Disable() { r.disable(true) }

// Enable undoes Disable.
func (r *Registration[V]) Enable() { r.disable(false) }

// Remove removes the feature. Calls in progress continue.
func (r *Registration[V]) Remove() {
	r.removed.Store(true)
	r.remove()
}

// Removed reports whether Remove was called. Another feature may have the name since.
func (r *Registration[V]) Removed() bool { return r.removed.Load() }
