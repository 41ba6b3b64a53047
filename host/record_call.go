package host

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/internal/round"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// observeCall records the end of every call: its result, its error, or its refusal by a later stage.
func (h *Host) observeCall(next call.Next) call.Next {
	return func(ctx context.Context, c *call.Call) (res mcp.Result, err error) {
		if h.opts.Recorder != nil {
			c.Record, c.NewID = &event.Record{Event: event.Intent, Start: time.Now()}, h.callIDs.Next
		}
		res, err = next(ctx, c)
		if c.Record != nil {
			decided(c.Record, c.Decision)
			h.recordEnd(c.Record, c.Intended, res, err)
		}
		if c.Approval != nil {
			err = c.Approval.Wrap(err)
		}
		return res, err
	}
}

// describe sets the action of the record of a call, and the ID that all rounds of the call share.
func (h *Host) describe(c *call.Call) {
	r := c.Record
	if r == nil {
		return
	}
	r.SetMask(h.masks)
	r.Action, r.Method = *c.Action, c.Request.Method
	r.Client, _ = c.Request.Meta(wire.MetaClientInfo)
	if c.Item != nil {
		r.Digest, r.Public = c.Item.Digest, c.Item.Public
	}
	if r.Answers, _ = c.Request.Param("inputResponses"); round.Continues(c.Request) {
		r.Event = event.Answer
	}
	r.Call = c.ID()
}

// recordIntent records that the call is about to be sent. A Recorder that fails refuses the call.
func (h *Host) recordIntent(next call.Next) call.Next {
	return func(ctx context.Context, c *call.Call) (mcp.Result, error) {
		if c.Record != nil {
			decided(c.Record, c.Decision)
			if err := h.storeIntent(c.Record); err != nil {
				return nil, err
			}
			c.Intended = true
		}
		return next(ctx, c)
	}
}

// newRecord returns the intent of a request.
func (v *View) newRecord(req *mcp.Request, a *policy.Action) event.Record {
	r := event.Record{Event: event.Intent, Action: *a, Method: req.Method, Start: time.Now()}
	r.SetMask(v.host.masks)
	r.Client, _ = req.Meta(wire.MetaClientInfo)
	return r
}

// decided copies the decision about a call to its record. The decision may be nil.
func decided(r *event.Record, d *policy.Decision) {
	if d != nil {
		r.Rule, r.DryRun, r.Channel, r.Approver = d.Rule, d.DryRun, string(d.Channel), d.Approver
	}
}

// storeIntent records that a request is about to be sent. The error refuses the request.
func (h *Host) storeIntent(r *event.Record) error {
	intent := r
	if r.Event == event.Answer { // the Recorder may keep it, while r becomes the end
		answer := *r
		intent = &answer
	}
	if err := h.keep(intent); err != nil {
		return &hosterr.Error{Code: hosterr.CodeUnrecorded, Server: r.Server, Err: fmt.Errorf("record the request: %w", err)}
	}
	return nil
}

// recordEnd records the outcome of a request. intended means that the intent was stored.
func (h *Host) recordEnd(r *event.Record, intended bool, res mcp.Result, err error) {
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
	_ = h.keep(r) // the request has ended: the Recorder reports its failure
}

// refused records a request that belongs to no known item, and returns its error.
func (v *View) refused(req *mcp.Request, kind policy.ActionKind, public string, err error) error {
	if v.host.opts.Recorder == nil {
		return err
	}
	a := &policy.Action{Kind: kind, Caller: v.caller}
	a.Arguments = argumentsOf(req)
	r := v.newRecord(req, a)
	r.Event, r.Call, r.Public, r.Err = event.Refused, v.host.callIDs.Next(), public, err
	r.Duration = time.Since(r.Start)
	_ = v.host.keep(&r) // as for an end
	return err
}
