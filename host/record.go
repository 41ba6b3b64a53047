package host

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/host/policy"
)

// A Recorder keeps records of what callers do, and of what changes for them. Its methods are safe for
// concurrent use.
type Recorder interface {
	// Record takes a record. It returns at once, except for a [RecordIntent] that it stores before it
	// returns. An error with a RecordIntent refuses the request with [CodeUnrecorded]; a Recorder that
	// does not store intents returns nil for them. The host ignores other errors: the Recorder reports
	// them itself. A RecordIntent is valid until Record returns. Others can be kept: neither they nor what
	// they refer to change later.
	Record(r *Record) error
}

// A RecordEvent is the event that a [Record] describes.
type RecordEvent string

// Events of records.
const (
	RecordIntent   RecordEvent = "intent"   // a request is about to be sent to its server
	RecordEnd      RecordEvent = "end"      // a request has ended, with a result or an error
	RecordRefused  RecordEvent = "refused"  // a request was not sent
	RecordQuestion RecordEvent = "question" // the server asks the caller before it ends the request
	RecordAnswer   RecordEvent = "answer"   // a request with answers is about to be sent; else as RecordIntent
	RecordLogin    RecordEvent = "login"    // a login is required, has succeeded, or was refused
	RecordDrift    RecordEvent = "drift"    // a list of a server differs from the last one
	RecordConfig   RecordEvent = "config"   // a configuration is in force
	RecordAdmin    RecordEvent = "admin"    // an action of the operator
)

// A Record is an event with its action and outcome. Members that an event does not have are zero.
type Record struct {
	Event RecordEvent
	// Call is the same for all records of a request, with the rounds that continue it.
	Call string
	policy.Action
	// Method is the method of the request, and Public the name or URI that the caller has sent.
	Method, Public string
	// Client is a JSON object with the name and version that the client has sent. They are not verified.
	Client json.RawMessage
	// Digest is the SHA-256 digest of the definition in canonical form, zero without one.
	Digest [32]byte
	// Result is the result of RecordEnd and RecordQuestion: a JSON object.
	Result json.RawMessage
	// Answers are those of RecordAnswer: a JSON object with the keys of the questions.
	Answers json.RawMessage
	// Start is when the request arrived, or when the event was. Duration is how long a request took.
	Start    time.Time
	Duration time.Duration
	// Err is the error that the caller received, nil for a result.
	Err error
	// Rule names the rule of the policy that decided. DryRun lists the decisions of rules whose
	// mode is dry-run. Channel is how the user was asked, and Approver identifies who approved or
	// refused the request; see [Grant].
	Rule     string
	DryRun   []string
	Channel  string
	Approver string
	// Detail has further members of the event: a JSON object.
	Detail json.RawMessage

	mask func(r *Record, text string) string // see SetMask
}

// Mask returns a text without the secrets of the servers that the host has connected to: see
// [config.Server.Secrets]. A record of another host or of none is not masked.
func (r *Record) Mask(text string) string {
	if r.mask == nil {
		return text
	}
	return r.mask(r, text)
}

// SetMask sets the function of Mask. The host calls it before it passes the record to a [Recorder].
func (r *Record) SetMask(mask func(r *Record, text string) string) { r.mask = mask }

// maskRecord returns a text without the secrets of the servers and the tokens of the record's caller.
func (h *Host) maskRecord(r *Record, text string) string {
	text = h.mask(text)
	if u := h.set.Load().byName[r.Server]; u != nil && r.Caller != nil {
		text = maskAll(text, u.tokensOf(r.Caller))
	}
	return text
}

// Mask returns a text with "[secret]" in place of each secret of the servers that the host has connected
// to, and of each token that it has sent to them: see [config.Server.Secrets].
func (h *Host) Mask(text string) string {
	text = h.mask(text)
	for _, u := range h.all() {
		text = maskAll(text, u.tokensOf(nil))
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
func (h *Host) Record(r *Record) error {
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
func (h *Host) keep(r *Record) error {
	err := h.opts.Recorder.Record(r)
	if err != nil {
		h.counts.lost.Add(1)
	}
	return err
}
