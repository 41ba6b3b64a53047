package mcp

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/patchbay-mcp/patchbay/internal/legacy"
	"github.com/patchbay-mcp/patchbay/internal/schema"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// A featureSet holds the features of a kind, by name. Readers use an immutable snapshot, so that a
// list or a call takes no lock. The snapshot is built when it is first needed, so that registering
// many features builds it once.
//
// V is a pointer to the feature that clients see, and E a pointer to the server's data about it.
// All pointers share the same code, so the methods are compiled once and not for each kind, but
// only if the constraint is any.
type featureSet[V, E any] struct {
	kind    string
	feature func(V) Feature
	changed func() // called after each change, without the lock
	snap    atomic.Pointer[featureSnapshot[V, E]]
	ever    atomic.Bool // a feature was registered, and may have been removed

	mu  sync.Mutex // guards the field below
	all map[string]*featureEntry[V, E]
}

// A featureSnapshot holds the enabled features of a featureSet at a moment.
type featureSnapshot[V, E any] struct {
	byName map[string]*featureEntry[V, E]
	sorted []*featureEntry[V, E]
	pages  sync.Map     // of *listPage[V], by the index of the first item
	kept   atomic.Int64 // bytes, also of pages over the limit
}

type featureEntry[V, E any] struct {
	name     string
	value    V
	encoded  *encoding // of value
	extra    E
	disabled bool
	owner    owner
}

// An encoding is the JSON of a feature, in every form.
type encoding struct {
	json  []byte                                // in the form of the newest revision
	forms [wire.July2026]atomic.Pointer[[]byte] // for sessions, by revision; nil until needed
}

// form returns the JSON of an item of a list for the sessions of a revision, or json for zero.
func (e *encoding) form(rev wire.Revision, list string) []byte {
	if rev == 0 {
		return e.json
	}
	form := e.forms[rev].Load()
	if form == nil {
		projected := legacy.ProjectListed(rev, list, e.json)
		form = &projected
		e.forms[rev].Store(form)
	}
	return *form
}

func (s *featureSet[V, E]) init(kind string, feature func(V) Feature, changed func()) {
	s.kind, s.feature, s.changed = kind, feature, changed
	s.all = map[string]*featureEntry[V, E]{}
}

func (s *featureSet[V, E]) lookup(name string) (*featureEntry[V, E], bool) {
	e, ok := s.snapshot().byName[name]
	return e, ok
}

func (s *featureSet[V, E]) list() []*featureEntry[V, E] { return s.snapshot().sorted }

// maxKept limits the pages of a list that are kept, in bytes of their items: such as 15,000 tools of
// 1 KB. The pages of a longer list are assembled for each request.
const maxKept = 16 << 20

// page returns the page of all features after a name, and its last name if another page follows. It
// keeps the pages that clients read from the first page on.
func (s *featureSet[V, E]) page(after string, size int) (page *listPage[V], last string) {
	snap := s.snapshot()
	start := sort.Search(len(snap.sorted), func(i int) bool { return snap.sorted[i].name > after })
	end := min(start+size, len(snap.sorted))
	if end < len(snap.sorted) {
		last = snap.sorted[end-1].name
	}
	if page, ok := snap.pages.Load(start); ok {
		return page.(*listPage[V]), last
	}
	page = &listPage[V]{}
	bytes := 0
	for _, e := range snap.sorted[start:end] {
		page.add(e.value, e.encoded)
		bytes += len(e.encoded.json)
	}
	if start%size == 0 && snap.kept.Add(int64(bytes)) <= maxKept {
		page.isKept = true
		snap.pages.Store(start, page)
	}
	return page, last
}

