package forward

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/peer"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

const (
	// maxSuspended limits the calls that wait for the answers of clients, and
	// maxSuspendedPerPrincipal the suspended calls of a principal. Each holds a request at the
	// server, and asks a user: more of them than a user can answer are an error or an attack.
	maxSuspended             = 64
	maxSuspendedPerPrincipal = 16
	// maxRounds limits how often the client of a call is asked, so that a server that never stops
	// asking fails.
	maxRounds = 32
	// maxOpen and maxOpenBytes limit the open questions of a call, and the size of their params.
	maxOpen      = 64
	maxOpenBytes = 1 << 20
	// maxAskingTime is how long after its start a call may still ask. The time that clients take to
	// answer does not count for its other time limits.
	maxAskingTime = time.Hour
	// maxLines limits the log lines per minute about messages that reach no client.
	maxLines = 6
)

// A question waits for the answer of a client.
type question struct {
	key     string // unique within the call; "" before the client is asked
	arrived int64  // increases from question to question
	method  string
	params  json.RawMessage
	answer  chan answer // buffered (1)
}

type answer struct {
	result json.RawMessage
	err    *jsonrpc.Error
}

// Ask asks the client of the call that a question of the server belongs to, and returns the answer.
//
// A question belongs to a call if it arrives on the stream of the call, or if it belongs to a task
// whose result the call requests. Once several principals made calls, any other question is
// refused, because it may be about the work of any principal. If all calls were made by a single
// principal, the question goes to a call in progress that accepts it and is not waiting for its
// client. If there are several such calls, the newest call is asked, and the table becomes serial
// for a while, so that the next question is unambiguous; a question about roots does not make the
// table serial, because roots do not depend on the call. A client that did not declare the
// capability is not asked.
func (t *Table) Ask(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *jsonrpc.Error) {
	c, q, fault := t.ask(ctx, method, params)
	if t.Observe == nil {
		return t.await(ctx, c, q, fault, method, params)
	}
	if c != nil && c.sent != nil {
		ctx = peer.WithValuesOf(ctx, c.sent)
	}
	answer := func(ctx context.Context, _ string, _ json.RawMessage) (json.RawMessage, error) {
		raw, fault := t.await(ctx, c, q, fault, method, params)
		if fault != nil {
			return nil, fault
		}
		return raw, nil
	}
	raw, err := t.Observe(ctx, method, params, answer)
	fault, _ = errors.AsType[*jsonrpc.Error](err)
	return raw, fault
}

// await returns the answer to a question that ask has attributed.
func (t *Table) await(
	ctx context.Context, c *Call, q *question, fault *jsonrpc.Error, method string, params json.RawMessage,
) (json.RawMessage, *jsonrpc.Error) {
	switch {
	case fault != nil:
		return nil, fault
	case c == nil && q != nil:
		a := <-q.answer
		return a.result, a.err
	case c == nil:
		if t.Default != nil {
			if result, err, ok := t.Default(ctx, method, params); ok {
				return result, err
			}
		}
		return nil, t.unattributed(ctx, method)
	}
	t.mu.Lock()
	limits := c.limits
	t.mu.Unlock()
	if limits != nil {
		limits.Pause()
		defer limits.Resume()
	}
	select {
	case a := <-q.answer:
		return a.result, a.err
	case <-c.done:
	case <-ctx.Done():
	}
	t.withdraw(c, q)
	select {
	case a := <-q.answer:
		return a.result, a.err
	default:
		a := unanswered(method)
		return a.result, a.err
	}
}

// unattributed returns the error for a question that belongs to no call, and logs it.
func (t *Table) unattributed(ctx context.Context, method string) *jsonrpc.Error {
	t.mu.Lock()
	several := t.several
	t.mu.Unlock()
	reason := "requires a request in progress that it belongs to"
	if several {
		reason += ", sent on its stream: several users have used this connection"
		t.warn(ctx, "mcp: a question of the server was refused: several users have used the connection, and "+
			"nothing relates the question to a request; "+connectEach, "method", method)
	}
	return &jsonrpc.Error{Code: wire.CodeMethodNotFound, Message: method + ": " + reason}
}

// connectEach says how messages that name no request can reach their user.
const connectEach = `give each user a connection of its own, in a gateway with "share": "caller"`

// warn logs a warning, at most maxLines per minute.
func (t *Table) warn(ctx context.Context, text string, args ...any) {
	if t.Logger != nil && t.lines.Allow(time.Now(), maxLines) {
		t.Logger.WarnContext(ctx, text, args...)
	}
}

