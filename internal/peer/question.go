package peer

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// A Question is a request to the other side, from [Table.Ask] until it is answered or withdrawn.
type Question struct {
	// ID is the id of the request.
	ID jsonrpc.ID

	table  *Table
	answer chan *jsonrpc.Message // holds one; closed without it when the table hangs up
}

// Ask enters a question under the id that its request will have. The caller then sends the request and waits for the
// answer, or withdraws the question.
func (t *Table) Ask(id jsonrpc.ID) (*Question, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.hungUp != nil:
		return nil, t.hungUp
	case t.questions[id] != nil:
		return nil, fmt.Errorf("question %s waits already", id)
	case len(t.questions) >= cmp.Or(t.MaxQuestions, DefaultMaxQuestions):
		return nil, ErrTooManyQuestions
	}
	q := &Question{ID: id, table: t, answer: make(chan *jsonrpc.Message, 1)}
	if t.questions == nil {
		t.questions = map[jsonrpc.ID]*Question{}
	}
	t.questions[id] = q
	return q, nil
}

// Wait gives the response to the question. The error is the cause of ctx, or that of [Table.Hangup]. It is called once.
func (q *Question) Wait(ctx context.Context) (*jsonrpc.Message, error) {
	select {
	case m, ok := <-q.answer:
		if !ok {
			return nil, q.table.hangupCause()
		}
		return m, nil
	case <-ctx.Done():
		q.Withdraw()
		return nil, context.Cause(ctx)
	}
}

// Withdraw gives a question up. An answer that still comes belongs to nothing.
func (q *Question) Withdraw() {
	q.table.mu.Lock()
	defer q.table.mu.Unlock()
	delete(q.table.questions, q.ID)
}

// Answer hands a response to the question that it answers, and reports whether there is one. Each question is answered
// once.
func (t *Table) Answer(response *jsonrpc.Message) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.questions[response.ID]
	if q == nil {
		return false
	}
	delete(t.questions, response.ID)
	q.answer <- response
	return true
}

// Alone gives the id of the question that waits, if there is exactly one.
func (t *Table) Alone() (id jsonrpc.ID, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.questions) == 1 {
		for id := range t.questions {
			return id, true
		}
	}
	return id, false
}

// Waiting gives the ids of the questions that wait.
func (t *Table) Waiting() []jsonrpc.ID {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Keys(t.questions))
}

// Hangup ends all waiting, because no answer can come any more, and lets no question be asked. The first cause stays.
func (t *Table) Hangup(cause error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.hungUp != nil {
		return
	}
	t.hungUp = cause
	for id, q := range t.questions {
		delete(t.questions, id)
		close(q.answer)
	}
}

func (t *Table) hangupCause() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.hungUp
}
