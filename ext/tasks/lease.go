package tasks

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// leaseTime is the default of Options.Lease: long enough for a restart or a failover of the store.
	leaseTime = time.Minute
	// minLease and maxLease limit Options.Lease. A server renews a lease at most once a second, and
	// stores may delete a lease after a day.
	minLease, maxLease = 6 * time.Second, time.Hour
	// watchInterval is the time between two searches for changes by other servers.
	watchInterval = time.Second
	// failurePause is how long calls share an error of the store instead of trying in turn: short for
	// a person, and long enough for all calls that waited.
	failurePause = time.Second
	// maxVersions is the number of tasks whose versions are read at once.
	maxVersions = 1000
)

// errLeaseLost is the cause of a run whose task another server may run. It is an [mcp.ErrShutdown],
// because the function of a tool must do the same in both cases.
var errLeaseLost = fmt.Errorf("the server lost its lease, and another server may run the task: %w", mcp.ErrShutdown)

// A lease is the lease of a server in a [SharedStore]. The server's mutex guards it.
type lease struct {
	holder       string            // empty without a lease
	began, until time.Time         // until: when the server stops its runs unless it renews the lease
	holders      []string          // of all leases at the last renewal
	ended        bool              // a lease ended, so there may be tasks to recover
	waiting      bool              // tasks must be recovered after the time of a lease
	renewal      *time.Timer       // nil before the first lease
	watcher      *time.Timer       // nil unless other servers hold leases
	versions     map[string]uint64 // of tasks that are watched, as far as the server knows them
}

// renewInterval returns the time between two renewals of a lease.
func (s *Server) renewInterval() time.Duration { return s.opts.Lease / 6 }

// ownTime returns how long a server relies on its lease after it was renewed: its runs then end
// within the rest of the lease.
func (s *Server) ownTime() time.Duration { return s.opts.Lease - s.renewInterval() }

// join requests a lease if the server shares its store and lacks a lease. A server joins before it
// changes a task or waits for changes.
func (s *Server) join(ctx context.Context) error {
	if !s.lacksLease() {
		return nil
	}
	_, err := s.withLease(ctx, func(context.Context) ([]string, error) { return nil, nil })
	return err
}

// holders returns the holders of all leases; none if the store is not shared. A server holds its
// lease before it holds a task. So if holders, called after a task was read, lacks the holder of
// the task, the lease of the task is over.
func (s *Server) holders(ctx context.Context) ([]string, error) {
	if s.shared == nil {
		return nil, nil
	}
	return s.withLease(ctx, s.renew)
}