// ask adds a question to the call that it belongs to. Without a call, a question that it returns is
// its answer.
func (t *Table) ask(ctx context.Context, method string, params json.RawMessage) (*Call, *question, *jsonrpc.Error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c, exact := callOf(ctx)
	if task := peer.Task(ctx); task != "" && (!exact || c == nil) {
		c, exact = t.ofTask(task), true
	}
	if !exact && !t.several {
		c = t.attribute(method, params)
	}
	if c == nil {
		return nil, nil, nil
	}
	q := &question{method: method, params: params, answer: make(chan answer, 1), arrived: peer.ArrivalFrom(ctx).Number}
	if c.abandoned || !c.mayAsk || !accepts(c.capabilities, method, params) {
		q.answer <- unasked(method)
		return nil, q, nil
	}
	if why := t.limit(c, len(params)); why != "" {
		return nil, nil, wire.Busy(method + ": " + why)
	}
	c.open = append(c.open, q)
	c.openBytes += len(params)
	peer.Wake(c.asked)
	return c, q, nil
}

// ofTask returns the oldest request for the result of a task, or nil. The lock is held.
func (t *Table) ofTask(id string) *Call {
	for _, c := range t.calls {
		if c.task == id {
			return c
		}
	}
	return nil
}

// attribute returns the call, of the only principal, that a question probably belongs to, or nil if
// no call can be asked. The caller must hold t.mu.
func (t *Table) attribute(method string, params []byte) *Call {
	// The newest call, a call that accepts the question, and a call that waits for its client.
	var last, found, waiting *Call
	candidates, suspended := 0, 0
	for _, c := range t.calls {
		switch {
		case !c.mayAsk || c.task != "":
			continue
		case c.askable && !c.running:
			waiting = c
			suspended++
			continue
		}
		last = c
		if accepts(c.capabilities, method, params) {
			found = c
			candidates++
		}
	}
	switch {
	case candidates > 1 && method != wire.MethodRootsList: // the roots of a client are the same for all calls
		t.makeSerial()
	case found == nil && last == nil && suspended == 1:
		return waiting // the call that waits for its client asks another question
	case found == nil:
		return last
	}
	return found
}

// limit returns why a call may not be asked any more, or "". The lock is held.
func (t *Table) limit(c *Call, size int) string {
	switch {
	case len(c.used) >= maxRounds:
		return "the request has asked for input too often"
	case len(c.open) >= maxOpen || c.openBytes+size > maxOpenBytes:
		return "the request has too many open questions"
	case time.Since(c.began) > maxAskingTime:
		return "the request is in progress for too long"
	case len(c.open) > 0 || c.state != "":
		return "" // it counts already
	}
	all, own := 0, 0
	count := func(other *Call) {
		all++
		if other.principal == c.principal {
			own++
		}
	}
	for _, other := range t.suspended {
		count(other)
	}
	for _, other := range t.calls {
		if other.state == "" && len(other.open) > 0 {
			count(other)
		}
	}
	if own >= maxSuspendedPerPrincipal || all >= maxSuspended {
		return "too many requests wait for the answers of clients"
	}
	return ""
}

// withdraw removes a question that needs no answer any more.
func (t *Table) withdraw(c *Call, q *question) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.close(q)
}

// close removes a question from the open ones. The lock of the table is held.
func (c *Call) close(q *question) {
	if i := slices.Index(c.open, q); i >= 0 {
		c.open = slices.Delete(c.open, i, i+1)
		c.openBytes -= len(q.params)
	}
}

// unasked is the answer for a client that cannot be asked: as if the user had dismissed the
// question, or had no roots.
func unasked(method string) answer {
	switch method {
	case wire.MethodElicitationCreate:
		return answer{result: json.RawMessage(`{"action":"cancel"}`)}
	case wire.MethodRootsList:
		return answer{result: json.RawMessage(`{"roots":[]}`)}
	}
	return answer{err: &jsonrpc.Error{Code: wire.CodeUserRejected,
		Message: method + ": the client of this request does not support it"}}
}

// unanswered is the answer for a client that did not answer in time.
func unanswered(method string) answer {
	if method == wire.MethodElicitationCreate {
		return unasked(method)
	}
	return answer{err: &jsonrpc.Error{Code: wire.CodeInternalError, Message: method + ": the client did not answer"}}
}

// isAskable reports whether a client with these capabilities can answer some questions.
func isAskable(capabilities []byte) bool {
	return has(capabilities, "elicitation") || has(capabilities, "sampling") || has(capabilities, "roots")
}

// accepts reports whether a client with these capabilities can answer a question.
func accepts(capabilities []byte, method string, params []byte) bool {
	switch method {
	case wire.MethodRootsList:
		return has(capabilities, "roots")
	case wire.MethodSamplingCreateMessage:
		return has(capabilities, "sampling") && (!has(params, "tools") || has(capabilities, "sampling", "tools"))
	case wire.MethodElicitationCreate:
		if mode, _ := jsonscan.Get(params, "mode"); string(mode) == `"url"` {
			return has(capabilities, "elicitation", "url")
		}
		return has(capabilities, "elicitation", "form") ||
			has(capabilities, "elicitation") && !has(capabilities, "elicitation", "url")
	}
	return false
}

func has(object []byte, path ...string) bool {
	for _, key := range path {
		value, ok := jsonscan.Get(object, key)
		if !ok || jsonscan.Kind(value) == 'n' {
			return false
		}
		object = value
	}
	return true
}
