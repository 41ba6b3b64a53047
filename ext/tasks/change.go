package tasks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// storeTime bounds one use of the store.
	storeTime = 30 * time.Second
	// maxConflicts is how often a change is tried again because the record has changed meanwhile, which can only be when
	// several managers use one store.
	maxConflicts = 8
)

var (
	// errUnknownTask is the answer for a task that does not exist, is another's or has expired: one text for all, so that
	// nobody learns which.
	errUnknownTask = mcp.Errorf(mcp.CodeInvalidParams, "params.taskId: unknown task, or it has expired")
	// errDoubt says that nobody knows whether a change was made.
	errDoubt = errors.New("the store does not say whether it has written")
	// errUnchanged ends a change that turns out to be none.
	errUnchanged = errors.New("nothing to change")
)

// detached returns a context for the store: a client that goes away must not leave half a step behind.
func detached(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), storeTime)
}

// read returns a job as the store has it, whether or not it has expired.
func (s *Server) read(ctx context.Context, owner, id string) (*job, error) {
	if !validID(id) {
		return nil, ErrUnknown
	}
	ctx, cancel := detached(ctx)
	defer cancel()
	r, err := s.store.Get(ctx, owner, id)
	if err != nil {
		return nil, err
	}
	return openJob(r)
}

// change is the one way from one state of a task to the next. It calls step with the job as it is, holds what step has made
// of it to the rules, writes it, and wakes who waits for it. If step gives an error, nothing is written, and change returns
// it; with errUnchanged it returns the job as it is, and no error. Step may be called several times.
func (s *Server) change(ctx context.Context, owner, id string, step func(j *job, now time.Time) error) (*job, error) {
	unlock := s.locks.lock(id)
	defer unlock()
	for range maxConflicts {
		j, err := s.read(ctx, owner, id)
		if err != nil {
			return nil, err
		}
		before := j.Phase
		now := time.Now().Truncate(time.Millisecond)
		switch err := step(j, now); {
		case errors.Is(err, errUnchanged):
			return j, nil
		case err != nil:
			return nil, err
		case !slices.Contains(follows[before], j.Phase):
			return nil, fmt.Errorf("a task cannot go from %s to %s", before, j.Phase)
		}
		j.Updated = now.UnixMilli()
		err = s.write(ctx, j)
		if errors.Is(err, ErrConflict) {
			continue
		}
		if err != nil {
			return nil, err
		}
		s.deadlines.set(j)
		s.watchers.wake(id)
		return j, nil
	}
	return nil, fmt.Errorf("task %s: %w, %d times in a row", short(id), ErrConflict, maxConflicts)
}

// write stores a job that was read and changed. When the store does not say whether it has, it is looked up.
func (s *Server) write(ctx context.Context, j *job) error {
	r, err := j.seal()
	if err != nil {
		return err
	}
	ctx, cancel := detached(ctx)
	defer cancel()
	err = s.store.Update(ctx, r)
	if err != nil && !errors.Is(err, ErrConflict) && !errors.Is(err, ErrUnknown) {
		now, again := s.store.Get(ctx, r.Owner, r.ID)
		if again != nil {
			return fmt.Errorf("%w: %w", errDoubt, err)
		}
		if now.Version != r.Version+1 || !bytes.Equal(now.Data, r.Data) {
			return err
		}
	}
	if err != nil && (errors.Is(err, ErrConflict) || errors.Is(err, ErrUnknown)) {
		return err
	}
	j.Done, j.Expires, j.Version = r.Done, r.Expires, r.Version+1
	return nil
}

// A keyed is a lock for each task that is in use.
type keyed struct {
	mu    sync.Mutex // guards the fields below
	locks map[string]*keyLock
}

type keyLock struct {
	mu    sync.Mutex
	users int // who hold it or wait for it
}

func (k *keyed) lock(key string) (unlock func()) {
	k.mu.Lock()
	if k.locks == nil {
		k.locks = map[string]*keyLock{}
	}
	l := k.locks[key]
	if l == nil {
		l = &keyLock{}
		k.locks[key] = l
	}
	l.users++
	k.mu.Unlock()
	l.mu.Lock()
	return func() {
		l.mu.Unlock()
		k.mu.Lock()
		defer k.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(k.locks, key)
		}
	}
}

// short is as much of an id as a log needs: the rest of it stays hard to guess.
func short(id string) string { return id[:min(len(id), 8)] }
