package cli

import (
	stdjson "encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// answers are what a user has written down before: see `patchbay help answers`. A nil pointer has none.
type answers struct {
	Elicitation []*answer `json:"elicitation"`
	Sampling    []*answer `json:"sampling"`
}

// An answer is one entry of the file.
type answer struct {
	Message string             `json:"message"` // a part of the question
	Field   string             `json:"field"`   // of the form
	Action  mcp.ElicitAction   `json:"action"`
	Content stdjson.RawMessage `json:"content"` // of a form
	Text    string             `json:"text"`    // of a model
	Model   string             `json:"model"`
	Result  *mcp.SampleResult  `json:"result"` // all of a model's answer

	used bool
}

// loadAnswers reads a file.
func loadAnswers(file string) (*answers, error) {
	data, err := readFile(file)
	if err != nil {
		return nil, err
	}
	a := &answers{}
	if err := json.Unmarshal(data, a, json.RejectUnknownMembers(true)); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for i, e := range a.Elicitation {
		if err := e.checkElicitation(); err != nil {
			return nil, fmt.Errorf("%s: elicitation %d: %w", file, i, err)
		}
	}
	for i, s := range a.Sampling {
		if err := s.checkSampling(); err != nil {
			return nil, fmt.Errorf("%s: sampling %d: %w", file, i, err)
		}
	}
	return a, nil
}

func (a *answer) checkElicitation() error {
	switch {
	case a == nil:
		return errors.New("it is null")
	case a.Text != "" || a.Model != "" || a.Result != nil:
		return errors.New("text, model and result are for sampling")
	case a.Content == nil && a.Action == "":
		return errors.New("it has neither content nor action")
	case a.Content != nil && jsonscan.Kind(a.Content) != '{':
		return errors.New("the content is not an object")
	}
	return a.checkAction()
}

func (a *answer) checkSampling() error {
	switch {
	case a == nil:
		return errors.New("it is null")
	case a.Content != nil || a.Field != "":
		return errors.New("content and field are for elicitation")
	case a.Text == "" && a.Result == nil && a.action() == mcp.ElicitAccept:
		return errors.New("it has neither text nor result nor an action that refuses")
	}
	return a.checkAction()
}

func (a *answer) checkAction() error {
	switch a.Action {
	case "", mcp.ElicitAccept, mcp.ElicitDecline, mcp.ElicitCancel:
		return nil
	}
	return fmt.Errorf("the action is %q, want accept, decline or cancel", a.Action)
}

func (a *answer) action() mcp.ElicitAction {
	if a.Action == "" {
		return mcp.ElicitAccept
	}
	return a.Action
}

// form returns the answer to a form.
func (a *answer) form() *mcp.ElicitResult {
	r := &mcp.ElicitResult{Action: a.action()}
	if r.Action == mcp.ElicitAccept {
		r.Content = a.Content
	}
	return r
}

// sample returns the answer of a model.
func (a *answer) sample() *mcp.SampleResult {
	if a.Result != nil {
		return a.Result
	}
	model := a.Model
	if model == "" {
		model = modelName
	}
	return textResult(a.Text, model)
}

// take returns the first entry that fits and is not used up. One that says which question it is for is never used up.
func take(entries []*answer, question string, fits func(a *answer) bool) *answer {
	for _, a := range entries {
		if a.used || !strings.Contains(question, a.Message) || !fits(a) {
			continue
		}
		a.used = a.Message == "" && a.Field == ""
		return a
	}
	return nil
}

func (a *answers) forForm(q *mcp.ElicitParams) *answer {
	if a == nil {
		return nil
	}
	fields, _ := parametersOf(q.RequestedSchema)
	return take(a.Elicitation, q.Message, func(e *answer) bool {
		if e.Field == "" {
			return true
		}
		for i := range fields {
			if fields[i].name == e.Field {
				return true
			}
		}
		return false
	})
}

// forPage returns the answer to a page, which an entry with content is not.
func (a *answers) forPage(q *mcp.ElicitParams) *answer {
	if a == nil {
		return nil
	}
	return take(a.Elicitation, q.Message, func(e *answer) bool { return e.Content == nil && e.Field == "" })
}

// forSample returns the answer to a conversation, by the text of its last message.
func (a *answers) forSample(q *mcp.SampleParams) *answer {
	if a == nil {
		return nil
	}
	var last strings.Builder
	if len(q.Messages) > 0 {
		for _, c := range q.Messages[len(q.Messages)-1].Content {
			if text, ok := c.(*mcp.TextContent); ok {
				last.WriteString(text.Text)
			}
		}
	}
	return take(a.Sampling, last.String(), func(*answer) bool { return true })
}
