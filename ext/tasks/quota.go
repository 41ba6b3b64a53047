package tasks

import (
	"context"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// A usage is the number and the size of tasks in a store.
type usage struct {
	tasks int
	bytes int64
}

func (u usage) add(v usage) usage { return usage{u.tasks + v.tasks, u.bytes + v.bytes} }

func (u usage) sub(v usage) usage { return usage{u.tasks - v.tasks, u.bytes - v.bytes} }

// A reservation counts a task that is not stored yet against the limits.
type reservation struct {
	server *Server
	owner  string
	size   usage
	once   sync.Once
}

// release ends the reservation of a task that was stored or discarded. It is idempotent.
func (r *reservation) release() {
	r.once.Do(func() {
		s := r.server
		s.mu.Lock()
		defer s.mu.Unlock()
		s.reservedAll = s.reservedAll.sub(r.size)
		if s.reserved[r.owner] = s.reserved[r.owner].sub(r.size); s.reserved[r.owner].tasks == 0 {
			delete(s.reserved, r.owner)
		}
	})
}

// addReservation adds a reservation if the limits allow it, given the stored tasks.
func (s *Server) addReservation(r *reservation, own, all usage) *mcp.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkLimits(own.add(s.reserved[r.owner]).add(r.size), all.add(s.reservedAll).add(r.size)); err != nil {
		return err
	}
	s.reserved[r.owner] = s.reserved[r.owner].add(r.size)
	s.reservedAll = s.reservedAll.add(r.size)
	return nil
}

// checkLimits returns an error if the tasks of an owner, or of all owners, exceed a limit.
func (s *Server) checkLimits(own, all usage) *mcp.Error {
	switch {
	case own.tasks > s.opts.MaxPerPrincipal:
		return errBusy(sweepInterval, "you have too many tasks: wait until some have expired")
	case own.bytes > s.opts.MaxBytesPerPrincipal:
		return errBusy(sweepInterval, "your tasks are too large together: wait until some have expired")
	case all.tasks > s.opts.MaxTasks:
		return errBusy(sweepInterval, "the server has too many tasks")
	case all.bytes > s.opts.MaxBytes:
		return errBusy(sweepInterval, "the tasks of the server are too large together")
	}
	return nil
}

// reserve reserves room for another task of the caller, and deletes expired tasks if necessary.
func (s *Server) reserve(ctx context.Context, req *mcp.Request) (*reservation, error) {
	r := &reservation{server: s, owner: req.Principal.Key(), size: usage{1, int64(len(req.Params))}}
	ctx, cancel := storeContext(ctx)
	defer cancel()
	own, all, err := s.stored(ctx, r.owner)
	if err != nil {
		return nil, err
	}
	if s.addReservation(r, own, all) == nil {
		return r, nil
	}
	if s.checkLimits(own.add(r.size), all.add(r.size)) != nil {
		if _, err := s.store.DeleteExpired(ctx, time.Now(), maxDelete); err != nil {
			return nil, err
		}
		if own, all, err = s.stored(ctx, r.owner); err != nil {
			return nil, err
		}
		if err := s.checkLimits(own.add(r.size), all.add(r.size)); err != nil {
			return nil, err
		}
	}
	// Only reservations exceed the limits. Tasks that are stored already may be counted twice.
	s.creating.Lock()
	defer s.creating.Unlock()
	if own, all, err = s.stored(ctx, r.owner); err != nil {
		return nil, err
	}
	if err := s.addReservation(r, own, all); err != nil {
		return nil, err
	}
	return r, nil
}

// stored returns the space that the tasks of an owner, and of all owners, take in the store.
func (s *Server) stored(ctx context.Context, owner string) (own, all usage, err error) {
	if own.tasks, own.bytes, err = s.store.Count(ctx, owner); err != nil {
		return own, all, err
	}
	all.tasks, all.bytes, err = s.store.CountAll(ctx)
	return own, all, err
}
