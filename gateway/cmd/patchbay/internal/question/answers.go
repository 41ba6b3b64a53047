package question

import (
	"cmp"
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// answers is the file of --answers; see `patchbay help answers`. A nil *answers is empty. It is safe
// for concurrent use.
type answers struct {
	Elicitation []*answer `json:"elicitation"`
	Sampling    []*answer `json:"sampling"`

	mu sync.Mutex // guards used of the entries
}

// An answer is the answer to a question. Message and Field are for entries of the file alone.
type answer struct {
	Message string                   `json:"message"` // the question must contain it
	Field   string                   `json:"field"`   // the form must contain it
	Action  mcp.ElicitAction         `json:"action"`  // accept if empty
	Content stdjson.RawMessage       `json:"content"` // of a form
	Text    string                   `json:"text"`    // of a sampling result
	Model   string                   `json:"model"`   // of a sampling result
	Result  *mcp.CreateMessageResult `json:"result"`  // the whole sampling result

	used bool
}

// LoadAnswers reads the file of --answers.
func LoadAnswers(ctx context.Context, file string) (*answers, error) {
	data, err := term.ReadFile(ctx, file)
	if err != nil {
		return nil, err
	}
	a := &answers{}
	if err := json.Unmarshal(data, a, json.RejectUnknownMembers(true)); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for i, e := range a.Elicitation {
		if err := e.checkElicitation(); err != nil {
			return nil, fmt.Errorf("%s: elicitation[%d]: %w", file, i, err)
		}
	}
	for i, s := range a.Sampling {
		if err := s.checkSampling(); err != nil {
			return nil, fmt.Errorf("%s: sampling[%d]: %w", file, i, err)
		}
	}
	return a, nil
}

func (a *answer) checkElicitation() error {
	switch {
	case a == nil:
		return errors.New("want an object, got null")
	case a.Text != "" || a.Model != "" || a.Result != nil:
		return errors.New("text, model and result are for sampling")
	case a.Content == nil && a.Action == "":
		return errors.New("want content or action")
	case a.Content != nil && rawjson.Kind(a.Content) != '{':
		return errors.New("content: want an object")
	}
	return checkAction(a.Action)
}

func (a *answer) checkSampling() error {
	switch {
	case a == nil:
		return errors.New("want an object, got null")
	case a.Content != nil || a.Field != "":
		return errors.New("content and field are for elicitation")
	case a.Text == "" && a.Result == nil && a.action() == mcp.ElicitAccept:
		return errors.New("want text, result, or action decline or cancel")
	}
	return checkAction(a.Action)
}

func checkAction(action mcp.ElicitAction) error {
	switch action {
	case "", mcp.ElicitAccept, mcp.ElicitDecline, mcp.ElicitCancel:
		return nil
	}
	return fmt.Errorf("invalid action %q: want accept, decline or cancel", action)
}

// find returns the first entry that answers a question. An entry with neither message nor field
// answers a single question, other entries any number.
func (a *answers) find(q question) *answer {
	if a == nil {
		return nil
	}
	entries := a.Elicitation
	if _, ok := q.(samplingQuestion); ok {
		entries = a.Sampling
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range entries {
		if e.used || !strings.Contains(q.message(), e.Message) || !q.fits(e) {
			continue
		}
		e.used = e.Message == "" && e.Field == ""
		return e
	}
	return nil
}

// Elicit returns the answer to an elicitation, or nil if no entry matches.
func (a *answers) Elicit(p *mcp.ElicitRequestParams) *mcp.ElicitResult {
	var q question = formQuestion{p}
	if p.Mode == "url" {
		q = pageQuestion{p}
	}
	if found := a.find(q); found != nil {
		return found.elicitResult()
	}
	return nil
}

// Sample returns the answer to a sampling request, or the error of an entry that declines it. ok
// reports whether an entry matches.
func (a *answers) Sample(p *mcp.CreateMessageParams) (r *mcp.CreateMessageResult, ok bool, err error) {
	found := a.find(samplingQuestion{p})
	if found == nil {
		return nil, false, nil
	}
	r, err = found.sampleResult()
	return r, true, err
}

func (a *answer) action() mcp.ElicitAction { return cmp.Or(a.Action, mcp.ElicitAccept) }

func (a *answer) elicitResult() *mcp.ElicitResult {
	r := &mcp.ElicitResult{Action: a.action()}
	if r.Action == mcp.ElicitAccept {
		r.Content = a.Content
	}
	return r
}

func (a *answer) sampleResult() (*mcp.CreateMessageResult, error) {
	if a.action() != mcp.ElicitAccept {
		return nil, mcp.Errorf(driver.CodeUserRejected, "the user refused the sampling request")
	}
	if a.Result != nil {
		return a.Result, nil
	}
	return &mcp.CreateMessageResult{Role: mcp.RoleAssistant, Content: []mcp.ContentBlock{mcp.Text(a.Text)},
		Model: cmp.Or(a.Model, "human"), StopReason: "endTurn"}, nil
}
