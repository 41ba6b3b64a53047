package question

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/form"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

const (
	// maxPerRun bounds the questions of a run, maxOpen the open questions of an app, and those
	// without a run, and maxBytes the text of each question, because a person reads them.
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
	program string // that answers sampling requests, or ""
	sample  SampleFunc
	given   Answers // answers before persons do; nil for none
}

// Answers answer questions before persons see them, such as the file of --answers. They must be
// safe for concurrent use.
type Answers interface {
	// Elicit returns nil to leave an elicitation to persons.
	Elicit(p *mcp.ElicitRequestParams) *mcp.ElicitResult
	// Sample returns false to leave a sampling request to persons.
	Sample(p *mcp.CreateMessageParams) (*mcp.CreateMessageResult, bool, error)
}

// A SampleFunc returns an answer to a sampling request.
type SampleFunc func(ctx context.Context, p *mcp.CreateMessageParams) (*mcp.CreateMessageResult, error)

// SampleWith lets persons request the answers of a program to sampling requests. A person sees
// each answer before it is sent.
func (d *Desk) SampleWith(program string, sample SampleFunc) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.program, d.sample = program, sample
}

// AnswerWith makes a answer first. The pages show the answered questions. It must be called before
// servers ask.
func (d *Desk) AnswerWith(a Answers) { d.given = a }

// byAnswers ends the word for an answer that no person gave.
const byAnswers = " by the file of --answers"

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
	if d.given != nil {
		if r := d.given.Elicit(p); r != nil {
			return r, d.add(q.close(words[r.Action] + byAnswers))
		}
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
	if d.given != nil {
		if r, ok, err := d.given.Sample(p); ok {
			action := mcp.ElicitAccept
			if err != nil {
				action = mcp.ElicitDecline
			}
			return r, cmp.Or(d.add(q.close(words[action]+byAnswers)), err)
		}
	}
	a, err := d.ask(ctx, q)
	switch {
	case err != nil:
		return nil, err
	case a.action != mcp.ElicitAccept:
		return nil, mcp.Errorf(driver.CodeUserRejected, "the user refused the sampling request")
	case a.result != nil:
		return a.result, nil
	}
	return &mcp.CreateMessageResult{Role: mcp.RoleAssistant, Content: []mcp.ContentBlock{mcp.Text(a.text)},
		Model: "human", StopReason: "endTurn"}, nil
}

// ErrRefused reports that a person refused a request of an app.
var ErrRefused = errors.New("the person refused")

// Allow shows the request of an app in q, and waits for the person of its origin. It returns
// [ErrRefused] after a refusal.
func (d *Desk) Allow(ctx context.Context, q *Question) error {
	if q.Call != nil {
		q.size = len(q.Call.Arguments)
	}
	a, err := d.ask(ctx, q)
	if err == nil && a.action != mcp.ElicitAccept {
		err = ErrRefused
	}
	return err
}

// Answer sets the functions of options that answer questions. from returns the origin of a question.
func (d *Desk) Answer(o *mcp.ClientOptions, from func(ctx context.Context) Origin) {
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
	ctx, cancel := context.WithCancel(ctx)
	var drafts sync.WaitGroup
	defer drafts.Wait()
	defer cancel()
	for {
		select {
		case a := <-q.answer:
			return a, nil
		case n := <-q.drafting:
			drafts.Go(func() { d.draft(ctx, q, n) })
		case <-ctx.Done():
			d.withdraw(func(other *Question) bool { return other.ID == q.ID })
			return nil, context.Cause(ctx)
		}
	}
}

// draft runs the program and adds its answer to the question.
func (d *Desk) draft(ctx context.Context, q *Question, n int) {
	result, err := q.sample(ctx, q.sampling)
	done := &Draft{Number: n, result: result}
	if err != nil {
		done.Problem = err.Error()
	} else {
		done.Text = describe(result.Content)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if at := slices.IndexFunc(d.all, func(o *Question) bool { return o.ID == q.ID && o.Answer == "" }); at >= 0 {
		changed := d.all[at].changed()
		changed.Draft = done
		d.all[at] = changed
		d.notify()
	}
}

// add adds a question. It returns an error if too many questions are open, or the text is too
// long.
func (d *Desk) add(q *Question) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	isRun, same := q.Run != 0 && q.App == 0, 0
	for _, other := range d.all {
		if other.Run == q.Run && other.App == q.App && (isRun || other.Answer == "") {
			same++
		}
	}
	switch {
	case q.size > maxBytes:
		return refusal("the question has %d bytes: must have at most %d", q.size, maxBytes)
	case isRun && same >= maxPerRun:
		return refusal("the run asked %d questions already: may ask at most %d", same, maxPerRun)
	case !isRun && same >= maxOpen:
		return refusal("%d questions wait for an answer already: at most %d may wait", same, maxOpen)
	}
	d.last++
	q.ID, q.Asked = d.last, time.Now()
	if q.isSampling {
		q.Program, q.sample = d.program, d.sample
	}
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

func refusal(format string, args ...any) error {
	return mcp.Errorf(mcp.CodeInvalidRequest, "refused: "+format, args...)
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

// Of returns the open and the answered questions of the server in a run, or the open questions of
// an app of the run, the oldest first.
func (d *Desk) Of(run, app int) []*Question {
	return d.find(func(q *Question) bool { return q.belongsTo(run, app) && (app == 0 || q.Answer == "") })
}

// Open returns the open questions that a person may answer, the oldest first.
func (d *Desk) Open(person string) []*Question {
	return d.find(func(q *Question) bool { return q.Answer == "" && q.isFor(person) })
}

func (q *Question) isFor(person string) bool { return q.Run == 0 || q.Person == person }

// Withdraw closes the open questions of the server in a run that ended, or of an app of the run.
func (d *Desk) Withdraw(run, app int) {
	d.withdraw(func(q *Question) bool { return q.belongsTo(run, app) })
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
	if !form.Pressed(posted) && words[action] == "" && action != actionDraft && action != actionSend {
		return nil, page.Problem(http.StatusBadRequest, "invalid_answer",
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
		return nil, page.Problem(http.StatusConflict, "question_closed", "the question is closed already: %s", word)
	}
	q := d.all[at]
	if action == actionDraft {
		return d.beginDraft(at)
	}
	a, edited, err := q.read(action, posted)
	switch {
	case err != nil:
		return nil, err
	case a == nil:
		changed := q.changed()
		changed.Form = edited
		d.all[at] = changed
	default:
		d.all[at] = q.close(q.word(a.action))
		q.answer <- a // buffered, and sent once: an answered question is refused above
	}
	d.notify()
	return d.all[at], nil
}

// Actions of a person about the answer of a program.
const (
	actionDraft mcp.ElicitAction = "draft" // requests the answer
	actionSend  mcp.ElicitAction = "send"  // sends the answer that the page shows
)

// beginDraft requests the answer of the program, unless it is running. The caller holds the mutex.
func (d *Desk) beginDraft(at int) (*Question, error) {
	q := d.all[at]
	if q.Program == "" {
		return nil, page.Problem(http.StatusBadRequest, "invalid_answer", "no program answers this question")
	}
	n := 1
	if q.Draft != nil {
		if q.Draft.IsRunning {
			return q, nil
		}
		n += q.Draft.Number
	}
	changed := q.changed()
	changed.Draft = &Draft{Number: n, IsRunning: true}
	d.all[at] = changed
	q.drafting <- n // buffered, and a draft at a time
	d.notify()
	return changed, nil
}
