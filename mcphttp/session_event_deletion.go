package mcphttp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/limitedlog"
	"github.com/patchbay-mcp/patchbay/replica"
)

// Limits of the calls of [EventStore.EndSession].
const (
	// endSessionTimeout bounds a call, and all calls that are left at a shutdown.
	endSessionTimeout = 10 * time.Second
	// maxDeletions is how many calls run at once: a store over a network answers this many well.
	maxDeletions = 16
	// maxQueuedDeletions is as many as the default limit of sessions. A queue that is full is that
	// of a store that stopped working.
	maxQueuedDeletions = 10_000
)

// sessionEventLog stores the events of sessions, and deletes those of ended sessions on goroutines
// of its own: the end of a session must not wait for the store.
type sessionEventLog struct {
	EventStore
	records replica.SessionStore // deleted with the events; may be nil
	opts    *SessionOptions
	log     limitedLog
	pending waitCounter // deletions
	ctx     context.Context
	cancel  context.CancelFunc

	mu      sync.Mutex // guards the fields below
	queue   []sessionKey
	workers int
}

func newSessionEventLog(opts *Options) *sessionEventLog {
	l := &sessionEventLog{EventStore: opts.Sessions.Events, opts: &opts.Sessions}
	l.log = limitedLog{limitedlog.Log{Logger: opts.Logger, Summary: "mcphttp: more failures of the event store",
		What: "failures"}}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// delete deletes the events of a session that ended, soon.
func (l *sessionEventLog) delete(key sessionKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == maxQueuedDeletions {
		l.fail(errors.New("too many sessions have ended"))
		return
	}
	l.pending.add()
	l.queue = append(l.queue, key)
	if l.workers < maxDeletions {
		l.workers++
		go l.deleteQueued() // ends when the queue is empty
	}
}

func (l *sessionEventLog) deleteQueued() {
	for {
		l.mu.Lock()
		if len(l.queue) == 0 {
			l.workers--
			l.mu.Unlock()
			return
		}
		key := l.queue[0]
		l.queue = l.queue[1:]
		l.mu.Unlock()
		if err := l.deleteNow(key); err != nil {
			l.fail(err)
		}
		l.pending.done()
	}
}

func (l *sessionEventLog) deleteNow(key sessionKey) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	ctx, cancel := context.WithTimeout(l.ctx, endSessionTimeout)
	defer cancel()
	if l.records != nil {
		err = l.records.Delete(ctx, l.opts.key(key.session))
	}
	return errors.Join(err, l.EndSession(ctx, key.session, key.principal))
}

func (l *sessionEventLog) fail(err error) {
	l.log.error(context.Background(), "mcphttp: events of an ended session not deleted", err)
}

// drain waits until the events of all ended sessions are deleted. It gives up when ctx ends, and
// after endSessionTimeout.
func (l *sessionEventLog) drain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, endSessionTimeout)
	defer cancel()
	err := l.pending.wait(ctx)
	if err == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for range l.queue {
		l.pending.done()
	}
	l.queue = nil
	l.cancel() // those in progress
	l.fail(err)
	return fmt.Errorf("delete the events of ended sessions: %w", err)
}
