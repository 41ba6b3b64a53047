package host

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/round"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// A recording is the record of one round of a request: first the intent, then the outcome. The nil
// recording records nothing.
type recording struct {
	host *Host
	event.Record
	sent bool
}

// observeCall records the end of every call: its result, its error, or its refusal by a later stage.
func (h *Host) observeCall(next next) next {
	return func(ctx context.Context, c *call) (res mcp.Result, err error) {
		if h.opts.Recorder != nil {
			c.recording = &recording{host: h, Record: event.Record{Event: event.Intent, Start: time.Now()}}
		}
		res, err = next(ctx, c)
		c.recording.end(res, err)
		return res, c.approval.Wrap(err)
	}
}

// describe sets the action of the recording, and the ID that all rounds of the call share.
func (r *recording) describe(c *call) {
	if r == nil {
		return
	}
	start := r.Start
	r.Record = c.view.newRecord(c.request, c.action)
	r.Start = start
	if c.item != nil {
		r.Digest, r.Public = c.item.Digest, c.item.Public
	}
	if r.Answers, _ = c.request.Param("inputResponses"); round.Continues(c.request) {
		r.Event = event.Answer
		if st, _, err := c.continues(); err == nil && st.Call != "" {
			r.Call = st.Call
		}
	}
	if r.Call == "" {
		r.Call = c.view.host.callIDs.Next()
	}
}

// id returns the ID of the call in records, or "" without a Recorder.
func (c *call) id() string {
	if c.recording == nil {
		return ""
	}
	return c.recording.Call
}

// recordIntent records that the call is about to be sent. A Recorder that fails refuses the call.
func (h *Host) recordIntent(next next) next {
	return func(ctx context.Context, c *call) (mcp.Result, error) {
		if err := c.recording.intent(); err != nil {
			return nil, err
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

// decided keeps the decision of the policy about the request.
func (r *recording) decided(d *policy.Decision) {
	if r != nil {
		r.Rule, r.DryRun, r.Channel, r.Approver = d.Rule, d.DryRun, string(d.Channel), d.Approver
	}
}

// intent records that the request is about to be sent. The error refuses it.
func (r *recording) intent() error {
	if r == nil {
		return nil
	}
	intent := &r.Record
	if r.Event == event.Answer { // which may be kept, while this becomes the outcome
		answer := r.Record
		intent = &answer
	}
	if err := r.host.keep(intent); err != nil {
		return &hosterr.Error{Code: hosterr.CodeUnrecorded, Server: r.Server, Err: fmt.Errorf("record the request: %w", err)}
	}
	r.sent = true
	return nil
}

// end records the outcome.
func (r *recording) end(res mcp.Result, err error) {
	if r == nil {
		return
	}
	r.Event, r.Err, r.Duration, r.Answers = event.End, err, time.Since(r.Start), nil
	raw, _ := res.(mcp.RawResult)
	switch {
	case !r.sent && err == nil: // the host asks for approval
		r.Event, r.Result = event.Question, json.RawMessage(raw)
	case !r.sent:
		r.Event = event.Refused
	case err != nil:
	default:
		r.Result = json.RawMessage(raw)
		if raw.ResultType() == driver.ResultInputRequired {
			r.Event = event.Question
		}
	}
	_ = r.host.keep(&r.Record) // the request has ended: the Recorder reports its failure
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
