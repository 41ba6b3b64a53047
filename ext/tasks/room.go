package tasks

import (
	"context"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// A usage is what tasks take of a store.
type usage struct {
	tasks int
	bytes int64
}

func (u usage) and(more usage) usage { return usage{u.tasks + more.tasks, u.bytes + more.bytes} }

func (u usage) without(less usage) usage { return usage{u.tasks - less.tasks, u.bytes - less.bytes} }

// A reservation is the room for a task that is not stored yet.
type reservation struct {
	manager *Server
	owner   string
	size    usage
	once    sync.Once
}

// release returns the room back, once the task is stored or given up. It may be called again.
func (r *reservation) release() {
	r.once.Do(func() {
		m := r.manager
		m.mu.Lock()
		defer m.mu.Unlock()
		m.reservedAll = m.reservedAll.without(r.size)
		if m.reserved[r.owner] = m.reserved[r.owner].without(r.size); m.reserved[r.owner].tasks == 0 {
			delete(m.reserved, r.owner)
		}
	})
}

// claimRoom reserves room if there is some beside what is reserved already.
func (s *Server) claimRoom(r *reservation, own, all usage) *mcp.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if full := s.full(own.and(s.reserved[r.owner]).and(r.size), all.and(s.reservedAll).and(r.size)); full != nil {
		return full
	}
	s.reserved[r.owner] = s.reserved[r.owner].and(r.size)
	s.reservedAll = s.reservedAll.and(r.size)
	return nil
}

// full says which bound is passed if an owner, and all owners together, have so much.
func (s *Server) full(own, all usage) *mcp.Error {
	switch {
	case own.tasks > s.opts.MaxPerPrincipal:
		return errFull("too many tasks: wait until some have expired")
	case own.bytes > s.opts.MaxBytesPerPrincipal:
		return errFull("the tasks take too much room: wait until some have expired")
	case all.tasks > s.opts.MaxTasks:
		return errFull("the server has too many tasks")
	case all.bytes > s.opts.MaxBytes:
		return errFull("the tasks of the server take too much room")
	}
	return nil
}

// reserve makes sure that there is room for one more task of a caller.
func (s *Server) reserve(ctx context.Context, req *mcp.Request) (*reservation, error) {
	r := &reservation{manager: s, owner: req.Principal.Key(), size: usage{1, int64(len(req.Params))}}
	ctx, cancel := detached(ctx)
	defer cancel()
	own, all, err := s.used(ctx, r.owner)
	if err != nil {
		return nil, err
	}
	if s.claimRoom(r, own, all) == nil {
		return r, nil
	}
	if s.full(own.and(r.size), all.and(r.size)) != nil {
		if _, err := s.store.DeleteExpired(ctx, time.Now(), maxDelete); err != nil {
			return nil, err
		}
		if own, all, err = s.used(ctx, r.owner); err != nil {
			return nil, err
		}
		if full := s.full(own.and(r.size), all.and(r.size)); full != nil {
			return nil, full
		}
	}
	// It is others who are about to store tasks that may leave no room. What they have stored already, and not released, was
	// counted twice.
	s.storing.Lock()
	defer s.storing.Unlock()
	if own, all, err = s.used(ctx, r.owner); err != nil {
		return nil, err
	}
	if full := s.claimRoom(r, own, all); full != nil {
		return nil, full
	}
	return r, nil
}

// used returns what is stored, of an owner and of all.
func (s *Server) used(ctx context.Context, owner string) (own, all usage, err error) {
	if own.tasks, own.bytes, err = s.store.Count(ctx, owner); err != nil {
		return own, all, err
	}
	all.tasks, all.bytes, err = s.store.CountAll(ctx)
	return own, all, err
}
