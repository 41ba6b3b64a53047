package tasks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// recordFormat is the version of the encoding of a record's Data. Other versions are refused.
const recordFormat = 1

const (
	// maxTTL is the longest time to live that can be set. Tasks are never kept without limit.
	maxTTL = 10 * 365 * 24 * time.Hour
	// keepFinished is how long a finished task can be read at least, so that clients that poll
	// slowly, or were restarted, still get the result.
	keepFinished = 5 * time.Minute
)

const maxMessage = 512

// A phase is the stored state of a task. Each form derives its statuses from it.
type phase string

const (
	phaseWorking phase = "working" // queued or running
	phaseWaiting phase = "waiting" // for input
	phaseDone    phase = "done"
)

// nextPhases holds the allowed changes of the phase. A task that is done does not change.
var nextPhases = map[phase][]phase{
	phaseWorking: {phaseWorking, phaseWaiting, phaseDone},
	phaseWaiting: {phaseWaiting, phaseWorking, phaseDone},
}

// A state is the content of the Data of a [Record]. The head comes first: it contains everything
// that a description of a task shows. The payload may be large.
type state struct {
	Format    int    `json:"format"`
	Tool      string `json:"tool"`
	Caller    *owner `json:"caller,omitzero"` // nil if not authenticated
	Phase     phase  `json:"phase"`
	Message   string `json:"message,omitzero"`
	Updated   int64  `json:"updated"`           // Unix milliseconds
	TTL       int64  `json:"ttl"`               // milliseconds from the record's Created
	Poll      int64  `json:"poll"`              // milliseconds
	Started   bool   `json:"started,omitzero"`  // the handler of the current run may have been called
	Restarts  int    `json:"restarts,omitzero"` // of a run that the end of a process interrupted
	Keys      uint64 `json:"keys,omitzero"`     // of input requests that were assigned so far
	Misfits   int    `json:"misfits,omitzero"`  // how many times in a row a question was repeated
	Holder    string `json:"holder,omitzero"`   // of the lease under which the task runs, if the store is shared
	Cancelled bool   `json:"cancelled,omitzero"`
	Failed    bool   `json:"failed,omitzero"`  // Error is set
	IsError   bool   `json:"isError,omitzero"` // of the Result

	// The payload. A member that is added here must be added to headOf, too.
	Params  json.RawMessage        `json:"params,omitzero"`   // of the call; nil once it is done
	Open    map[string]openRequest `json:"open,omitempty"`    // by the keys that clients see
	Answers inputResponses         `json:"answers,omitempty"` // to the last run's input requests, by the handler's keys
	Memory  json.RawMessage        `json:"memory,omitzero"`   // the handler's state, from run to run
	// The outcome. Once the task is done, one of these fields is set, or Cancelled.
	Result json.RawMessage `json:"result,omitzero"`
	Error  *mcp.Error      `json:"error,omitzero"`
}

type inputResponses = map[string]json.RawMessage

// An openRequest is an input request under the key that the handler gave it.
type openRequest struct {
	Key     string           `json:"key"`
	Request mcp.InputRequest `json:"request"`
}

// An owner is the principal of a task. Its names are bytes, since they may be invalid UTF-8.
type owner struct {
	Issuer   []byte   `json:"issuer"`
	Subject  []byte   `json:"subject"`
	ClientID []byte   `json:"clientId"`
	Scopes   []string `json:"scopes,omitempty"`
}

func ownerOf(p *mcp.Principal) *owner {
	if p == nil {
		return nil
	}
	return &owner{[]byte(p.Issuer), []byte(p.Subject), []byte(p.ClientID), p.Scopes}
}

func (c *owner) principal() *mcp.Principal {
	if c == nil {
		return nil
	}
	return &mcp.Principal{Issuer: string(c.Issuer), Subject: string(c.Subject), ClientID: string(c.ClientID),
		Scopes: c.Scopes}
}

// A job is a task as it is stored.
type job struct {
	Record // Data is only set by openHead
	state
	needsHeadroom bool // data of a client or a handler was added; encode leaves room for later changes
}

// headroom is the number of bytes that the record of an unfinished task leaves free after such data
// was added, so that later changes of its phase always fit.
const headroom = 8 << 10

var errRecord = errors.New("the stored record is not a task of this version")

func openJob(r Record) (*job, error) {
	j := &job{Record: r}
	j.Data = nil
	if err := jsonv2.Unmarshal(r.Data, &j.state); err != nil {
		return nil, fmt.Errorf("%w: %w", errRecord, err)
	}
	if err := j.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", errRecord, err)
	}
	return j, nil
}

// check returns an error for a decoded job that violates an invariant.
func (j *job) check() error {
	if err := j.checkHead(); err != nil {
		return err
	}
	outcomes := 0
	for _, set := range []bool{j.Cancelled, j.Result != nil, j.Error != nil} {
		if set {
			outcomes++
		}
	}
	switch {
	case j.Failed != (j.Error != nil):
		return fmt.Errorf("failed is %t, but error is set: %t", j.Failed, j.Error != nil)
	case j.Done && outcomes != 1, !j.Done && outcomes != 0:
		return fmt.Errorf("phase %s with %d outcomes", j.Phase, outcomes)
	case !j.Done && !isObject(j.Params):
		return errors.New("an unfinished task without params")
	case j.Result != nil && !isObject(j.Result):
		return errors.New("the result is not a JSON object")
	case (j.Phase == phaseWaiting) != (len(j.Open) > 0):
		return fmt.Errorf("phase %s with %d open input requests", j.Phase, len(j.Open))
	}
	return nil
}

