package explore

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	stdjson "encoding/json"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/content"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/form"
	"github.com/patchbay-mcp/patchbay/jsonschema"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// A question is an elicitation or a sampling request of a server, which a person answers in the page
// of the run. It is immutable: a change of the state replaces it.
type question struct {
	ID      int
	Run     int
	Server  string
	Message string
	Form    *form.Form // of a form
	schema  stdjson.RawMessage
	URL     *url.URL // of a page to visit
	Warning string   // about the host of the page
	// Messages and System are the conversation of a sampling request.
	Messages []questionMessage
	System   string

	Answer string // the answer in a word; "" while the question is open
	answer chan *answer
}

// A questionMessage is a message of a conversation.
type questionMessage struct{ Role, Text string }

// An answer is the answer of a person.
type answer struct {
	action  mcp.ElicitAction
	content stdjson.RawMessage // of a form
	text    string             // of a sampling request
}

// scope distinguishes the fields of the question from the fields of other forms of the page.
func (q *question) scope() string { return fmt.Sprintf("q%d-%d", q.Run, q.ID) }

func (q *question) fragment() page.Fragment {
	return page.Fragment{ID: fmt.Sprintf("question-%d-%d", q.Run, q.ID), Part: "question", Data: q}
}

// IsSampling reports whether the person answers as the language model.
func (q *question) IsSampling() bool { return q.Form == nil && q.URL == nil }

// edit replaces a question that is not answered by a changed copy.
func (s *runState) edit(id int, change func(q *question)) {
	s.Questions = slices.Clone(s.Questions)
	for i, q := range s.Questions {
		if q.ID == id && q.Answer == "" {
			changed := *q
			change(&changed)
			s.Questions[i] = &changed
		}
	}
}

// answered notes the answer of a question in a word, unless it is answered.
func (s *runState) answered(id int, word string) { s.edit(id, func(q *question) { q.Answer = word }) }

// maxQuestions bounds the questions of a run, and maxQuestionBytes the text of each: a person reads them.
const maxQuestions, maxQuestionBytes = 50, 256 << 10

// show adds a question to the page. It returns an error if the server asks more than a person answers.
func (r *run) show(q *question, size int) (err error) {
	r.update(func(s *runState) {
		if len(s.Questions) == maxQuestions || size > maxQuestionBytes {
			err = mcp.Errorf(mcp.CodeInvalidRequest, "refused: a run has at most %d questions of %d bytes",
				maxQuestions, maxQuestionBytes)
			return
		}
		r.nextID++
		q.ID, q.Run, q.Server = r.nextID, r.ID, r.Server
		if q.Form != nil {
			q.Form.SetScope(q.scope())
		}
		s.Questions = append(slices.Clone(s.Questions), q)
	})
	return err
}

// ask shows a question and waits for the answer.
func (r *run) ask(ctx context.Context, q *question, size int) (*answer, error) {
	q.answer = make(chan *answer, 1)
	if err := r.show(q, size); err != nil {
		return nil, err
	}
	select {
	case a := <-q.answer:
		return a, nil
	case <-ctx.Done():
		r.update(func(s *runState) { s.answered(q.ID, "withdrawn") })
		return nil, context.Cause(ctx)
	}
}

// elicit answers an elicitation, in form mode or in URL mode. Spec: client/elicitation.
func (r *run) elicit(ctx context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
	q, size := &question{Message: p.Message}, len(p.Message)+len(p.URL)+len(p.RequestedSchema)
	if p.Mode == "url" {
		page, err := oauthclient.CheckPage(p.URL)
		if err != nil {
			q.URL, q.Answer = &url.URL{Opaque: p.URL}, "declined: "+err.Error()
			return &mcp.ElicitResult{Action: mcp.ElicitDecline}, r.show(q, size)
		}
		q.URL, q.Warning = page, p.HostWarning()
	} else {
		q.Form, q.schema = form.New(p.RequestedSchema), p.RequestedSchema
	}
	a, err := r.ask(ctx, q, size)
	if err != nil {
		return nil, err
	}
	return &mcp.ElicitResult{Action: a.action, Content: a.content}, nil
}

// sample answers a sampling request with the text of the person. Spec: client/sampling.
func (r *run) sample(ctx context.Context, p *mcp.CreateMessageParams) (*mcp.CreateMessageResult, error) {
	q, size := &question{System: p.SystemPrompt}, len(p.SystemPrompt)
	for _, m := range p.Messages {
		var texts []string
		for _, c := range m.Content {
			texts = append(texts, content.Describe(c))
		}
		q.Messages = append(q.Messages, questionMessage{string(m.Role), strings.Join(texts, "\n")})
		size += len(q.Messages[len(q.Messages)-1].Text)
	}
	a, err := r.ask(ctx, q, size)
	switch {
	case err != nil:
		return nil, err
	case a.action != mcp.ElicitAccept:
		return nil, mcp.Errorf(driver.CodeUserRejected, "the user refused the sampling request")
	}
	return &mcp.CreateMessageResult{Role: mcp.RoleAssistant, Content: []mcp.ContentBlock{mcp.Text(a.text)},
		Model: "human", StopReason: "endTurn"}, nil
}

// actions are the answers of a person, with the words for them.
var actions = map[mcp.ElicitAction]string{mcp.ElicitAccept: "accepted", mcp.ElicitDecline: "declined",
	mcp.ElicitCancel: "cancelled"}

// decide answers a question of the run with the posted values, or changes its form if a button of the
// form was pressed. The values of an invalid form stay in it, with the problems.
func (r *run) decide(id int, action mcp.ElicitAction, posted url.Values) error {
	if !form.Pressed(posted) && actions[action] == "" {
		return fmt.Errorf("invalid answer %q: must be accept, decline or cancel", action)
	}
	state := r.snapshot()
	at := slices.IndexFunc(state.Questions, func(q *question) bool { return q.ID == id && q.Answer == "" })
	if at < 0 {
		return errors.New("the question is answered or withdrawn")
	}
	q, a := state.Questions[at], &answer{action: action, text: posted.Get("text")}
	edited := q.Form
	if q.Form != nil && (action == mcp.ElicitAccept || form.Pressed(posted)) {
		var err error
		if edited, err = form.Read(q.schema, posted); err != nil {
			return err
		}
		edited.SetScope(q.scope())
		if form.Pressed(posted) {
			a = nil
		} else if a.content = checkedContent(edited, q.schema); a.content == nil {
			a = nil
		}
	}
	r.update(func(s *runState) {
		s.edit(id, func(q *question) {
			q.Form = edited
			if a != nil {
				q.Answer = actions[action]
				q.answer <- a // buffered, and sent once: edit skips answered questions
			}
		})
	})
	return nil
}

// checkedContent returns the text of a valid form. Otherwise it returns nil, and the form contains the
// problems.
func checkedContent(f *form.Form, schema stdjson.RawMessage) stdjson.RawMessage {
	text, err := f.JSON()
	if !f.Root.CheckFormats() || err != nil {
		return nil
	}
	compiled, err := jsonschema.Compile(schema)
	if err != nil {
		return text // the client refuses it
	}
	text = compiled.ApplyDefaults(text)
	if err := compiled.Validate(text); err != nil {
		f.Mark(err)
		return nil
	}
	return text
}
