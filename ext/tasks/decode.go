package tasks

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

const (
	// maxTaskID is the longest id that is accepted from a server, in bytes. It is sent back with
	// every request, over HTTP in a header.
	maxTaskID = 4 << 10
	// maxInputRequests is the largest number of input requests of a task that is accepted. A round
	// opens at most 64, but a server may still show answered requests.
	maxInputRequests = 1000
)

// An inputRequest is an input request of a task, as received.
type inputRequest struct {
	key string
	raw json.RawMessage
}

// A seenTask is a task as a server described it.
type seenTask struct {
	Task
	requests   []inputRequest // the values of Task.InputRequests, in the order of the server
	isDetailed bool           // with result, error or input requests, if its form contains them
}

type taskMembers struct {
	ID            *string         `json:"taskId"`
	Status        Status          `json:"status"`
	Message       string          `json:"statusMessage"`
	Created       string          `json:"createdAt"`
	Updated       string          `json:"lastUpdatedAt"`
	TTL           json.RawMessage `json:"ttlMs"`
	Poll          json.RawMessage `json:"pollIntervalMs"`
	TTL2025       json.RawMessage `json:"ttl"`
	Poll2025      json.RawMessage `json:"pollInterval"`
	InputRequests json.RawMessage `json:"inputRequests"`
	Result        json.RawMessage `json:"result"`
	Error         json.RawMessage `json:"error"`
}

// decodeFields reads the members that every task contains. It ignores invalid times, which are
// hints.
func decodeFields(raw []byte) (*seenTask, *taskMembers, error) {
	var m taskMembers
	if err := jsonv2.Unmarshal(raw, &m); err != nil {
		return nil, nil, fmt.Errorf("decode the task: %w", err)
	}
	switch {
	case m.ID == nil || *m.ID == "":
		return nil, nil, errors.New("the task has no taskId")
	case len(*m.ID) > maxTaskID:
		return nil, nil, fmt.Errorf("the taskId has %d bytes, more than %d", len(*m.ID), maxTaskID)
	}
	switch m.Status {
	case StatusWorking, StatusInputRequired, StatusCompleted, StatusFailed, StatusCancelled:
	default:
		return nil, nil, fmt.Errorf("unknown status %.64q", string(m.Status))
	}
	t := &seenTask{Task: Task{ID: *m.ID, Status: m.Status, Message: m.Message}}
	t.Created, _ = time.Parse(time.RFC3339Nano, m.Created)
	t.Updated, _ = time.Parse(time.RFC3339Nano, m.Updated)
	t.TTL, t.PollInterval = milliseconds(m.TTL), milliseconds(m.Poll)
	return t, &m, nil
}

// milliseconds reads a number of milliseconds; 0 if raw is not positive or exceeds 100 years.
func milliseconds(raw []byte) time.Duration {
	const most = float64(100*365*24*time.Hour) / float64(time.Millisecond)
	var n float64
	if jsonv2.Unmarshal(raw, &n) != nil || !(n > 0) || n > most {
		return 0
	}
	return time.Duration(math.Ceil(n)) * time.Millisecond
}

// decodeInputRequests reads input requests in the order of the object, in which the user is asked.
func decodeInputRequests(raw []byte) ([]inputRequest, error) {
	if len(raw) == 0 || raw[0] != '{' {
		return nil, errors.New("the status is input_required, but inputRequests is not an object")
	}
	d := jsontext.NewDecoder(bytes.NewReader(raw))
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	var requests []inputRequest
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
		if len(requests) == maxInputRequests {
			return nil, fmt.Errorf("more than %d inputRequests", maxInputRequests)
		}
		requests = append(requests, inputRequest{name, bytes.Clone(value)})
	}
	return requests, nil
}

func checkResult(raw []byte) error {
	if len(raw) == 0 || raw[0] != '{' {
		return errors.New("the status is completed, but result is not an object")
	}
	if t := mcp.RawResult(raw).ResultType(); t != driver.ResultComplete {
		return fmt.Errorf("the result of the task has the result type %.64q", t)
	}
	return nil
}

func decodeError(raw []byte) (*mcp.Error, error) {
	if len(raw) == 0 || raw[0] != '{' {
		return nil, errors.New("the status is failed, but error is not an object")
	}
	m, err := jsonrpc.Decode(append(append([]byte(`{"jsonrpc":"2.0","id":1,"error":`), raw...), '}'))
	if err != nil || m.Error == nil {
		return nil, errors.New("invalid error: want a code and a message")
	}
	return m.Error, nil
}

// invalid returns the error for an invalid result of a method. The server executed the request.
func invalid(method string, err error) error {
	return &mcp.TransportError{Method: method, MayHaveRun: true, Err: fmt.Errorf("%w: %w", mcp.ErrInvalidResult, err)}
}
