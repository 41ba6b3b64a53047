package legacy

import (
	"context"
	"encoding/json"
	"runtime/debug"
	"sync"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// maxCachedRoots limits the roots that a session keeps between requests, in bytes. It is as much as
// the session keeps of the client's capabilities; larger answers are asked for each time.
const maxCachedRoots = maxDeclared

// sessionRoots caches the answer of a client to roots/list. Only a client that declared
// roots.listChanged is cached: the answer of another client may change without a notification.
type sessionRoots struct {
	announces bool // the client declared roots.listChanged, and no other process is told; fixed
	calling   bool // Config.RootsChanged is being called; guarded by mu

	mu      sync.Mutex   // guards the fields below
	changes int32        // notifications so far
	answer  *rootsAnswer // nil if unknown
}

// A rootsAnswer is an answer that is not cached yet, with the number of changes before its
// request was sent.
type rootsAnswer struct {
	result  json.RawMessage // in the modern form
	changes int32
}

// cached returns the cached answer, or nil, and the number of changes so far.
func (r *sessionRoots) cached() (answer json.RawMessage, changes int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.answer == nil {
		return nil, r.changes
	}
	return r.answer.result, r.changes
}

// store caches an answer that the core accepted, unless the roots changed since it was
// asked for. a may be nil.
func (r *sessionRoots) store(a *rootsAnswer) {
	if a == nil || !r.announces || len(a.result) > maxCachedRoots {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.changes == a.changes {
		r.answer = a
	}
}

// rootsChanged drops the cached answer. It returns the call of [Config.RootsChanged], unless a call
// is in progress, which is repeated then: a client that sends many notifications occupies a single
// goroutine.
//
// Spec: client/roots#root-list-changes (2025-11-25)
func (s *Session) rootsChanged(ctx context.Context) Work {
	r := &s.roots
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes++
	r.answer = nil
	if s.cfg.RootsChanged == nil || r.calling {
		return nil
	}
	r.calling = true
	return func(respond func(*jsonrpc.Message)) {
		for reported := int32(0); s.rootsUnreported(&reported); {
			s.reportRoots(ctx)
		}
		respond(nil)
	}
}

func (s *Session) reportRoots(ctx context.Context) {
	defer func() {
		if value := recover(); value != nil {
			s.cfg.logger().ErrorContext(ctx, "mcp: panic recovered",
				"in", "RootsChanged", "value", value, "stack", string(debug.Stack()))
		}
	}()
	s.cfg.RootsChanged(ctx)
}

// rootsUnreported reports whether there were changes after those that the caller reported, and
// sets their number.
func (s *Session) rootsUnreported(reported *int32) bool {
	r := &s.roots
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calling = *reported != r.changes
	*reported = r.changes
	return r.calling
}
