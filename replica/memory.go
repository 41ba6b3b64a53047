package replica

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// Memory is a [SessionStore], a [Bus] and a [LeaseStore] for the handlers of a single process. The zero value is
// ready to use. A Memory must not be copied, and is safe for concurrent use.
type Memory struct {
	mu          sync.Mutex // guards the fields below
	sessions    map[string]*stored
	watchers    map[*func(key string)]bool
	subscribers map[string]map[*func(payload []byte)]bool // by topic
	leases      map[string]memoryLease                    // by name
}

// stored is a session and the timer that deletes it. The timer may fire while the life of the
// session is extended.
type stored struct {
	Session
	expiry   *time.Timer
	deadline time.Time
}

// extend sets the time that is left. The caller holds the lock of the Memory.
func (s *stored) extend(idle time.Duration) {
	s.deadline = time.Now().Add(idle)
	s.expiry.Reset(idle)
}

// Create implements [SessionStore].
func (m *Memory) Create(ctx context.Context, key string, s Session, idle time.Duration) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sessions[key] != nil {
		return ErrConflict
	}
	if m.sessions == nil {
		m.sessions = map[string]*stored{}
	}
	created := &stored{Session: s}
	created.Version, created.Data = 1, bytes.Clone(s.Data)
	created.deadline = time.Now().Add(idle)
	created.expiry = time.AfterFunc(idle, func() { m.remove(key, created) })
	m.sessions[key] = created
	return nil
}

// Load implements [SessionStore].
func (m *Memory) Load(ctx context.Context, key string) (Session, error) {
	if err := context.Cause(ctx); err != nil {
		return Session{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sessions[key]
	if s == nil {
		return Session{}, ErrNoSession
	}
	loaded := s.Session
	loaded.Data = bytes.Clone(s.Data)
	return loaded, nil
}

// Update implements [SessionStore].
func (m *Memory) Update(ctx context.Context, key string, s Session, idle time.Duration) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if err := m.update(key, s, idle); err != nil {
		return err
	}
	m.notify(key)
	return nil
}

func (m *Memory) update(key string, s Session, idle time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	current := m.sessions[key]
	switch {
	case current == nil:
		return ErrNoSession
	case current.Version != s.Version:
		return ErrConflict
	}
	current.Session = s
	current.Version, current.Data = s.Version+1, bytes.Clone(s.Data)
	current.extend(idle)
	return nil
}

// Keep implements [SessionStore].
func (m *Memory) Keep(ctx context.Context, key string, idle time.Duration) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sessions[key]
	if s == nil {
		return ErrNoSession
	}
	s.extend(idle)
	return nil
}

// Delete implements [SessionStore].
func (m *Memory) Delete(ctx context.Context, key string) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	s := m.sessions[key]
	if s != nil {
		s.deadline = time.Time{}
	}
	m.mu.Unlock()
	if s != nil {
		s.expiry.Stop()
		m.remove(key, s)
	}
	return nil
}

// remove removes a session after its deadline, if the session is still stored under the key.
func (m *Memory) remove(key string, s *stored) {
	m.mu.Lock()
	known := m.sessions[key] == s && !time.Now().Before(s.deadline)
	if known {
		delete(m.sessions, key)
	}
	m.mu.Unlock()
	if known {
		m.notify(key)
	}
}

// notify reports a change. Watchers may call methods of m.
func (m *Memory) notify(key string) {
	m.mu.Lock()
	watchers := slices.Collect(maps.Keys(m.watchers))
	m.mu.Unlock()
	for _, changed := range watchers {
		(*changed)(key)
	}
}

// Watch implements [SessionStore].
func (m *Memory) Watch(changed func(key string)) (stop func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.watchers == nil {
		m.watchers = map[*func(string)]bool{}
	}
	m.watchers[&changed] = true
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.watchers, &changed)
	}
}

// Publish implements [Bus].
func (m *Memory) Publish(ctx context.Context, topic string, payload []byte) (receivers int, err error) {
	if err := context.Cause(ctx); err != nil {
		return 0, err
	}
	m.mu.Lock()
	subscribers := slices.Collect(maps.Keys(m.subscribers[topic]))
	m.mu.Unlock()
	for _, receive := range subscribers {
		(*receive)(payload)
	}
	return len(subscribers), nil
}

// Subscribe implements [Bus].
func (m *Memory) Subscribe(ctx context.Context, topic string, receive func(payload []byte)) (stop func(), err error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.subscribers == nil {
		m.subscribers = map[string]map[*func([]byte)]bool{}
	}
	if m.subscribers[topic] == nil {
		m.subscribers[topic] = map[*func([]byte)]bool{}
	}
	m.subscribers[topic][&receive] = true
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.subscribers[topic], &receive)
		if len(m.subscribers[topic]) == 0 {
			delete(m.subscribers, topic)
		}
	}, nil
}