// checkHead is check for the fields of the head.
func (j *job) checkHead() error {
	_, unfinished := nextPhases[j.Phase]
	switch {
	case j.Format != recordFormat:
		return fmt.Errorf("format %d, want %d", j.Format, recordFormat)
	case !unfinished && j.Phase != phaseDone:
		return fmt.Errorf("unknown phase %.20q", j.Phase)
	case j.Done != (j.Phase == phaseDone):
		return fmt.Errorf("phase %s with Done %t", j.Phase, j.Done)
	case j.Caller.principal().Key() != j.Owner:
		return errors.New("the caller does not match the owner")
	case j.TTL <= 0 || j.TTL > 2*maxTTL.Milliseconds() || j.Poll <= 0 || j.Poll > maxTTL.Milliseconds():
		return fmt.Errorf("invalid ttl of %d ms or poll interval of %d ms", j.TTL, j.Poll)
	}
	return nil
}

func (j *job) encode() (Record, error) {
	r := j.Record
	r.Done = j.Phase == phaseDone
	r.Expires = j.Created.Add(time.Duration(j.TTL) * time.Millisecond)
	var err error
	if r.Data, err = jsonv2.Marshal(&j.state, jsonv2.Deterministic(true)); err != nil {
		return r, fmt.Errorf("%w: %w", errEncode, err)
	}
	limit := MaxRecord
	if j.needsHeadroom && !r.Done {
		limit -= headroom
	}
	if len(r.Data) > limit {
		return r, errTooLarge
	}
	return r, nil
}

// errEncode means that a handler's result cannot be encoded as JSON.
var errEncode = errors.New("the task cannot be encoded")

var errTooLarge = fmt.Errorf("the task has more than %d bytes", MaxRecord)

// finish makes the job done and keeps it for at least keepFinished. The caller sets its outcome.
func (j *job) finish(now time.Time) {
	j.Phase, j.Started, j.Holder, j.Message = phaseDone, false, "", ""
	j.Params, j.Open, j.Answers, j.Memory = nil, nil, nil, nil
	least := now.Add(keepFinished).Sub(j.Created)
	j.TTL = max(j.TTL, min(least, 2*maxTTL).Milliseconds()) // bounded, since the clock may be wrong
}

// fail finishes the job with an error, also as status message. Invalid JSON in its data is dropped.
func (j *job) fail(now time.Time, err *mcp.Error) {
	j.finish(now)
	valid := *err
	valid.Message = strings.ToValidUTF8(valid.Message, "\uFFFD")
	if valid.Data != nil {
		if _, err := jsonv2.Marshal(valid.Data); err != nil {
			valid.Data = nil
		}
	}
	j.Error, j.Failed, j.Message = &valid, true, statusMessage(valid.Message)
}

// heldBy reports whether the run, and no other server, may run the job.
func (j *job) heldBy(r *run) bool { return j.Phase == phaseWorking && j.Holder == r.holder }

func (j *job) expired(now time.Time) bool { return !now.Before(j.Expires) }

func isObject(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '{' }

// readHead returns the head of a task to a client, after it ended the task if its time is over
// and recovered it if its run was lost. Clients read a task far more often than it changes, and its
// params and result may be large.
func (s *Server) readHead(ctx context.Context, owner, id string) (*job, error) {
	j, err := s.loadHead(ctx, owner, id)
	switch {
	case err == nil:
	case errors.Is(err, ErrUnknown):
		return nil, errUnknownTask
	default:
		return nil, fmt.Errorf("read task %s: %w", short(id), err)
	}
	switch now := time.Now(); {
	case j.Done && j.expired(now):
		return nil, errUnknownTask
	case !j.Done && j.expired(now):
		_, err = s.expire(ctx, owner, id)
	case j.Phase == phaseWorking && !s.hasRun(id):
		lost, lostErr := s.isLost(ctx, j)
		if !lost {
			return j, lostErr
		}
		err = s.recoverTask(ctx, owner, id, j.Holder)
	default:
		return j, nil
	}
	if err != nil {
		return nil, err
	}
	j, err = s.loadHead(ctx, owner, id)
	return j, clientError(err)
}

func (s *Server) loadHead(ctx context.Context, owner, id string) (*job, error) {
	r, err := s.readRecord(ctx, owner, id)
	if err != nil {
		return nil, err
	}
	return openHead(r)
}

// openHead decodes a record up to its payload; see [state]. The job keeps the record's Data.
func openHead(r Record) (*job, error) {
	j := &job{Record: r}
	head, err := headOf(r.Data)
	if err == nil {
		err = jsonv2.Unmarshal(head, &j.state)
	}
	if err == nil {
		err = j.checkHead()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errRecord, err)
	}
	return j, nil
}

// full decodes the record of a job that openHead returned.
func (j *job) full() (*job, error) {
	all, err := openJob(j.Record)
	if err != nil {
		return nil, fmt.Errorf("read task %s: %w", short(j.ID), err)
	}
	return all, nil
}

// headOf returns the members of an object before its payload, as an object. It decodes no more.
func headOf(data []byte) ([]byte, error) {
	d := jsontext.NewDecoder(bytes.NewBuffer(data)) // does not copy data
	if d.PeekKind() != '{' {
		return nil, errors.New("not a JSON object")
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	for d.PeekKind() == '"' {
		end := d.InputOffset()
		name, err := d.ReadToken()
		if err != nil {
			return nil, err
		}
		switch name.String() {
		case "params", "open", "answers", "memory", "result", "error":
			return append(bytes.Clone(data[:end]), '}'), nil
		}
		if err := d.SkipValue(); err != nil {
			return nil, err
		}
	}
	return data, nil
}
