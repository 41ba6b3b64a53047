package forward

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/peer"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

const (
	// collectTime is how long a call collects further questions after the first. Servers that
	// ask several at once send them without a pause; a user does not notice the delay.
	collectTime = 15 * time.Millisecond
	// maxKeptResult limits a result that arrives while the client is asked.
	maxKeptResult = 1 << 20
	// cancelDelay is how long a server that was told that its questions are not answered may
	// take to end the request itself, before it is cancelled.
	cancelDelay = time.Second
)

var (
	errNotAnswered    = errors.New("the client did not answer in time")
	errResultTooLarge = &jsonrpc.Error{Code: wire.CodeInternalError, Message: fmt.Sprintf(
		"the request has run; its result has more than %d bytes and could not be kept for the client", maxKeptResult)}
	errUnknownState = invalid("invalid requestState: it is unknown or has expired; the request may have run")
	errUsedState    = invalid("invalid requestState: it was used before; the request is in progress, " +
		"and its result goes to the client's earlier request: do not repeat it")
)

func invalid(format string, args ...any) *jsonrpc.Error {
	return &jsonrpc.Error{Code: wire.CodeInvalidParams, Message: fmt.Sprintf(format, args...)}
}

// wait waits for the result or questions. When ctx ends, it cancels the call.
func (t *Table) wait(ctx context.Context, c *Call, r *Request) (json.RawMessage, error) {
	defer c.detach()
	defer c.Queue.Drain(ctx)
	stop := context.AfterFunc(ctx, func() { c.cancel(context.Cause(ctx)) })
	for {
		select {
		case <-c.done:
			stop()
			if c.err != nil {
				return nil, c.err
			}
			return requiredOf(c.capabilities, c.result)
		case <-c.asked:
		}
		timer := time.NewTimer(collectTime)
		select {
		case <-c.done:
			timer.Stop()
			continue
		case <-timer.C:
		}
		if !r.Lasts && !stop() {
			continue // ctx ended, and so does the call
		}
		if result := t.suspend(c, r.Timeout); result != nil {
			return result, nil
		}
		if !r.Lasts { // its questions were withdrawn
			stop = context.AfterFunc(ctx, func() { c.cancel(context.Cause(ctx)) })
		}
	}
}

