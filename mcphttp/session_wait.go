package mcphttp

import (
	"context"
	"net/http"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// A client that waits for the result of a task may do so for hours, and what it waits for goes on without it. So, unlike
// any other request, this one is given up when its client has gone and does not come back: else each client that
// crashes while it waits would keep its session for as long as the task lasts.

const (
	// presenceCheck is how often it is looked whether the client has come back.
	presenceCheck = time.Minute
	// maxAbsence is how many times in a row it may not be there: for longer its stream is not kept.
	maxAbsence = 10
)

// leaveWith ends the call when its client stays away. Stop is called when the call is over.
//
// Spec: basic/utilities/tasks#retrieving-task-results (2025-11-25): the client may drop the stream at any time.
func (p *sessionPost) leaveWith(r *http.Request) (stop func()) {
	ctx, cancel := context.WithCancelCause(p.ctx.Context)
	p.ctx.Context = ctx
	over, gone := make(chan struct{}), make(chan struct{})
	unwatch := context.AfterFunc(r.Context(), func() {
		defer close(gone)
		p.lost()
		if p.staysAway(over) {
			cancel(mcp.ErrDisconnected)
		}
	})
	return func() {
		close(over)
		if !unwatch() {
			<-gone
		}
		cancel(nil)
	}
}

// staysAway waits until the client has been away for too long, or the call is over.
func (p *sessionPost) staysAway(over <-chan struct{}) bool {
	check := time.NewTicker(presenceCheck)
	defer check.Stop()
	for absent := 0; absent < maxAbsence; {
		select {
		case <-check.C:
		case <-over:
			return false
		}
		if absent++; p.isBack() {
			absent = 0
		}
	}
	return true
}

// lost takes note that the connection of the POST is gone.
func (p *sessionPost) lost() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = true
	if p.stream != nil {
		p.leaveFirst()
	}
}

// leaveFirst takes the stream off the connection of the POST, which ends with it. The caller holds p.mu.
func (p *sessionPost) leaveFirst() {
	p.stream.detach(p.first)
	p.first.close()
}

// isBack reports whether the client reads the stream of the call on another connection.
func (p *sessionPost) isBack() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stream != nil && p.stream.conn.Load() != nil
}
