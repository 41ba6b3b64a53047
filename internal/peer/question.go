package peer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// A Question is a request to the peer, from [Table.Ask] to its response or [Question.Withdraw].
type Question struct {
	// ID is the id of the request.
	ID jsonrpc.ID

	table  *Table
	answer chan *jsonrpc.Message // buffered (1); closed without a message when the table hangs up
}

// Ask adds a question under the id of its request. The caller then sends the request and calls
// Wait, or withdraws the question.
func (t *Table) Ask(id jsonrpc.ID) (*Question, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ask(id, cmp.Or(t.MaxQuestions, DefaultMaxQuestions))
}

// Offer is like [Table.Ask] for a question that can be delayed: it leaves a quarter of the places
// to questions that cannot. If no place is free, the error is ErrTooManyQuestions, and freed is
// closed when the next question ends.
func (t *Table) Offer(id jsonrpc.ID) (q *Question, freed <-chan struct{}, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	places := cmp.Or(t.MaxQuestions, DefaultMaxQuestions)
	q, err = t.ask(id, places-places/4)
	if errors.Is(err, ErrTooManyQuestions) {
		if t.freed == nil {
			t.freed = make(chan struct{})
		}
		freed = t.freed
	}
	return q, freed, err
}

// ask adds a question if there are fewer than the given number. The caller holds the lock.
func (t *Table) ask(id jsonrpc.ID, places int32) (*Question, error) {
	switch {
	case t.hungUp != nil:
		return nil, t.hungUp
	case t.questions[id] != nil:
		return nil, fmt.Errorf("a request with id %s is waiting for a response already", id)
	case len(t.questions) >= int(places):
		return nil, ErrTooManyQuestions
	}
	q := &Question{ID: id, table: t, answer: make(chan *jsonrpc.Message, 1)}
	if t.questions == nil {
		t.questions = map[jsonrpc.ID]*Question{}
	}
	t.questions[id] = q
	return q, nil
}

// drop removes a question and closes freed. The caller holds the lock.
func (t *Table) drop(id jsonrpc.ID) {
	delete(t.questions, id)
	if t.freed != nil {
		close(t.freed)
		t.freed = nil
	}
}

// Wait waits for the response and returns it. The error is the cause of ctx or that of
// [Table.Hangup]. Wait must be called at most once.
func (q *Question) Wait(ctx context.Context) (*jsonrpc.Message, error) {
	select {
	case m, ok := <-q.answer:
		if !ok {
			return nil, q.table.HungUp()
		}
		return m, nil
	case <-ctx.Done():
		q.Withdraw()
		return nil, context.Cause(ctx)
	}
}

// Withdraw removes a question. A later response to it is ignored.
func (q *Question) Withdraw() {
	q.table.mu.Lock()
	defer q.table.mu.Unlock()
	q.table.drop(q.ID)
}

// Answer delivers a response to its question, and reports whether there is such a question. A
// question accepts one response.
func (t *Table) Answer(response *jsonrpc.Message) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.questions[response.ID]
	if q == nil {
		if response = mistyped(response); t.questions[response.ID] == nil {
			return false
		}
		q = t.questions[response.ID]
	}
	t.drop(response.ID)
	q.answer <- response
	return true
}

// mistyped returns an error response for the request with a numeric id if the id of the response is
// the same number as a string, because the server will send no other response. Else it returns
// response.
func mistyped(response *jsonrpc.Message) *jsonrpc.Message {
	id := response.ID.String()
	number, err := strconv.ParseInt(strings.Trim(id, `"`), 10, 64)
	if err != nil {
		return response
	}
	return &jsonrpc.Message{ID: jsonrpc.IntID(number), Error: &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest,
		Message: "the id of the response is the string " + id + ", and the id of the request is the number"}}

}

// Waiting returns the ids of the waiting questions.
func (t *Table) Waiting() []jsonrpc.ID {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Keys(t.questions))
}

// Hangup fails all waiting and later questions, because no response can arrive any more. The
// first cause is kept.
func (t *Table) Hangup(cause error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.hungUp != nil {
		return
	}
	t.hungUp = cause
	for id, q := range t.questions {
		t.drop(id)
		close(q.answer)
	}
}

// HungUp returns the cause of [Table.Hangup], or nil.
func (t *Table) HungUp() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.hungUp
}
