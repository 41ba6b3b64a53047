package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// maxResponses limits the responses to the input requests of a run together, in bytes. With
	// the handler's state and its result they must fit into a record.
	maxResponses = 4 << 20
	// maxRetries is how many times in a row a question may be repeated because its answer was
	// invalid: enough for a person who mistypes, and an end for a client that accepts every form
	// unchanged.
	maxRetries = 10
	// maxQuestions is the number of input requests that a task may make in all: enough for people,
	// and an end for two programs that answer each other.
	maxQuestions = 10_000
	// maxQuoted is the number of input requests that a status message mentions.
	maxQuoted = 5
)

// requireInput makes the job wait for input. Each input request gets a key that is unique within
// the task. The error ends a task that asked too often.
func (j *job) requireInput(required *mcp.InputRequiredResult, memory []byte) *mcp.Error {
	if fault := j.checkQuestionLimit(required.InputRequests); fault != nil {
		return fault
	}
	j.Phase, j.Started, j.Holder, j.Restarts = phaseWaiting, false, "", 0
	j.Memory, j.Answers = memory, nil
	j.Open = make(map[string]openRequest, len(required.InputRequests))
	for _, key := range slices.Sorted(maps.Keys(required.InputRequests)) {
		j.Keys++
		j.Open[key+"."+strconv.FormatUint(j.Keys, 10)] = openRequest{Key: key, Request: required.InputRequests[key]}
	}
	j.Message, j.needsHeadroom = j.inputMessage(), true
	return nil
}

// checkQuestionLimit returns an error if the task reached maxQuestions, or repeats a question
// for the maxRetries-th time.
func (j *job) checkQuestionLimit(questions map[string]mcp.InputRequest) *mcp.Error {
	repeated := ""
	for key := range questions {
		if _, answered := j.Answers[key]; answered {
			repeated = key
		}
	}
	if j.Misfits++; repeated == "" {
		j.Misfits = 0
	}
	switch {
	case j.Misfits >= maxRetries:
		return mcp.Errorf(mcp.CodeInvalidParams, "the answers to question %q were invalid %d times in a row",
			repeated, j.Misfits)
	case j.Keys+uint64(len(questions)) > maxQuestions:
		return mcp.Errorf(mcp.CodeInternalError, "the tool asks more than %d questions", maxQuestions)
	}
	return nil
}

// inputMessage returns the status message of a waiting job: the messages of its input requests.
func (j *job) inputMessage() string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(j.Open)) {
		var p struct {
			Message string `json:"message"`
		}
		if jsonv2.Unmarshal(j.Open[key].Request.Params, &p) == nil && p.Message != "" {
			all = append(all, p.Message)
		}
		if len(all) == maxQuoted {
			break
		}
	}
	return statusMessage(strings.Join(all, "; "))
}

// inputRequests returns the open input requests under the keys that clients see.
func (j *job) inputRequests() map[string]mcp.InputRequest {
	if len(j.Open) == 0 {
		return nil
	}
	all := make(map[string]mcp.InputRequest, len(j.Open))
	for key, q := range j.Open {
		all[key] = q.Request
	}
	return all
}

// respond stores a client's responses to a task's open input requests. Other responses are ignored,
// since they may be late or duplicates. When no question is open any more, the handler runs again.
// A task that does not wait for input is not changed. Spec: tasks extension, Task Update Requests.
func (s *Server) respond(ctx context.Context, owner, id string, responses inputResponses) error {
	if _, err := s.readHead(ctx, owner, id); err != nil {
		return err
	}
	var r *run
	ready := false
	j, err := s.change(ctx, owner, id, func(j *job, _ time.Time) error {
		ready = false
		changed, err := j.addResponses(responses)
		if err != nil {
			return err
		}
		if !changed {
			return errUnchanged
		}
		if len(j.Open) > 0 {
			return nil
		}
		if r == nil {
			r = s.newRun(owner, id)
		}
		if r == nil && s.shared != nil {
			return errShutdown // the lease is lost; no server would run the task
		}
		if j.Phase, ready = phaseWorking, r != nil; ready {
			j.Started, j.Holder = r.running, r.holder
		}
		return nil
	})
	s.startChanged(r, j, ready, err)
	if errors.Is(err, errTooLarge) {
		return mcp.Errorf(mcp.CodeInvalidParams, "params.inputResponses: too large together with the rest of the task")
	}
	return clientError(err)
}

// addResponses moves responses to open input requests to where the handler finds them.
func (j *job) addResponses(responses inputResponses) (changed bool, err error) {
	size := 0
	for _, a := range j.Answers {
		size += len(a)
	}
	for key, q := range j.Open {
		response, ok := responses[key]
		if !ok {
			continue
		}
		if !isResponse(q.Request.Method, response) {
			return false, mcp.Errorf(mcp.CodeInvalidParams,
				"params.inputResponses: not a valid result of %s", q.Request.Method)
		}
		if size += len(response); size > maxResponses {
			return false, mcp.Errorf(mcp.CodeInvalidParams, "params.inputResponses: more than %d bytes", maxResponses)
		}
		if j.Answers == nil {
			j.Answers = inputResponses{}
		}
		j.Answers[q.Key] = response
		delete(j.Open, key)
		changed, j.needsHeadroom, j.Message = true, true, j.inputMessage()
	}
	return changed, nil
}

// isResponse reports whether a response takes the shape of the method's result. A handler repeats
// the question if the values in it are invalid; a response of another shape would end the task, and
// is refused here.
func isResponse(method string, response json.RawMessage) bool {
	if !isObject(response) {
		return false
	}
	switch method {
	case "elicitation/create":
		var r mcp.ElicitResult
		if jsonv2.Unmarshal(response, &r) != nil {
			return false
		}
		known := r.Action == mcp.ElicitAccept || r.Action == mcp.ElicitDecline || r.Action == mcp.ElicitCancel
		return known && (r.Content == nil || isObject(r.Content) || string(r.Content) == "null")
	case "sampling/createMessage":
		var r mcp.CreateMessageResult
		return jsonv2.Unmarshal(response, &r) == nil
	case "roots/list":
		var r struct {
			Roots []mcp.Root `json:"roots"`
		}
		return jsonv2.Unmarshal(response, &r) == nil && r.Roots != nil
	}
	return true
}
