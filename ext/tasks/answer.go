package tasks

import (
	"context"
	stdjson "encoding/json"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// maxAnswers bounds what the answers to one round of questions may have together, in bytes. Together with what the handler
// remembers, and with its result, they have to fit into a record.
const maxAnswers = 4 << 20

// questions gives the open questions as clients see them.
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
func (m *Manager) answer(ctx context.Context, owner, id string, responses answers) error {
	if _, err := m.find(ctx, owner, id); err != nil {
		return err
	}
	var r *run
	due := false
	j, err := m.change(ctx, owner, id, func(j *job, _ time.Time) error {
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
			r = m.admit(owner, id)
		}
		due = r != nil
		j.Phase, j.Started = phaseWorking, due && r.slot
		return nil
	})
	if r == nil {
		return public(err)
	}
	if err != nil || !due {
		m.dismiss(r)
		return public(err)
	}
	if r.slot {
		r.job = j
	}
	m.launch(r)
	return nil
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
		taken = true
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
