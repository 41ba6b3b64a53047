package host

import (
	"time"

	"github.com/patchbay-mcp/patchbay/host/event"
)

// maskRecord returns a text without the secrets of the servers and the tokens of the record's caller.
func (h *Host) maskRecord(r *event.Record, text string) string {
	text = h.servers.Mask(text)
	if u := h.servers.Current().Named(r.Server); u != nil && r.Caller != nil {
		text = u.MaskTokens(text, r.Caller)
	}
	return text
}

// Mask returns a text with "[secret]" in place of each secret of the servers that the host has connected
// to, and of each token that it has sent to them: see [config.Server.Secrets].
func (h *Host) Mask(text string) string {
	text = h.servers.Mask(text)
	for _, u := range h.servers.All() {
		text = u.MaskTokens(text, nil)
	}
	return text
}

// Record passes a record to [Options.Recorder], with the time unless it has one. It is for events
// that no request of a [View] causes, such as logins. The error is that of the Recorder.
func (h *Host) Record(r *event.Record) error {
	if h.opts.Recorder == nil {
		return nil
	}
	if r.Start.IsZero() {
		r.Start = time.Now()
	}
	r.SetMask(h.masks)
	return h.keep(r)
}

// keep passes a record to the Recorder, and counts those that are lost.
func (h *Host) keep(r *event.Record) error {
	err := h.opts.Recorder.Record(r)
	if err != nil {
		h.counts.lost.Add(1)
	}
	return err
}
