package host

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A recording is the record of one round of a request: first the intent, then the outcome. The nil
// recording records nothing.
type recording struct {
	Record
	sent bool
}

// A callIDs makes ids: a random prefix, and a number. It is safe for concurrent use.
type callIDs struct {
	prefix string
	last   atomic.Uint64
}

func newCallIDs() *callIDs { return &callIDs{prefix: rand.Text()[:12] + "-"} }

func (c *callIDs) next() string { return c.prefix + strconv.FormatUint(c.last.Add(1), 36) }

// newRecording returns the recording of a request, whose route gets its id.
func (v *View) newRecording(req *mcp.Request, r *route, a *Action) *recording {
	if v.host.opts.Recorder == nil {
		return nil
	}
	rec := &recording{Record: v.newRecord(req, a)}
	if r.item != nil {
		rec.Digest, rec.Public = r.item.Digest, r.item.Public
	}
	if rec.Answers, _ = req.Param("inputResponses"); continues(req) {
		rec.Event = RecordAnswer
		if st, _, err := v.openState(req, r); err == nil && st.Call != "" {
			rec.Call = st.Call
		}
	}
	if rec.Call == "" {
		rec.Call = v.host.callIDs.next()
	}
	r.call = rec.Call
	return rec
}

// newRecord returns the intent of a request.
func (v *View) newRecord(req *mcp.Request, a *Action) Record {
	r := Record{Event: RecordIntent, Action: *a, Method: req.Method, Start: time.Now(), host: v.host}
	r.Client, _ = req.Meta(wire.MetaClientInfo)
	return r
}

// decided keeps the decision of the policy about the request.
func (r *recording) decided(d *Decision) {
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
	if r.Event == RecordAnswer { // which may be kept, while this becomes the outcome
		answer := r.Record
		intent = &answer
	}
	if err := r.host.keep(intent); err != nil {
		return &Error{Code: CodeUnrecorded, Server: r.Server, Err: fmt.Errorf("record the request: %w", err)}
	}
	r.sent = true
	return nil
}

// end records the outcome.
func (r *recording) end(res mcp.Result, err error) {
	if r == nil {
		return
	}
	r.Event, r.Err, r.Duration, r.Answers = RecordEnd, err, time.Since(r.Start), nil
	raw, _ := res.(mcp.RawResult)
	switch {
	case !r.sent && err == nil: // the host asks for approval
		r.Event, r.Result = RecordQuestion, json.RawMessage(raw)
	case !r.sent:
		r.Event = RecordRefused
	case err != nil:
	default:
		r.Result = json.RawMessage(raw)
		if raw.ResultType() == mcp.ResultInputRequired {
			r.Event = RecordQuestion
		}
	}
	_ = r.host.keep(&r.Record) // the request has ended: the Recorder reports its failure
}

// refused records a request that belongs to no known item, and returns its error.
func (v *View) refused(req *mcp.Request, kind ActionKind, public string, err error) error {
	if v.host.opts.Recorder == nil {
		return err
	}
	a := &Action{Kind: kind, Caller: v.caller}
	a.Arguments = argumentsOf(req)
	r := v.newRecord(req, a)
	r.Event, r.Call, r.Public, r.Err = RecordRefused, v.host.callIDs.next(), public, err
	r.Duration = time.Since(r.Start)
	_ = v.host.keep(&r) // as for an end
	return err
}