// withLease requests a lease if the server lacks a lease, and calls use. Concurrent calls wait for each
// other, and share an error for a time. If ctx ends, withLease returns, and its attempt continues.
func (s *Server) withLease(ctx context.Context, use func(context.Context) ([]string, error)) ([]string, error) {
	select {
	case s.leasing <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	var holders []string
	attempt := make(chan error, 1)
	go func() { // ends after storeTimeout at the latest; leave waits for it
		defer func() { <-s.leasing }()
		if time.Since(s.failed) >= failurePause {
			ctx, cancel := storeContext(ctx)
			defer cancel()
			if s.failure = s.request(ctx); s.failure == nil {
				holders, s.failure = use(ctx)
			}
			if s.failure != nil && !errors.Is(s.failure, ErrLeaseLost) {
				s.failed = time.Now()
			}
		}
		attempt <- s.failure
	}()
	select {
	case err := <-attempt:
		return holders, err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// request requests a lease if the server lacks a lease. The caller holds leasing.
func (s *Server) request(ctx context.Context) error {
	if !s.lacksLease() {
		return nil
	}
	holder, now := rand.Text(), time.Now()
	if err := s.shared.Hold(ctx, holder, s.opts.Lease); err != nil {
		return fmt.Errorf("request a lease: %w", err)
	}
	s.mu.Lock()
	s.lease.holder, s.lease.began, s.lease.until = holder, now, now.Add(s.ownTime())
	if s.lease.renewal == nil {
		s.lease.renewal = time.AfterFunc(s.renewInterval(), s.tick)
	}
	s.mu.Unlock()
	_, err := s.renew(ctx)
	return err
}

// isLost reports whether no server runs a task that is working and does not run here.
func (s *Server) isLost(ctx context.Context, j *job) (bool, error) {
	s.mu.Lock()
	own, known := j.Holder == s.lease.holder, slices.Contains(s.lease.holders, j.Holder)
	s.mu.Unlock()
	switch {
	case own, j.Holder == "":
		return true, nil
	case known:
		return false, nil
	}
	holders, err := s.holders(ctx)
	return err == nil && s.hasEnded(j, holders), err
}

// hasEnded reports whether no server runs a task that is working and does not run here, given the
// holders of all leases. If the store lost its leases, the holder may run the task for the time of a
// lease. A queued run can be taken over at any time, because its server changes the task before it
// starts the run.
func (s *Server) hasEnded(j *job, holders []string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &s.lease
	switch {
	case slices.Contains(holders, j.Holder):
		return j.Holder == l.holder
	case !j.Started, j.Holder == "", time.Since(l.began) >= s.opts.Lease:
		return true
	}
	l.waiting = true
	return false
}

func (s *Server) lacksLease() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shared != nil && s.lease.holder == "" && !s.closed
}

// renew renews the lease and returns the holders of all leases. The caller holds leasing.
func (s *Server) renew(ctx context.Context) ([]string, error) {
	s.mu.Lock()
	holder := s.lease.holder
	s.mu.Unlock()
	if holder == "" {
		return nil, errLeaseLost
	}
	now := time.Now()
	holders, err := s.shared.Renew(ctx, holder, s.opts.Lease)
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &s.lease
	switch {
	case err == nil:
		l.ended = l.ended || slices.ContainsFunc(l.holders, func(h string) bool { return !slices.Contains(holders, h) })
		if time.Since(l.began) >= s.opts.Lease {
			l.ended, l.waiting = l.ended || l.waiting, false
		}
		l.holders, l.until = holders, now.Add(s.ownTime())
		if len(holders) > 1 && l.watcher == nil && !s.closed {
			l.versions = map[string]uint64{}
			l.watcher = time.AfterFunc(watchInterval, s.watch)
		}
	case errors.Is(err, ErrLeaseLost), !time.Now().Before(l.until):
		l.holder, l.holders, l.ended = "", nil, true
		for _, r := range s.runs {
			s.stop(r, errLeaseLost)
		}
	}
	return holders, err
}

// tick, called by a timer, renews the lease and recovers the tasks of servers whose lease ended.
func (s *Server) tick() {
	s.leasing <- struct{}{}
	ctx, cancel := context.WithTimeout(context.Background(), s.renewInterval())
	if _, err := s.renew(ctx); err != nil && !errors.Is(err, errLeaseLost) { // known to be lost
		s.log.Error("tasks: the lease could not be renewed", "error", err)
	}
	cancel()
	s.mu.Lock()
	recovers := s.lease.ended && !s.closed
	if recovers {
		s.lease.ended = false
		s.active.Add(1)
	}
	switch {
	case s.lease.holder != "":
		s.lease.renewal.Reset(min(s.renewInterval(), time.Until(s.lease.until)))
	case !s.closed:
		s.lease.renewal.Reset(s.renewInterval())
	}
	s.mu.Unlock()
	<-s.leasing
	if !recovers {
		return
	}
	defer s.active.Done()
	if err := s.Recover(s.base); err != nil {
		s.log.Error("tasks: the tasks of another server could not be taken over; trying again", "error", err)
		s.recoverLater()
	}
}

// leave ends the lease of a closed server. A young lease lasts until all other servers saw
// it, because they recover its tasks when they miss it.
func (s *Server) leave() {
	s.leasing <- struct{}{}
	defer func() { <-s.leasing }()
	s.mu.Lock()
	l := &s.lease
	holder, rest := l.holder, time.Duration(0)
	if len(l.holders) > 1 {
		rest = max(0, 2*s.renewInterval()-time.Since(l.began))
	}
	l.holder = ""
	for _, timer := range []*time.Timer{l.renewal, l.watcher} {
		if timer != nil {
			timer.Stop()
		}
	}
	s.mu.Unlock()
	if holder == "" {
		return
	}
	ctx, cancel := storeContext(context.Background())
	defer cancel()
	if _, err := s.shared.Renew(ctx, holder, rest); err != nil {
		s.log.Error("tasks: the lease could not be ended, and ends later", "error", err)
	}
}

// watch, called by a timer, looks for changes by other servers of the tasks that run here or that
// listeners wait for.
func (s *Server) watch() {
	s.mu.Lock()
	if s.closed || len(s.lease.holders) <= 1 {
		s.lease.watcher, s.lease.versions = nil, nil
		s.mu.Unlock()
		return
	}
	s.active.Add(1)
	ids := slices.AppendSeq(s.changes.ids(), maps.Keys(s.runs))
	known := maps.Clone(s.lease.versions)
	s.mu.Unlock()
	defer s.active.Done()
	slices.Sort(ids)
	ids = slices.Compact(ids)
	for chunk := range slices.Chunk(ids, maxVersions) {
		versions, err := s.shared.Versions(s.base, chunk)
		if err != nil {
			break // tick logs that the store fails
		}
		for i, id := range chunk {
			if versions[i] > known[id] && s.changedElsewhere(id) {
				s.saw(id, versions[i])
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.lease.versions, func(id string, _ uint64) bool {
		_, watched := slices.BinarySearch(ids, id)
		return !watched
	})
	if s.lease.watcher != nil && !s.closed {
		s.lease.watcher.Reset(watchInterval)
	}
}

// saw records the version of a task that the server changed or notified its listeners of.
func (s *Server) saw(id string, version uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease.versions != nil {
		s.lease.versions[id] = max(s.lease.versions[id], version)
	}
}

// changedElsewhere stops the run of a task that another server ended or took over, and notifies the
// listeners of the task. It returns false if the task cannot be read.
func (s *Server) changedElsewhere(id string) bool {
	s.mu.Lock()
	r := s.runs[id]
	s.mu.Unlock()
	if r != nil {
		// The lock of the task is held meanwhile, so the run is stored.
		j, err := s.change(s.base, r.owner, id, func(*job, time.Time) error { return errUnchanged })
		if err != nil {
			return false
		}
		if !j.heldBy(r) {
			cause := errLeaseLost
			switch {
			case j.Cancelled:
				cause = mcp.ErrCancelled
			case j.Done:
				cause = errExpired
			}
			s.mu.Lock()
			s.stop(r, cause)
			s.mu.Unlock()
		}
	}
	s.changes.notify(id, false)
	return true
}
