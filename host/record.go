package host

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/host/event"
)

// maskRecord returns a text without the secrets of the servers and the tokens of the record's caller.
func (h *Host) maskRecord(r *event.Record, text string) string {
	text = h.mask(text)
	if u := h.set.Load().byName[r.Server]; u != nil && r.Caller != nil {
		text = maskAll(text, u.logins.TokensOf(r.Caller))
	}
	return text
}

// Mask returns a text with "[secret]" in place of each secret of the servers that the host has connected
// to, and of each token that it has sent to them: see [config.Server.Secrets].
func (h *Host) Mask(text string) string {
	text = h.mask(text)
	for _, u := range h.all() {
		text = maskAll(text, u.logins.TokensOf(nil))
	}
	return text
}

func (h *Host) mask(text string) string { return maskAll(text, h.secrets()) }

func maskAll(text string, secrets []string) string {
	for _, secret := range secrets {
		text = strings.ReplaceAll(text, secret, "[secret]")
	}
	return text
}

// secrets returns the secrets of all servers, the longest first: one may contain another.
func (h *Host) secrets() []string {
	if all := h.allSecrets.Load(); all != nil {
		return *all
	}
	h.secretsMu.Lock()
	defer h.secretsMu.Unlock()
	var all []string
	for _, u := range h.all() {
		u.secretsMu.Lock()
		all = append(all, u.secrets...)
		u.secretsMu.Unlock()
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	all = slices.Compact(all)
	h.allSecrets.Store(&all)
	return all
}

// forgetSecrets makes the next record use the secrets of all servers again, of which one has changed.
func (h *Host) forgetSecrets() {
	h.secretsMu.Lock()
	defer h.secretsMu.Unlock()
	h.allSecrets.Store(nil)
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
