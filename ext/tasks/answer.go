package tasks

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// maxAnswers bounds what the answers to one round of questions may have together, in bytes. Together with what the handler
// remembers, and with its result, they have to fit into a record.
const maxAnswers = 4 << 20

const (
	// maxMisfits is how often in a row a question may be asked again because its answer did not fit it. A person who mistypes
	// needs a few; a client that accepts every form as it comes would go on for as long as the task lives.
	maxMisfits = 10
	// maxQuestions is the number of questions that one task may put in all. Nobody answers so many: there is a machine on either
	// side, and no end.
	maxQuestions = 10_000
)

// tired returns the error that ends a task which asks once more, if it has asked enough.
func (j *job) tired(questions map[string]mcp.InputRequest) *mcp.Error {
	misfit := ""
	for key := range questions {
		if _, answered := j.Answers[key]; answered {
			misfit = key
		}
	}
	if j.Misfits++; misfit == "" {
		j.Misfits = 0
	}
	switch {
	case j.Misfits >= maxMisfits:
		return mcp.Errorf(mcp.CodeInvalidParams, "the answers to question %q did not fit it, %d times in a row", misfit, j.Misfits)
	case j.Keys+uint64(len(questions)) > maxQuestions:
		return mcp.Errorf(mcp.CodeInternalError, "the tool asks more than %d questions", maxQuestions)
	}
	return nil
}

// questions returns the open questions as clients see them.
func (j *job) questions() map[string]mcp.InputRequest {
	if len(j.Open) == 0 {
		return nil
	}
	all := make(map[string]mcp.InputRequest, len(j.Open))
	for key, q := range j.Open {
		all[key] = q.Request
	}
	return all
}

// answer takes a client's answers to a task's open questions. Others are left alone: they may be late, or sent twice. Once
// nothing is open, the handler is due again. A task that waits for nothing is left as it is.
//
// Spec: tasks extension, Task Update Requests.
func (s *Server) answer(ctx context.Context, owner, id string, responses answers) error {
	if _, err := s.glance(ctx, owner, id); err != nil {
		return err
	}
	var r *run
	due := false
	j, err := s.change(ctx, owner, id, func(j *job, _ time.Time) error {
		due = false
		taken, err := j.take(responses)
		if err != nil {
			return err
		}
		if !taken {
			return errUnchanged
		}
		if len(j.Open) > 0 {
			return nil
		}
		if r == nil {
			r = s.admit(owner, id)
		}
		due = r != nil
		j.Phase, j.Started = phaseWorking, due && r.slot
		return nil
	})
	s.proceed(r, j, due, err)
	if errors.Is(err, errTooLarge) {
		return mcp.Errorf(mcp.CodeInvalidParams, "params.inputResponses: too large for what the task holds already")
	}
	return public(err)
}

// take moves the answers to open questions to where the handler finds them.
func (j *job) take(responses answers) (taken bool, err error) {
	size := 0
	for _, a := range j.Answers {
		size += len(a)
	}
	for key, q := range j.Open {
		a, ok := responses[key]
		if !ok {
			continue
		}
		if !fits(q.Request.Method, a) {
			return false, mcp.Errorf(mcp.CodeInvalidParams,
				"params.inputResponses: an answer to %s has not the form of one", q.Request.Method)
		}
		if size += len(a); size > maxAnswers {
			return false, mcp.Errorf(mcp.CodeInvalidParams, "params.inputResponses: the answers have more than %d bytes", maxAnswers)
		}
		if j.Answers == nil {
			j.Answers = answers{}
		}
		j.Answers[q.Key] = a
		delete(j.Open, key)
		taken, j.grown, j.Message = true, true, j.asks()
	}
	return taken, nil
}

// fits reports whether an answer has the form that the protocol gives it. One that has it, and still does not answer the
// question, is asked for again by the handler; one that has not would end the task.
func fits(method string, answer stdjson.RawMessage) bool {
	if !isObject(answer) {
		return false
	}
	switch method {
	case "elicitation/create":
		var r mcp.ElicitResult
		if json.Unmarshal(answer, &r) != nil {
			return false
		}
		known := r.Action == mcp.ElicitAccept || r.Action == mcp.ElicitDecline || r.Action == mcp.ElicitCancel
		return known && (r.Content == nil || isObject(r.Content) || string(r.Content) == "null")
	case "sampling/createMessage":
		var r mcp.SampleResult
		return json.Unmarshal(answer, &r) == nil
	case "roots/list":
		var r struct {
			Roots []mcp.Root `json:"roots"`
		}
		return json.Unmarshal(answer, &r) == nil && r.Roots != nil
	}
	return true
}
