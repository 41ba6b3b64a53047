package tasks

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// maxTaskID is the longest id that is taken of a server: it is sent back with every request, over HTTP in a header.
	maxTaskID = 4 << 10
	// maxOpenQuestions is the number of questions of a task that are looked at. A round of them is at most 64; the others
	// are answered and still shown, or the server is out to fill memory.
	maxOpenQuestions = 1000
)

// A form is one of the two ways to write tasks.
type form struct {
	is2025 bool
}

// A question is one open question of a task.
type question struct {
	key string
	raw stdjson.RawMessage
}

// A sighting is a task as its server described it, with the questions in the order of the server.
type sighting struct {
	Task
	questions []question
	isFull    bool // with result, error or questions, so far as its form has them; not so when it has just been made
}

// received is what both forms have of a task, and under which names.
type received struct {
	ID            *string            `json:"taskId"`
	Status        Status             `json:"status"`
	Message       string             `json:"statusMessage"`
	Created       string             `json:"createdAt"`
	Updated       string             `json:"lastUpdatedAt"`
	TTL           stdjson.RawMessage `json:"ttlMs"`
	Poll          stdjson.RawMessage `json:"pollIntervalMs"`
	TTL2025       stdjson.RawMessage `json:"ttl"`
	Poll2025      stdjson.RawMessage `json:"pollInterval"`
	InputRequests stdjson.RawMessage `json:"inputRequests"`
	Result        stdjson.RawMessage `json:"result"`
	Error         stdjson.RawMessage `json:"error"`
}

// created reads the result that says that a call has become a task.
//
// Spec: tasks extension, Task Creation; basic/utilities/tasks (2025-11-25), Creating Tasks.
func (f form) created(raw []byte) (*sighting, error) {
	if f.is2025 {
		var nested struct {
			Task stdjson.RawMessage `json:"task"`
		}
		if err := json.Unmarshal(raw, &nested); err != nil {
			return nil, err
		}
		if nested.Task == nil {
			return nil, errors.New("it is a task, and has no member task")
		}
		raw = nested.Task
	}
	s, _, err := f.decode(raw)
	return s, err
}

// seen reads a task in full, as tasks/get and notifications give it.
//
// Spec: tasks extension, Task Polling; basic/utilities/tasks (2025-11-25), Getting Tasks.
func (f form) seen(raw []byte) (*sighting, error) {
	s, r, err := f.decode(raw)
	if err != nil {
		return nil, err
	}
	s.isFull = true
	if f.is2025 {
		return s, nil
	}
	switch s.Status {
	case StatusInputRequired:
		if s.questions, err = decodeQuestions(r.InputRequests); err != nil {
			return nil, err
		}
		s.InputRequests = make(map[string]mcp.InputRequest, len(s.questions))
		for _, q := range s.questions {
			var request mcp.InputRequest
			if err := json.Unmarshal(q.raw, &request); err != nil || request.Method == "" {
				return nil, fmt.Errorf("its input request %.64q has no method", q.key)
			}
			s.InputRequests[q.key] = request
		}
	case StatusCompleted:
		if err := checkResult(r.Result); err != nil {
			return nil, err
		}
		s.Result = r.Result
	case StatusFailed:
		if s.Error, err = decodeError(r.Error); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// decode reads what both forms have. What a server says of times is advice, and nothing is refused because of it.
func (f form) decode(raw []byte) (*sighting, *received, error) {
	var r received
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, nil, fmt.Errorf("the task cannot be read: %w", err)
	}
	switch {
	case r.ID == nil || *r.ID == "":
		return nil, nil, errors.New("the task has no taskId")
	case len(*r.ID) > maxTaskID:
		return nil, nil, fmt.Errorf("its taskId has %d bytes, at most %d are taken", len(*r.ID), maxTaskID)
	}
	switch r.Status {
	case StatusWorking, StatusInputRequired, StatusCompleted, StatusFailed, StatusCancelled:
	default:
		return nil, nil, fmt.Errorf("the status %.64q is not known", string(r.Status))
	}
	s := &sighting{Task: Task{ID: *r.ID, Status: r.Status, Message: r.Message}}
	s.Created, _ = time.Parse(time.RFC3339Nano, r.Created)
	s.Updated, _ = time.Parse(time.RFC3339Nano, r.Updated)
	if f.is2025 {
		r.TTL, r.Poll = r.TTL2025, r.Poll2025
	}
	s.TTL, s.PollInterval = milliseconds(r.TTL), milliseconds(r.Poll)
	return s, &r, nil
}

// milliseconds reads a number of them; 0 for what is none, is not positive, or is longer than anybody waits.
func milliseconds(raw []byte) time.Duration {
	const most = float64(100*365*24*time.Hour) / float64(time.Millisecond)
	var n float64
	if json.Unmarshal(raw, &n) != nil || !(n > 0) || n > most {
		return 0
	}
	return time.Duration(math.Ceil(n)) * time.Millisecond
}

// decodeQuestions reads an object of input requests in its own order: that is the order in which people are asked.
func decodeQuestions(raw []byte) ([]question, error) {
	if len(raw) == 0 || raw[0] != '{' {
		return nil, errors.New("it requires input, and has no object inputRequests")
	}
	d := jsontext.NewDecoder(bytes.NewReader(raw))
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	var questions []question
	for d.PeekKind() != '}' {
		key, err := d.ReadToken()
		if err != nil {
			return nil, err
		}
		name := key.String()
		value, err := d.ReadValue()
		if err != nil {
			return nil, err
		}
		if len(questions) == maxOpenQuestions {
			return nil, fmt.Errorf("it has more than %d inputRequests", maxOpenQuestions)
		}
		questions = append(questions, question{name, bytes.Clone(value)})
	}
	return questions, nil
}

// checkResult holds the result of a task to being one of a call.
func checkResult(raw []byte) error {
	if len(raw) == 0 || raw[0] != '{' {
		return errors.New("it is completed, and has no object result")
	}
	if t := mcp.RawResult(raw).ResultType(); t != mcp.ResultComplete {
		return fmt.Errorf("the result of the task has the result type %.64q", t)
	}
	return nil
}

// decodeError reads the error of a task as that of a response, which it is in all but its place.
func decodeError(raw []byte) (*mcp.Error, error) {
	if len(raw) == 0 || raw[0] != '{' {
		return nil, errors.New("it has failed, and has no object error")
	}
	m, err := jsonrpc.Decode(append(append([]byte(`{"jsonrpc":"2.0","id":1,"error":`), raw...), '}'))
	if err != nil || m.Error == nil {
		return nil, errors.New("its error is none: want a code and a message")
	}
	return m.Error, nil
}

// invalid says that an answer is none. What the server was asked to do it has done.
func invalid(method string, err error) error {
	return &mcp.TransportError{Method: method, MayHaveRun: true, Err: fmt.Errorf("%w: %w", mcp.ErrInvalidResult, err)}
}
