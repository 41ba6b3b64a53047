package peer

import (
	"cmp"
	"context"
	"errors"
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
	return t.ask(id, cmp.Or(t.MaxQuestions, DefaultMaxQuestions))
}

// Offer is [Table.Ask] for a question that can wait for its turn: it leaves a quarter of the places to those that cannot.
// When there is none for it, it gives ErrTooManyQuestions, and freed is closed as soon as a question has gone.
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

// ask enters a question while there are fewer than so many. The caller holds the lock.
func (t *Table) ask(id jsonrpc.ID, places int) (*Question, error) {
	switch {
	case t.hungUp != nil:
		return nil, t.hungUp
	case t.questions[id] != nil:
		return nil, fmt.Errorf("question %s waits already", id)
	case len(t.questions) >= places:
		return nil, ErrTooManyQuestions
	}
	q := &Question{ID: id, table: t, answer: make(chan *jsonrpc.Message, 1)}
	if t.questions == nil {
		t.questions = map[jsonrpc.ID]*Question{}
	}
	t.questions[id] = q
	return q, nil
}

// drop takes a question out, and tells who waits for its place. The caller holds the lock.
func (t *Table) drop(id jsonrpc.ID) {
	delete(t.questions, id)
	if t.freed != nil {
		close(t.freed)
		t.freed = nil
	}
}

// Wait returns the response to the question. The error is the cause of ctx, or that of [Table.Hangup]. It is called once.
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

// Withdraw returns a question up. An answer that still comes belongs to nothing.
func (q *Question) Withdraw() {
	q.table.mu.Lock()
	defer q.table.mu.Unlock()
	q.table.drop(q.ID)
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
	t.drop(response.ID)
	q.answer <- response
	return true
}

// Alone returns the id of the question that waits, if there is exactly one.
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

// Waiting returns the ids of the questions that wait.
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
		t.drop(id)
		close(q.answer)
	}
}

// HungUp returns the cause of [Table.Hangup], and nil before that.
func (t *Table) HungUp() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.hungUp
}