// suspend suspends a call with open questions, and returns the result that asks them.
func (t *Table) suspend(c *Call, timeout time.Duration) json.RawMessage {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(c.open) == 0 || c.ended {
		return nil
	}
	c.state = rand.Text()
	if t.suspended == nil {
		t.suspended = map[string]*Call{}
	}
	t.suspended[c.state] = c
	state := c.state
	c.expiry = time.AfterFunc(timeout, func() { t.expire(state) })
	t.yield(c)
	b := []byte(`{"resultType":"input_required","inputRequests":{`)
	// They may overtake one another after they arrived.
	slices.SortStableFunc(c.open, func(p, q *question) int { return cmp.Compare(p.arrived, q.arrived) })
	for i, q := range c.open {
		if q.key == "" {
			c.questions++
			q.key = "q" + strconv.Itoa(c.questions)
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = q.append(b)
	}
	return append(jsonscan.AppendQuote(append(b, `},"requestState":`...), state), '}')
}

// append appends the question as a member of the object that asks the client. The id of an
// elicitation belongs to the connection with the server.
func (q *question) append(b []byte) []byte {
	b = append(jsonscan.AppendQuote(b, q.key), `:{"method":`...)
	b = jsonscan.AppendQuote(b, q.method)
	// Clients of the official Go SDK need the params.
	b = append(append(b, `,"params":{`...), bytes.TrimPrefix(Members(q.params, "elicitationId"), []byte{','})...)
	return append(b, '}', '}')
}

// expire ends a suspended call whose client did not come back: the server is told so, and cancelled
// if it does not end the request itself.
func (t *Table) expire(state string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.suspended[state]; c != nil {
		t.abandon(c)
	}
}

// abandon ends a suspended call. The lock is held.
func (t *Table) abandon(c *Call) {
	t.forget(c)
	c.abandoned = true
	for _, q := range c.open {
		q.answer <- unanswered(q.method)
	}
	c.open, c.openBytes = nil, 0
	if !c.ended {
		time.AfterFunc(cancelDelay, func() { c.cancel(errNotAnswered) })
	}
}

// Abandon ends the suspended calls of a caller that will not come back.
func (t *Table) Abandon(caller string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.suspended {
		if c.caller == caller {
			t.abandon(c)
		}
	}
}

// forget makes the state of a suspended call invalid. The lock is held.
func (t *Table) forget(c *Call) {
	c.expiry.Stop()
	delete(t.suspended, c.state)
	c.state = ""
}

// resume continues the suspended call of a state with the answers of its client. Questions that
// have no answer are asked again.
func (t *Table) resume(ctx context.Context, r *Request) (*Call, error) {
	state, _ := jsonscan.Unquote(r.State)
	c, open, err := t.find(state, r)
	if err != nil {
		return nil, err
	}
	answers, err := readAnswers(open, r.Answers) // without the lock: schemas may be large
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	if c.state != state { // another request was faster
		t.mu.Unlock()
		return nil, errUsedState
	}
	t.forget(c)
	c.used = append(c.used, state)
	t.mu.Unlock()
	c.attach(ctx, r)
	if err := t.enter(ctx, c, true); err != nil {
		c.cancel(err)
		c.detach()
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for q, result := range answers {
		if slices.Contains(c.open, q) {
			c.close(q)
			q.answer <- answer{result: result}
		}
	}
	if len(c.open) > 0 {
		peer.Wake(c.asked)
	}
	return c, nil
}

// find returns the suspended call of a state and the questions that its client was asked, if it
// belongs to the request.
func (t *Table) find(state string, r *Request) (*Call, []*question, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	owns := func(c *Call) bool {
		return c.principal == r.Principal && c.caller == r.Caller && c.method == r.Method && c.subject == r.Subject
	}
	if c := t.suspended[state]; c != nil && owns(c) {
		asked := slices.Clone(c.open)
		return c, slices.DeleteFunc(asked, func(q *question) bool { return q.key == "" }), nil
	}
	for _, c := range t.calls {
		if owns(c) && slices.Contains(c.used, state) {
			return nil, nil, errUsedState
		}
	}
	for _, c := range t.suspended {
		if owns(c) && slices.Contains(c.used, state) {
			return nil, nil, errUsedState
		}
	}
	return nil, nil, errUnknownState
}

// requiredOf returns a result as it is, or a result that asks without the ids of elicitations. The
// error is for a client that did not declare what it is asked: a server of the session era lists
// pages to visit in an error, whatever the capabilities are.
func requiredOf(capabilities, result []byte) (json.RawMessage, error) {
	if raw, _ := jsonscan.Get(result, "resultType"); string(raw) != `"input_required"` {
		return result, nil
	}
	requests, _ := jsonscan.Get(result, "inputRequests")
	b := []byte(`{"resultType":"input_required","inputRequests":{`)
	for key, request := range jsonscan.Members(requests) {
		raw, _ := jsonscan.Get(request, "method")
		q := question{key: string(key)}
		q.method, _ = jsonscan.Unquote(raw)
		q.params, _ = jsonscan.Get(request, "params")
		if !accepts(capabilities, q.method, q.params) {
			return nil, &jsonrpc.Error{Code: wire.CodeMissingCapability,
				Message: "the request requires that the client supports elicitation with URLs",
				Data:    json.RawMessage(`{"requiredCapabilities":{"elicitation":{"url":{}}}}`)}
		}
		if b[len(b)-1] == '}' {
			b = append(b, ',')
		}
		b = q.append(b)
	}
	return append(b, "}}"...), nil
}
