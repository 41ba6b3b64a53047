// Package lru contains maps of a bounded size that drop the least recently used value.
package lru

import "container/list"

// A Map is a map of at most Max values, which drops the least recently used value. The caller locks
// it.
type Map[K comparable, V any] struct {
	Max int // at least 1
	// OnEvict is called for each value that Put drops because there are too many. It may be nil.
	OnEvict func(key K, value *V)
	byKey   map[K]*list.Element
	recent  list.List // of *entry[K, V], the most recently used first
}

type entry[K comparable, V any] struct {
	key   K
	value *V
}

// Get returns the value of a key, or nil, and makes it the most recently used.
func (m *Map[K, V]) Get(key K) *V {
	e, ok := m.byKey[key]
	if !ok {
		return nil
	}
	m.recent.MoveToFront(e)
	return e.Value.(*entry[K, V]).value
}

// Put sets the value of a key.
func (m *Map[K, V]) Put(key K, value *V) {
	m.Drop(key)
	if m.byKey == nil {
		m.byKey = map[K]*list.Element{}
	}
	if len(m.byKey) >= m.Max {
		oldest := m.recent.Back().Value.(*entry[K, V])
		m.Drop(oldest.key)
		if m.OnEvict != nil {
			m.OnEvict(oldest.key, oldest.value)
		}
	}
	m.byKey[key] = m.recent.PushFront(&entry[K, V]{key, value})
}

// Drop removes a key.
func (m *Map[K, V]) Drop(key K) {
	if e, ok := m.byKey[key]; ok {
		m.recent.Remove(e)
		delete(m.byKey, key)
	}
}

// Len returns the number of values.
func (m *Map[K, V]) Len() int { return len(m.byKey) }

// All calls f for each value, in no order.
func (m *Map[K, V]) All(f func(key K, value *V)) {
	for key, e := range m.byKey {
		f(key, e.Value.(*entry[K, V]).value)
	}
}

// A Folding is a Map for values that count something, such as the events that a limit saw of a key.
// The count that an evicted value holds is added to a value for a group of keys, with which new
// values of the group begin. Otherwise more than Max keys would reset the counts of the first keys.
// The caller locks it.
type Folding[K, G comparable, V any] struct {
	Max int // of keys and of groups, at least 1
	// Group returns the group of a key. The value of a key without a group is dropped.
	Group func(key K) (group G, ok bool)
	// Add adds the counts of from to a value.
	Add func(to, from *V)

	values Map[K, V]
	folded Map[G, V]
}

// Get returns the value of a key, or nil.
func (f *Folding[K, G, V]) Get(key K) *V { return f.values.Get(key) }

// GetOrPut returns the value of a key. If there is no value, it is a new value that begins with the
// counts of its group.
func (f *Folding[K, G, V]) GetOrPut(key K, newValue func() *V) *V {
	if v := f.values.Get(key); v != nil {
		return v
	}
	v := newValue()
	if group, ok := f.Group(key); ok {
		if counted := f.folded.Get(group); counted != nil {
			f.Add(v, counted)
		}
	}
	if f.values.OnEvict == nil {
		f.values.Max, f.values.OnEvict, f.folded.Max = f.Max, f.fold, f.Max
	}
	f.values.Put(key, v)
	return v
}

// All calls do for each value, in no order.
func (f *Folding[K, G, V]) All(do func(key K, value *V)) { f.values.All(do) }

// Len returns the number of values.
func (f *Folding[K, G, V]) Len() int { return f.values.Len() }

func (f *Folding[K, G, V]) fold(key K, v *V) {
	group, ok := f.Group(key)
	if !ok {
		return
	}
	if counted := f.folded.Get(group); counted != nil {
		f.Add(counted, v)
		return
	}
	f.folded.Put(group, v)
}
