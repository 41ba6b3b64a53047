package tasks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// storeTimeout bounds a use of the store.
	storeTimeout = 30 * time.Second
	// maxConflicts is how many times a change is tried if another server changed the record since
	// it was read.
	maxConflicts = 8
)

var (
	// errUnknownTask is the error for a task that does not exist, belongs to another owner or
	// expired. It is the same for all three, so that it does not reveal which.
	errUnknownTask = mcp.Errorf(mcp.CodeInvalidParams, "params.taskId: unknown task, or it has expired")
	// errUncertain means that it is unknown whether a change was stored.
	errUncertain = errors.New("it is unknown whether the change was stored")
	// errUnchanged ends a change without effect.
	errUnchanged = errors.New("nothing to change")
)

// storeContext returns a context for uses of the store that does not end with the client's request:
// a client that disconnects must not interrupt a change halfway.
func storeContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
}

// read returns a job as stored, even if it expired.
func (s *Server) read(ctx context.Context, owner, id string) (*job, error) {
	r, err := s.readRecord(ctx, owner, id)
	if err != nil {
		return nil, err
	}
	return openJob(r)
}

func (s *Server) readRecord(ctx context.Context, owner, id string) (Record, error) {
	if !validID(id) {
		return Record{}, ErrUnknown
	}
	ctx, cancel := storeContext(ctx)
	defer cancel()
	return s.store.Get(ctx, owner, id)
}

// change applies step to a task, stores the result and notifies the task's subscribers. All changes
// of tasks go through it. If step returns an error, the job is not stored and change returns the
// error; for errUnchanged it returns the job and no error. Step may be called several times.
func (s *Server) change(ctx context.Context, owner, id string, step func(j *job, now time.Time) error) (*job, error) {
	if err := s.join(ctx); err != nil {
		return nil, err
	}
	lock := &s.locks[maphash.String(s.seed, id)%uint64(len(s.locks))]
	lock.Lock()
	defer lock.Unlock()
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
		case !slices.Contains(nextPhases[before], j.Phase):
			return nil, fmt.Errorf("a task cannot change from %s to %s", before, j.Phase)
		}
		j.Updated = now.UnixMilli()
		err = s.write(ctx, j)
		if errors.Is(err, ErrConflict) {
			continue
		}
		if err != nil {
			return nil, err
		}
		s.deadlines.update(j)
		s.saw(id, j.Version)
		s.changes.notify(id, false)
		return j, nil
	}
	return nil, fmt.Errorf("task %s: %w, %d times in a row", short(id), ErrConflict, maxConflicts)
}

// write stores a job that was read and changed. After an error that leaves open whether the change
// was stored, it reads the record to find out.
func (s *Server) write(ctx context.Context, j *job) error {
	r, err := j.encode()
	if err != nil {
		return err
	}
	ctx, cancel := storeContext(ctx)
	defer cancel()
	switch err = s.store.Update(ctx, r); {
	case err == nil:
	case errors.Is(err, ErrConflict), errors.Is(err, ErrUnknown):
		return err
	default:
		stored, readErr := s.store.Get(ctx, r.Owner, r.ID)
		if readErr != nil {
			return fmt.Errorf("%w: %w", errUncertain, err)
		}
		if stored.Version != r.Version+1 || !bytes.Equal(stored.Data, r.Data) {
			return err
		}
	}
	j.Done, j.Expires, j.Version = r.Done, r.Expires, r.Version+1
	return nil
}

func short(id string) string { return id[:min(len(id), 8)] }
