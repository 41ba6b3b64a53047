package tasks

import (
	stdjson "encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// recordFormat is the version of what a record's Data holds. A reader refuses any other.
const recordFormat = 1

const (
	// maxTTL bounds what can be set: longer is a mistake, or means for ever, which nothing is kept.
	maxTTL = 10 * 365 * 24 * time.Hour
	// keepFinished is for how long a finished task can be read at the least: a client that polls slowly, or comes back
	// after a restart of its own, still learns of the end.
	keepFinished = 5 * time.Minute
)

// maxMessage bounds a status message, in bytes: a line for people, not a log.
const maxMessage = 512

// A phase is what there is to do about a task. The statuses that clients see are made of it, in each form its own way.
type phase string

const (
	phaseWorking phase = "working" // a run is due or under way
	phaseWaiting phase = "waiting" // for answers; nothing runs
	phaseDone    phase = "done"
)

// follows holds the steps that a task may take. A task that is done takes none.
var follows = map[phase][]phase{
	phaseWorking: {phaseWorking, phaseWaiting, phaseDone},
	phaseWaiting: {phaseWaiting, phaseWorking, phaseDone},
}

// A state is what the Data of a [Record] holds: the task itself. The head comes first, and holds all that clients see of a
// task before they ask for more. The payload may be large.
type state struct {
	Format    int    `json:"format"`
	Tool      string `json:"tool"`
	Caller    *owner `json:"caller,omitzero"` // nil is the anonymous one
	Phase     phase  `json:"phase"`
	Message   string `json:"message,omitzero"`
	Updated   int64  `json:"updated"`           // Unix milliseconds
	TTL       int64  `json:"ttl"`               // milliseconds from the record's Created
	Poll      int64  `json:"poll"`              // milliseconds
	Started   bool   `json:"started,omitzero"`  // the run that is due may have begun
	Restarts  int    `json:"restarts,omitzero"` // runs that the end of a process cut off
	Keys      uint64 `json:"keys,omitzero"`     // that questions were given so far
	Misfits   int    `json:"misfits,omitzero"`  // rounds in a row with an answer that did not fit its question
	Cancelled bool   `json:"cancelled,omitzero"`
	Failed    bool   `json:"failed,omitzero"`  // there is an Error
	IsError   bool   `json:"isError,omitzero"` // Result is a tool's failure

	// The payload. Members are added here and in headOf.
	Params  stdjson.RawMessage `json:"params,omitzero"`   // of the call; none once it is done
	Open    map[string]asked   `json:"open,omitempty"`    // the questions that wait, by the keys that clients see
	Answers answers            `json:"answers,omitempty"` // to the questions of the last run, by the handler's keys
	Memory  stdjson.RawMessage `json:"memory,omitzero"`   // what the handler remembers from run to run
	// The outcome: one of these two, or Cancelled, once the task is done.
	Result stdjson.RawMessage `json:"result,omitzero"`
	Error  *mcp.Error         `json:"error,omitzero"`
}

type answers = map[string]stdjson.RawMessage

// asked is a question under the key that the handler gave it.
type asked struct {
	Key     string           `json:"key"`
	Request mcp.InputRequest `json:"request"`
}

// An owner is the principal of a task. Its names are bytes: they make the owner's key, and JSON would not keep all of them.
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
	return &mcp.Principal{Issuer: string(c.Issuer), Subject: string(c.Subject), ClientID: string(c.ClientID), Scopes: c.Scopes}
}

// A job is one task as the store has it.
type job struct {
	Record // its Data is of no meaning here
	state
	grown bool // it has taken up what others gave; what is noted about its runs is to fit, too
}

// spare is what the record of a task that is not done leaves free, in bytes, so that each later note about its runs fits.
const spare = 8 << 10

// errRecord says that a record of the store cannot be used.
var errRecord = errors.New("the stored record is no task of this version")

// openJob reads a record.
func openJob(r Record) (*job, error) {
	j := &job{Record: r}
	j.Data = nil
	if err := json.Unmarshal(r.Data, &j.state); err != nil {
		return nil, fmt.Errorf("%w: %w", errRecord, err)
	}
	if err := j.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", errRecord, err)
	}
	return j, nil
}

