package authserver

import "container/list"

// An lru is a map of at most max values, which drops the least recently used one. The caller locks
// it.
type lru[V any] struct {
	max    int
	byKey  map[string]*list.Element
	recent list.List // of *lruEntry[V], the most recently used first
}

type lruEntry[V any] struct {
	key   string
	value *V
}

// get returns a value, nil if there is none.
func (l *lru[V]) get(key string) *V {
	e, ok := l.byKey[key]
	if !ok {
		return nil
	}
	l.recent.MoveToFront(e)
	return e.Value.(*lruEntry[V]).value
}

func (l *lru[V]) put(key string, value *V) {
	l.drop(key)
	if l.byKey == nil {
		l.byKey = map[string]*list.Element{}
	}
	if len(l.byKey) >= l.max {
		l.drop(l.recent.Back().Value.(*lruEntry[V]).key)
	}
	l.byKey[key] = l.recent.PushFront(&lruEntry[V]{key, value})
}

func (l *lru[V]) drop(key string) {
	if e, ok := l.byKey[key]; ok {
		l.recent.Remove(e)
		delete(l.byKey, key)
	}
}
