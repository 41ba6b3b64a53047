package mcphttp

import (
	"context"
	"net/http"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// A request for the result of a task may last for hours, and the task does not need it. So unlike
// any other request it is canceled when its client has disconnected and does not resume. Otherwise
// every client that crashed while it waited would keep its session for as long as the task lasts.

const (
	// presenceInterval is the interval at which the server checks whether the client has resumed.
	presenceInterval = time.Minute
	// maxAbsences is the number of failed checks in a row after which the request is canceled. The
	// events of its stream are not stored for longer.
	maxAbsences = 10
)

// cancelOnAbsence cancels the call when its client stays disconnected. The caller calls stop when
// the call is over.
//
// Spec: basic/utilities/tasks#retrieving-task-results (2025-11-25): the client may drop the stream
// at any time.
func (p *sessionPost) cancelOnAbsence(r *http.Request) (stop func()) {
	ctx, cancel := context.WithCancelCause(p.ctx.Context)
	p.ctx.Context = ctx
	over, checked := make(chan struct{}), make(chan struct{})
	unregister := context.AfterFunc(r.Context(), func() {
		defer close(checked)
		p.disconnect()
		if p.staysAbsent(over) {
			cancel(mcp.ErrDisconnected)
		}
	})
	return func() {
		close(over)
		if !unregister() {
			<-checked
		}
		cancel(nil)
	}
}

// staysAbsent waits until the client has been disconnected for too long, or the call is over.
func (p *sessionPost) staysAbsent(over <-chan struct{}) bool {
	check := time.NewTicker(presenceInterval)
	defer check.Stop()
	for absences := 0; absences < maxAbsences; {
		select {
		case <-check.C:
		case <-over:
			return false
		}
		if absences++; p.isResumed() {
			absences = 0
		}
	}
	return true
}

// disconnect records that the connection of the POST is gone.
func (p *sessionPost) disconnect() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.disconnected = true
	if p.stream != nil {
		p.closeFirst()
	}
}

// closeFirst detaches the stream from the connection of the POST. The caller holds p.mu.
func (p *sessionPost) closeFirst() {
	p.stream.detach(p.first)
	p.first.interrupt()
	p.first.close()
}

// isResumed reports whether the client reads the stream of the call on another connection.
func (p *sessionPost) isResumed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stream != nil && p.stream.conn.Load() != nil
}