// check refuses what no job can be, so that the rest need not expect it.
func (j *job) check() error {
	if err := j.checkHead(); err != nil {
		return err
	}
	outcomes := 0
	for _, there := range []bool{j.Cancelled, j.Result != nil, j.Error != nil} {
		if there {
			outcomes++
		}
	}
	switch {
	case j.Failed != (j.Error != nil):
		return fmt.Errorf("failed is %t, with an error: %t", j.Failed, j.Error != nil)
	case j.Done && outcomes != 1, !j.Done && outcomes != 0:
		return fmt.Errorf("its phase is %s, with %d outcomes", j.Phase, outcomes)
	case !j.Done && !isObject(j.Params):
		return errors.New("it has no params to run with")
	case j.Result != nil && !isObject(j.Result):
		return errors.New("its result is no object")
	case (j.Phase == phaseWaiting) != (len(j.Open) > 0):
		return fmt.Errorf("its phase is %s, with %d open questions", j.Phase, len(j.Open))
	}
	return nil
}

// checkHead is check for what openHead reads.
func (j *job) checkHead() error {
	_, unfinished := follows[j.Phase]
	switch {
	case j.Format != recordFormat:
		return fmt.Errorf("its format is %d, want %d", j.Format, recordFormat)
	case !unfinished && j.Phase != phaseDone:
		return fmt.Errorf("its phase is %.20q", j.Phase)
	case j.Done != (j.Phase == phaseDone):
		return fmt.Errorf("its phase is %s, and Done is %t", j.Phase, j.Done)
	case j.Caller.principal().Key() != j.Owner:
		return errors.New("its caller is not the owner")
	case j.TTL <= 0 || j.TTL > 2*maxTTL.Milliseconds() || j.Poll <= 0 || j.Poll > maxTTL.Milliseconds():
		return fmt.Errorf("its ttl is %d ms and its poll interval %d ms", j.TTL, j.Poll)
	}
	return nil
}

// seal returns the record to store.
func (j *job) seal() (Record, error) {
	r := j.Record
	r.Done = j.Phase == phaseDone
	r.Expires = j.Created.Add(time.Duration(j.TTL) * time.Millisecond)
	var err error
	if r.Data, err = json.Marshal(&j.state, json.Deterministic(true)); err != nil {
		return r, fmt.Errorf("%w: %w", errEncode, err)
	}
	most := MaxRecord
	if j.grown && !r.Done {
		most -= spare
	}
	if len(r.Data) > most {
		return r, errTooLarge
	}
	return r, nil
}

// errEncode says that what a handler gave is not what JSON can hold.
var errEncode = errors.New("the task cannot be encoded")

// errTooLarge says that a task has grown beyond what a store takes.
var errTooLarge = fmt.Errorf("the task has more than %d bytes", MaxRecord)

// finish returns the job its outcome, which the caller sets. What was needed for runs is dropped, and the job stays for a
// while, whatever its time to live was.
func (j *job) finish(now time.Time) {
	j.Phase, j.Started, j.Message = phaseDone, false, ""
	j.Params, j.Open, j.Answers, j.Memory = nil, nil, nil, nil
	least := now.Add(keepFinished).Sub(j.Created)
	j.TTL = max(j.TTL, min(least, 2*maxTTL).Milliseconds()) // a clock may be set wrong
}

// fail finishes the job with an error, whose message its status shows too. Of an error that is not fit to be sent, what is
// fit remains.
func (j *job) fail(now time.Time, err *mcp.Error) {
	j.finish(now)
	fit := *err
	fit.Message = strings.ToValidUTF8(fit.Message, "\uFFFD")
	if fit.Data != nil {
		if _, bad := json.Marshal(fit.Data); bad != nil {
			fit.Data = nil
		}
	}
	j.Error, j.Failed, j.Message = &fit, true, bounded(fit.Message)
}

// expired reports whether the job's time is over.
func (j *job) expired(now time.Time) bool { return !now.Before(j.Expires) }

// isObject reports whether JSON that is known to be valid is an object.
func isObject(raw stdjson.RawMessage) bool { return len(raw) > 0 && raw[0] == '{' }
