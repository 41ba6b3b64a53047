package host

import (
	"time"

	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// maskRecord returns a text without the secrets of the servers and the tokens of the record's caller.
func (h *Host) maskRecord(r *event.Record, text string) string {
	text = h.servers.Mask(text)
	if u := h.servers.Current().Named(r.Server); u != nil && r.Caller != nil {
		text = u.MaskTokens(text, r.Caller)
	}
	return text
}

// record passes a record to [Options.Recorder], with the time unless it has one. It is for events
// that no request of a [View] causes, such as logins. The error is that of the Recorder.
func (h *Host) record(r *event.Record) error {
	if h.opts.Recorder == nil {
		return nil
	}
	if r.Start.IsZero() {
		r.Start = time.Now()
	}
	r.SetMask(h.observe.Mask)
	return h.observe.Store(r)
}

// refused records a request that belongs to no known item, and returns its error.
func (v *View) refused(req *mcp.Request, kind policy.ActionKind, public string, err error) error {
	a := &policy.Action{Kind: kind, Caller: v.caller, Arguments: call.Arguments(req)}
	return v.host.observe.Refused(req, a, public, err)
}
