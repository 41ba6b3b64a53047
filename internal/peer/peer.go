// Package peer tracks the requests in progress on a stream or session, and their time limits.
//
// A [Table] holds the calls of the peer that are being served, and the questions to the peer that
// wait for a response. It finds them by id: cancellations and responses carry only that. A Table
// ignores methods, starts no goroutines, and is guarded by a single lock.
package peer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// Errors that callers test for with [errors.Is].
var (
	// ErrClosed is within every error that reports the end of a connection.
	ErrClosed = errors.New("mcp: connection closed")
	// ErrDisconnected reports that the other side ended the connection.
	ErrDisconnected = fmt.Errorf("%w: peer disconnected", ErrClosed)
)

// Default limits of a [Table].
const (
	// DefaultMaxCalls is the number of concurrent calls. Each uses a goroutine and the resources of
	// its handler. Clients with a human user stay far below it.
	DefaultMaxCalls = 256
	// DefaultMaxQuestions is the number of concurrent questions. Most of them wait for a user.
	DefaultMaxQuestions = 64
	// maxLasting is the number of concurrent calls with Lasts, such as streams of events. Each uses a
	// goroutine that waits. It limits the memory of a connection; extensions limit callers.
	maxLasting = 1024
)

// ErrTooManyQuestions reports that [Table.MaxQuestions] questions are waiting.
var ErrTooManyQuestions = errors.New("too many requests to the peer are waiting for a response")

// A Table holds the requests in progress. The zero Table is empty and ready. Its limits must not
// change after the first use. All methods are safe for concurrent use, and none blocks.
type Table struct {
	MaxCalls     int32 // zero means DefaultMaxCalls
	MaxQuestions int32 // zero means DefaultMaxQuestions

	mu        sync.Mutex           // guards the fields below
	only      *Call                // a call that began while there was no other; not in calls
	calls     map[jsonrpc.ID]*Call // without cancelled calls
	running   int32                // number of calls that did not end, including cancelled calls
	lasting   int32                // number of such calls with Lasts, which running does not count
	closed    bool                 // no call may begin
	questions map[jsonrpc.ID]*Question
	freed     chan struct{} // closed when a question ends; nil if no goroutine waits for that
	hungUp    error         // the reason why no question may begin
}

// A Call is a request of the peer, from [Table.Begin] or [Table.Enter] to [Call.End].
type Call struct {
	// Lasts exempts the call from [Table.MaxCalls], because it does not end by itself. It must not
	// change once the call began.
	Lasts bool

	table     *Table
	id        jsonrpc.ID
	ctx       LazyContext
	cancelled bool // by its id; guarded by table.mu
	ended     bool // guarded by table.mu
}

// Begin adds a call under its id. The error is to be sent as the response: the id is in use, too
// many calls are running, or the table is closed. The caller must call End.
func (t *Table) Begin(ctx context.Context, id jsonrpc.ID) (*Call, *jsonrpc.Error) {
	c := new(Call)
	if err := t.Enter(ctx, c, id); err != nil {
		return nil, err
	}
	return c, nil
}

// Enter is like [Table.Begin] for a zero Call that the caller allocated. The Call must not be
// reused.
func (t *Table) Enter(ctx context.Context, c *Call, id jsonrpc.ID) *jsonrpc.Error {
	t.mu.Lock()
	defer t.mu.Unlock()
	running, limit := &t.running, cmp.Or(t.MaxCalls, DefaultMaxCalls)
	if c.Lasts {
		running, limit = &t.lasting, maxLasting
	}
	switch {
	case t.closed:
		return &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "the connection is closing"}
	case t.find(id) != nil:
		return &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "a request with this id is in progress"}
	case *running >= limit:
		return wire.Busy("too many requests in progress")
	}
	c.table, c.id, c.ctx.Context = t, id, ctx
	*running++
	switch {
	case t.only == nil:
		t.only = c
		return nil
	case t.calls == nil:
		t.calls = map[jsonrpc.ID]*Call{}
	}
	t.calls[id] = c
	return nil
}

