package observe

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/internal/round"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// Calls contains the stages that record calls, and stores the records of a host. It is safe for
// concurrent use.
type Calls struct {
	Recorder event.Recorder                            // nil means that the host does not record
	Mask     func(r *event.Record, text string) string // see [event.Record.Mask]
	IDs      *IDs                                      // of calls
	Lost     atomic.Uint64                             // counts the records that the Recorder refused
}

// Call records the end of every call: its result, its error, or its refusal by a later stage.
func (o *Calls) Call(next call.Next) call.Next {
	return func(ctx context.Context, c *call.Call) (res mcp.Result, err error) {
		if o.Recorder != nil {
			c.Record, c.IDs = &event.Record{Event: event.Intent, Start: time.Now()}, o.IDs
		}
		res, err = next(ctx, c)
		if c.Record != nil {
			SetDecision(c.Record, c.Decision)
			o.StoreEnd(c.Record, c.Intended, res, err)
		}
		if err != nil && c.Approval.Begins {
			err = &round.NotSentError{Err: err}
		}
		return res, err
	}
}

// Intent stores that the call is about to be sent. A Recorder that fails refuses the call.
func (o *Calls) Intent(next call.Next) call.Next {
	return func(ctx context.Context, c *call.Call) (mcp.Result, error) {
		if c.Record != nil {
			SetDecision(c.Record, c.Decision)
			if err := o.StoreIntent(c.Record); err != nil {
				return nil, err
			}
			c.Intended = true
		}
		return next(ctx, c)
	}
}

// Describe sets the action of the record of a call, and the ID that all rounds of the call share. It must
// be called when the call has an action.
func (o *Calls) Describe(c *call.Call) {
	r := c.Record
	if r == nil {
		return
	}
	r.SetMask(o.Mask)
	r.Action, r.Method = *c.Action, c.Request.Method
	r.Client = c.Request.Driver().ClientInfo
	if c.Item != nil {
		r.Digest, r.Public = c.Item.Digest, c.Item.Public
	}
	if r.Answers, _ = c.Request.Param("inputResponses"); round.Continues(c.Request) {
		r.Event = event.Answer
	}
	r.Call = c.ID()
}

// New returns the intent of a request that is not a call.
func (o *Calls) New(req *mcp.Request, a *policy.Action) event.Record {
	r := event.Record{Event: event.Intent, Action: *a, Method: req.Method, Start: time.Now()}
	r.SetMask(o.Mask)
	r.Client = req.Driver().ClientInfo
	return r
}

// SetDecision copies a decision to a record. The decision may be nil.
func SetDecision(r *event.Record, d *policy.Decision) {
	if d != nil {
		r.Rule, r.DryRun, r.Channel, r.Approver = d.Rule, d.DryRun, string(d.Channel), d.Approver
	}
}

// StoreIntent stores that a request is about to be sent. The error refuses the request.
func (o *Calls) StoreIntent(r *event.Record) error {
	intent := r
	if r.Event == event.Answer { // the Recorder may keep it, while r becomes the end
		answer := *r
		intent = &answer
	}
	if err := o.Store(intent); err != nil {
		return &hosterr.Error{Code: hosterr.CodeUnrecorded, Server: r.Server,
			Err: fmt.Errorf("record the request: %w", err)}
	}
	return nil
}

// StoreEnd stores the outcome of a request. intended means that its intent was stored.
func (o *Calls) StoreEnd(r *event.Record, intended bool, res mcp.Result, err error) {
	r.Event, r.Err, r.Duration, r.Answers = event.End, err, time.Since(r.Start), nil
	raw, _ := res.(mcp.RawResult)
	switch {
	case !intended && err == nil: // the host asks for approval
		r.Event, r.Result = event.Question, json.RawMessage(raw)
	case !intended:
		r.Event = event.Refused
	case err != nil:
	default:
		r.Result = json.RawMessage(raw)
		if raw.ResultType() == driver.ResultInputRequired {
			r.Event = event.Question
		}
	}
	_ = o.Store(r) // the request ended: the Recorder reports its failure
}

// Store passes a record to the Recorder, and counts the records that the Recorder refuses.
func (o *Calls) Store(r *event.Record) error {
	err := o.Recorder.Record(r)
	if err != nil {
		o.Lost.Add(1)
	}
	return err
}

// Refused stores a request that belongs to no known item, and returns its error.
func (o *Calls) Refused(req *mcp.Request, a *policy.Action, public string, err error) error {
	if o.Recorder == nil {
		return err
	}
	r := o.New(req, a)
	r.Event, r.Call, r.Public, r.Err = event.Refused, o.IDs.Next(), public, err
	r.Duration = time.Since(r.Start)
	_ = o.Store(&r) // as for an end
	return err
}
