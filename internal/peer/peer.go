// Package peer keeps track of what is in flight on one stream or session.
//
// A [Table] holds the calls of the other side that are being worked on, and the questions that were put to the other side
// and wait for an answer. It finds them by id, which is how cancellations and answers arrive. It knows ids and nothing of
// methods, starts no goroutines, and changes only under its one lock.
package peer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"sync"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// Bounds of a table whose own are zero.
const (
	// DefaultMaxCalls is the number of calls at once. Each holds a goroutine and the handler's resources, and no client
	// that people use comes near it.
	DefaultMaxCalls = 256
	// DefaultMaxQuestions is the number of questions that wait at once. Most of them wait for a person, who can look at
	// a few.
	DefaultMaxQuestions = 64
)

// ErrTooManyQuestions says that [Table.MaxQuestions] questions wait already.
var ErrTooManyQuestions = errors.New("too many questions wait for an answer")

// codeBusy is the code for a call that may succeed a little later. retryAfter, its data, is a guess: a table cannot know
// how long handlers take.
const codeBusy = -32000

var retryAfter = json.RawMessage(`{"retryAfterMs":1000}`)

// A Table is what is in flight. The zero Table is empty and ready; its bounds are not changed once it is in use. All
// methods are safe for concurrent use, and none waits for anything.
type Table struct {
	MaxCalls     int // zero means DefaultMaxCalls
	MaxQuestions int // zero means DefaultMaxQuestions

	mu        sync.Mutex           // guards the fields below
	single    *Call                // one of the calls that can be found; most sessions never have two
	calls     map[jsonrpc.ID]*Call // the others
	running   int                  // calls that have not ended: those that can be found and the cancelled ones
	questions map[jsonrpc.ID]*Question
	freed     chan struct{} // closed when a question goes; nil while nobody waits for that
	closed    error         // why no call may begin
	hungUp    error         // why no question may be asked
}

// A Call is a request of the other side, from [Table.Begin] or [Table.Enter] to [Call.End].
type Call struct {
	table     *Table
	id        jsonrpc.ID
	ctx       LazyContext
	cancelled bool // by its id; guarded by table.mu
	ended     bool // guarded by table.mu
}

// Begin enters a call under its id. The error is one to answer with: the id is in use already, too many calls are
// running, or the table is closed. Whoever begins a call ends it.
func (t *Table) Begin(ctx context.Context, id jsonrpc.ID) (*Call, *jsonrpc.Error) {
	c := new(Call)
	if err := t.Enter(ctx, c, id); err != nil {
		return nil, err
	}
	return c, nil
}

// Enter is [Table.Begin] for a zero Call that is part of something else, to which it belongs for good.
func (t *Table) Enter(ctx context.Context, c *Call, id jsonrpc.ID) *jsonrpc.Error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closed != nil:
		return &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "the connection is closing"}
	case t.find(id) != nil:
		return &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "a request with this id is in progress"}
	case t.running >= cmp.Or(t.MaxCalls, DefaultMaxCalls):
		return &jsonrpc.Error{Code: codeBusy, Message: "too many requests in progress", Data: retryAfter}
	}
	c.table, c.id, c.ctx.Context = t, id, ctx
	t.add(c)
	t.running++
	return nil
}

// find returns the call with that id, or nil. The caller holds the lock, as for add and remove.
func (t *Table) find(id jsonrpc.ID) *Call {
	if t.single != nil && t.single.id == id {
		return t.single
	}
	return t.calls[id]
}

func (t *Table) add(c *Call) {
	if t.single == nil {
		t.single = c
		return
	}
	if t.calls == nil {
		t.calls = map[jsonrpc.ID]*Call{}
	}
	t.calls[c.id] = c
}

func (t *Table) remove(c *Call) {
	if t.single == c {
		t.single = nil
		return
	}
	delete(t.calls, c.id)
}

// Context is what the call is served under. It ends when the call is cancelled, with the cause given there, and when it
// has ended.
func (c *Call) Context() context.Context { return &c.ctx }

// Over reports whether the other side wants to hear nothing more of the call, because it has cancelled it or because the
// call has ended.
func (c *Call) Over() bool {
	c.table.mu.Lock()
	defer c.table.mu.Unlock()
	return c.cancelled || c.ended
}

// End takes the call out of the table, once it is done and before it is answered. It reports whether to answer: not if
// the other side has cancelled it.
func (c *Call) End() (answer bool) {
	t := c.table
	t.mu.Lock()
	t.running--
	c.ended = true
	answer = !c.cancelled
	if answer {
		t.remove(c)
	}
	t.mu.Unlock()
	c.ctx.End(nil)
	return answer
}

// Cancel ends the context of a call with a cause, because the other side asked for it. It reports whether there is such
// a call. A cancelled call no longer uses up its id, but counts until it ends.
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

// Close ends the context of every call, and hangs up. Calls end and are answered as ever, but none begins any more.
func (t *Table) Close(cause error) {
	t.Hangup(cause)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed != nil {
		return
	}
	t.closed = cause
	if t.single != nil {
		t.single.ctx.End(cause)
	}
	for _, c := range t.calls {
		c.ctx.End(cause)
	}
}
