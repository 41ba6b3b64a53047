package question

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/form"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

const (
	// maxPerRun bounds the questions of a run, maxOpen the open questions without a run, and
	// maxBytes the text of each question, because a person reads them.
	maxPerRun, maxOpen, maxBytes = 50, 50, 256 << 10
	// maxKept bounds the answered questions, which the pages of runs still show.
	maxKept = 2000
)

// A Desk holds the questions of servers until persons answer them. The zero Desk is ready to use.
// It is safe for concurrent use.
type Desk struct {
	mu      sync.Mutex // guards the fields below
	last    int        // ID
	all     []*Question
	changed func()
}

// Notify makes the desk call changed after each change.
func (d *Desk) Notify(changed func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.changed = changed
}

// Elicit asks an elicitation, in form mode or in URL mode, and waits for the answer.
func (d *Desk) Elicit(ctx context.Context, o Origin, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
	q, err := ofElicitation(p)
	q.Origin = o
	if err != nil {
		return &mcp.ElicitResult{Action: mcp.ElicitDecline}, d.add(q.close("declined: " + err.Error()))
	}
	a, err := d.ask(ctx, q)
	if err != nil {
		return nil, err
	}
	return &mcp.ElicitResult{Action: a.action, Content: a.content}, nil
}

// Sample asks for the answer to a sampling request, and waits for it. The person answers as the
// model.
func (d *Desk) Sample(ctx context.Context, o Origin, p *mcp.CreateMessageParams) (*mcp.CreateMessageResult, error) {
	q := ofSampling(p)
	q.Origin = o
	a, err := d.ask(ctx, q)
	switch {
	case err != nil:
		return nil, err
	case a.action != mcp.ElicitAccept:
		return nil, mcp.Errorf(driver.CodeUserRejected, "the user refused the sampling request")
	}
	return &mcp.CreateMessageResult{Role: mcp.RoleAssistant, Content: []mcp.ContentBlock{mcp.Text(a.text)},
		Model: "human", StopReason: "endTurn"}, nil
}

// Answer sets the functions of options that answer questions, for the options of a client whose
// questions belong to no run.
func (d *Desk) Answer(o *mcp.ClientOptions) {
	from := func(ctx context.Context) Origin { return Origin{Server: host.ServerFrom(ctx)} }
	o.Elicit = func(ctx context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
		return d.Elicit(ctx, from(ctx), p)
	}
	o.ElicitURL = o.Elicit
	o.Sample = func(ctx context.Context, p *mcp.CreateMessageParams) (*mcp.CreateMessageResult, error) {
		return d.Sample(ctx, from(ctx), p)
	}
}

// ask adds a question and waits for its answer.
func (d *Desk) ask(ctx context.Context, q *Question) (*answer, error) {
	q.answer = make(chan *answer, 1)
	if err := d.add(q); err != nil {
		return nil, err
	}
	select {
	case a := <-q.answer:
		return a, nil
	case <-ctx.Done():
		d.withdraw(func(other *Question) bool { return other.ID == q.ID })
		return nil, context.Cause(ctx)
	}
}

// add adds a question. It returns an error if too many questions are open, or the text is too
// long.
func (d *Desk) add(q *Question) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	same, most := 0, maxPerRun
	if q.Run == 0 {
		most = maxOpen
	}
	for _, other := range d.all {
		if other.Run == q.Run && (q.Run != 0 || other.Answer == "") {
			same++
		}
	}
	if same >= most || q.size > maxBytes {
		return mcp.Errorf(mcp.CodeInvalidRequest, "refused: a run has at most %d questions of %d bytes", most, maxBytes)
	}
	d.last++
	q.ID, q.Asked = d.last, time.Now()
	if q.Form != nil {
		q.Form.SetScope(q.scope())
	}
	d.all = append(d.all, q)
	if len(d.all) > maxKept {
		if at := slices.IndexFunc(d.all, func(q *Question) bool { return q.Answer != "" }); at >= 0 {
			d.all = slices.Delete(slices.Clone(d.all), at, at+1)
		}
	}
	d.notify()
	return nil
}

// notify reports a change. The caller holds the mutex.
func (d *Desk) notify() {
	if d.changed != nil {
		d.changed()
	}
}

// find returns the questions that match, the oldest first.
func (d *Desk) find(match func(q *Question) bool) (all []*Question) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, q := range d.all {
		if match(q) {
			all = append(all, q)
		}
	}
	return all
}

// Of returns the open and the answered questions of a run, the oldest first.
func (d *Desk) Of(run int) []*Question {
	return d.find(func(q *Question) bool { return q.Run == run && run != 0 })
}

// Open returns the open questions that a person may answer, the oldest first.
func (d *Desk) Open(person string) []*Question {
	return d.find(func(q *Question) bool { return q.Answer == "" && q.isFor(person) })
}

func (q *Question) isFor(person string) bool { return q.Run == 0 || q.Person == person }

// Withdraw closes the open questions of a run that ended.
func (d *Desk) Withdraw(run int) {
	d.withdraw(func(q *Question) bool { return q.Run == run && run != 0 })
}

func (d *Desk) withdraw(match func(q *Question) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, q := range d.all {
		if q.Answer == "" && match(q) {
			d.all[i] = q.close("withdrawn")
		}
	}
	d.notify()
}

// Decide answers a question as a person with the posted values, or changes its form if a button of
// the form was pressed. The values of an invalid form stay in it, with the problems. Decide returns
// the question as it is now, or a [*gateway.Problem].
func (d *Desk) Decide(id int, person string, action mcp.ElicitAction, posted url.Values) (*Question, error) {
	if !form.Pressed(posted) && words[action] == "" {
		return nil, problem(http.StatusBadRequest, "invalid_answer",
			"invalid answer %.20q: must be accept, decline or cancel", string(action))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	at := slices.IndexFunc(d.all, func(q *Question) bool { return q.ID == id && q.isFor(person) })
	if at < 0 || d.all[at].Answer != "" {
		word := "withdrawn"
		if at >= 0 {
			word = d.all[at].Answer
		}
		return nil, problem(http.StatusConflict, "question_closed", "the question is closed already: %s", word)
	}
	q := d.all[at]
	a, edited, err := q.read(action, posted)
	switch {
	case err != nil:
		return nil, problem(http.StatusBadRequest, "invalid_form", "%v", err)
	case a == nil:
		changed := *q
		changed.Form = edited
		d.all[at] = &changed
	default:
		d.all[at] = q.close(words[action])
		q.answer <- a // buffered, and sent once: an answered question is refused above
	}
	d.notify()
	return d.all[at], nil
}

func problem(status int, code, format string, args ...any) error {
	return &gateway.Problem{Status: status, Code: code, Detail: fmt.Sprintf(format, args...)}
}