func (s *featureSet[V, E]) snapshot() *featureSnapshot[V, E] {
	if snap := s.snap.Load(); snap != nil {
		return snap
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	snap := &featureSnapshot[V, E]{byName: make(map[string]*featureEntry[V, E], len(s.all))}
	for _, name := range slices.Sorted(maps.Keys(s.all)) {
		if e := s.all[name]; !e.disabled {
			snap.byName[name] = e
			snap.sorted = append(snap.sorted, e)
		}
	}
	s.snap.Store(snap)
	return snap
}

// A binding is the function of a feature without its types, which call converts.
type binding[F any] struct {
	in, out reflect.Type
	missing bool // the function is nil
	call    F
}

// An owner is the *Registration of a feature.
type owner interface{ markRemoved() }

// ifTaken decides how a registration treats a name that is in use.
type ifTaken bool

const refuseTaken, replaceTaken ifTaken = false, true

// register adds a feature to a set and returns its handle. prepare validates the feature, now and
// after each [Registration.Update], and completes the server's data about it.
func register[V, E any](
	s *featureSet[*V, *E], name string, value *V, extra E, prepare func(v *V, extra *E) error, taken ifTaken,
) (*Registration[V], error) {
	entry := func(e featureEntry[*V, *E]) (*featureEntry[*V, *E], error) {
		prepared := *e.extra
		e.extra = &prepared
		err := prepare(e.value, e.extra)
		if err == nil {
			e.encoded = new(encoding)
			e.encoded.json, err = schema.Encode(e.value)
		}
		return &e, err
	}
	r := &Registration[V]{}
	r.update = func(change func(*V)) {
		s.edit(name, r, func(e featureEntry[*V, *E]) *featureEntry[*V, *E] {
			v := *e.value
			change(&v)
			e.value = &v
			changed, err := entry(e)
			if err != nil {
				panic(fmt.Sprintf("mcp: update of %s %q: %v", s.kind, name, err))
			}
			return changed
		})
	}
	r.disable = func(off bool) {
		s.edit(name, r, func(e featureEntry[*V, *E]) *featureEntry[*V, *E] { e.disabled = off; return &e })
	}
	r.remove = func() {
		s.edit(name, r, func(featureEntry[*V, *E]) *featureEntry[*V, *E] { return nil })
	}
	e, err := entry(featureEntry[*V, *E]{name: name, value: value, extra: &extra, owner: r})
	if err == nil {
		err = s.insert(e, taken)
	}
	if err != nil {
		return nil, fmt.Errorf("mcp: %s %.128q: %w", s.kind, name, err)
	}
	s.changed()
	return r, nil
}

// must panics if the registration failed.
func must[V any](r *Registration[V], err error) *Registration[V] {
	if err != nil {
		panic(err.Error())
	}
	return r
}

// Registered returns the registration of a feature by its name, its URI or its URI template, also
// if it is disabled. It returns false for an unknown name.
func Registered[V Tool | Prompt | Resource | ResourceTemplate](s *Server, name string) (*Registration[V], bool) {
	var found owner
	switch any((*V)(nil)).(type) {
	case *Tool:
		found = s.tools.owner(name)
	case *Prompt:
		found = s.prompts.owner(name)
	case *Resource:
		found = s.resources.owner(name)
	default:
		found = s.templates.owner(name)
	}
	r, ok := found.(*Registration[V])
	return r, ok
}

// checkMetaKeys refuses keys that a revision reserves for the protocol or that are malformed. A
// prefix may be reserved in a single revision, and features are sent to clients of all revisions.
func checkMetaKeys(m Meta) error {
	for key := range m {
		reserves := func(r wire.Revision) bool { return r.ReservesMeta(key) }
		switch {
		case !wire.ValidMetaKey(key):
			return fmt.Errorf("invalid Meta: %q is not a valid key of _meta", key)
		case slices.ContainsFunc(wire.Revisions(), reserves):
			return fmt.Errorf("invalid Meta: the key %q is reserved for the protocol", key)
		}
	}
	return nil
}

func (s *featureSet[V, E]) insert(e *featureEntry[V, E], taken ifTaken) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.all[e.name]; old != nil {
		if taken == refuseTaken {
			return fmt.Errorf("%q is registered already", e.name)
		}
		old.owner.markRemoved()
	}
	s.all[e.name] = e
	s.ever.Store(true)
	s.snap.Store(nil)
	return nil
}

func (s *featureSet[V, E]) owner(name string) owner {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.all[name]; e != nil {
		return e.owner
	}
	return nil
}

// edit replaces an entry by the result of f; nil removes it. It changes no entry if the owner's
// feature was removed, even if another feature uses its name.
func (s *featureSet[V, E]) edit(name string, by owner, f func(featureEntry[V, E]) *featureEntry[V, E]) {
	for {
		s.mu.Lock()
		old := s.all[name]
		s.mu.Unlock()
		if old == nil || old.owner != by {
			return
		}
		if s.swap(name, old, f(*old)) { // f calls the user's function, so without the lock
			s.changed()
			return
		}
	}
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

// A Registration changes or removes a registered feature while clients are connected, and notifies
// them. Its methods are safe for concurrent use.
type Registration[V any] struct {
	update  func(func(*V))
	disable func(bool)
	remove  func()
	removed atomic.Bool
}

// Update changes the description of the feature. The function changes a copy, and may be called
// again after a concurrent change; requests in progress keep the old description. The name and the
// types of the function cannot change. Update panics if the result is invalid.
func (r *Registration[V]) Update(change func(*V)) { r.update(change) }

// Disable hides the feature and refuses its use, until Enable.
func (r *Registration[V]) Disable() { r.disable(true) }

// Enable undoes Disable.
func (r *Registration[V]) Enable() { r.disable(false) }

// Remove removes the feature. Calls in progress continue.
func (r *Registration[V]) Remove() {
	r.markRemoved()
	r.remove()
}

func (r *Registration[V]) markRemoved() { r.removed.Store(true) }

// Removed reports whether the feature was removed, by Remove or by a function such as [SetTool]
// that replaced it. Another feature may use the name since.
func (r *Registration[V]) Removed() bool { return r.removed.Load() }