// find returns the call with an id, or nil. The caller must hold t.mu.
func (t *Table) find(id jsonrpc.ID) *Call {
	if t.only != nil && t.only.id == id {
		return t.only
	}
	return t.calls[id]
}

// remove removes a call that find returns. The caller must hold t.mu.
func (t *Table) remove(c *Call) {
	if t.only == c {
		t.only = nil
	} else {
		delete(t.calls, c.id)
	}
}

// all returns the calls. The caller must hold t.mu.
func (t *Table) all() []*Call {
	all := slices.Collect(maps.Values(t.calls))
	if t.only != nil {
		all = append(all, t.only)
	}
	return all
}

// Context returns the context to serve the call with. It ends when the call is cancelled, with that
// cause, and when the call ends.
func (c *Call) Context() context.Context { return &c.ctx }

// Over reports whether the call was cancelled or ended, so that no message may follow.
func (c *Call) Over() bool {
	c.table.mu.Lock()
	defer c.table.mu.Unlock()
	return c.cancelled || c.ended
}

// End removes the call from the table, when it is done and before the response is sent. It reports
// whether to send the response: not if the peer cancelled the call.
func (c *Call) End() (respond bool) {
	t := c.table
	t.mu.Lock()
	if c.Lasts {
		t.lasting--
	} else {
		t.running--
	}
	c.ended = true
	respond = !c.cancelled
	if respond {
		t.remove(c)
	}
	t.mu.Unlock()
	c.ctx.End(nil)
	return respond
}

// Cancel ends the context of a call with a cause, because the peer cancelled it. It reports
// whether the call exists. The id of a cancelled call may be reused, but the call counts until it
// ends.
func (t *Table) Cancel(id jsonrpc.ID, cause error) bool {
	t.mu.Lock()
	c := t.find(id)
	if c != nil {
		c.cancelled = true
		t.remove(c)
	}
	t.mu.Unlock()
	if c == nil {
		return false
	}
	c.ctx.End(cause)
	return true
}

// CancelAll is Cancel for all calls that were entered with the context, which is compared by
// identity. It returns their ids.
func (t *Table) CancelAll(ctx context.Context, cause error) (ids []jsonrpc.ID) {
	t.mu.Lock()
	var calls []*Call
	for _, c := range t.all() {
		if c.ctx.Context == ctx {
			c.cancelled = true
			t.remove(c)
			calls, ids = append(calls, c), append(ids, c.id)
		}
	}
	t.mu.Unlock()
	for _, c := range calls {
		c.ctx.End(cause)
	}
	return ids
}

// Close ends the context of every call, and calls Hangup. Calls still end and get responses, but no
// call may begin.
func (t *Table) Close(cause error) {
	t.Hangup(cause)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	t.closed = true
	for _, c := range t.all() {
		c.ctx.End(cause)
	}
}

// maxReason is the number of bytes of a cancellation's reason that are kept for the log.
const maxReason = 1 << 10

// ParseCancelled parses the params of notifications/cancelled: the id of the request, and the
// reason if there is one. It reports false for params without a valid id; such a notification is
// ignored.
//
// Spec: basic/patterns/cancellation#error-handling (2026-07-28)
func ParseCancelled(params []byte) (id jsonrpc.ID, reason string, ok bool) {
	if jsonscan.Kind(params) != '{' {
		return id, "", false
	}
	raw, ok := jsonscan.Get(params, "requestId")
	if !ok {
		return id, "", false
	}
	if err := id.UnmarshalJSON(raw); err != nil || id.IsZero() {
		return id, "", false
	}
	if raw, ok := jsonscan.Get(params, "reason"); ok && jsonscan.Kind(raw) == '"' {
		// An invalid reason does not invalidate the cancellation.
		reason, _ = jsonscan.Unquote(raw)
	}
	return id, strings.ToValidUTF8(reason[:min(len(reason), maxReason)], ""), true
}

// Wake sends to a channel that is buffered (1), unless it holds an element already.
func Wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// IsClosed reports whether a channel that carries no values is closed. A nil channel is not.
func IsClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// ClosedWithin waits until done is closed, or d passed. It reports whether done is closed.
func ClosedWithin(done <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}
