// Package event declares the records that a host makes of calls and changes, for audit logs.
package event

import (
	"encoding/json"
	"time"

	"github.com/patchbay-mcp/patchbay/host/policy"
)

// A Recorder stores records of calls, and of changes to servers and settings. Its methods must be safe
// for concurrent use.
type Recorder interface {
	// Record takes a record. It must return at once, unless it stores an [Intent] before it returns. An
	// error for an Intent refuses the request with hosterr.CodeUnrecorded; a Recorder that does not store
	// intents must return nil for them. The host ignores other errors: the Recorder must report them
	// itself. An Intent is valid until Record returns. Other records, and the values that they refer to,
	// never change.
	Record(r *Record) error
}

// A Kind is the kind of event that a [Record] describes.
type Kind string

// Events of records.
const (
	Intent   Kind = "intent"   // a request is about to be sent to its server
	End      Kind = "end"      // a request ended, with a result or an error
	Refused  Kind = "refused"  // a request was not sent
	Question Kind = "question" // the server asks the caller before it ends the request
	Answer   Kind = "answer"   // a request with answers is about to be sent; else like Intent
	Login    Kind = "login"    // a login is required, succeeded, or was refused
	Drift    Kind = "drift"    // a list of a server changed
	Config   Kind = "config"   // a configuration is in force
	Admin    Kind = "admin"    // an action of the operator
)

// A Record is an event with its action and outcome. Fields that do not apply to an event are zero.
type Record struct {
	Event Kind
	// Call is the same for all records of a request, with the rounds that continue it.
	Call string
	policy.Action
	// Method is the method of the request, and Public the name or URI that the caller sent.
	Method, Public string
	// Client is a JSON object with the name and version that the client sent. They are not verified.
	Client json.RawMessage
	// Digest is the SHA-256 digest of the definition in canonical form, or zero without a definition.
	Digest [32]byte
	// Result is the result of End and Question: a JSON object.
	Result json.RawMessage
	// Answers are the answers of Answer: a JSON object with the keys of the questions.
	Answers json.RawMessage
	// Start is the time at which the request arrived or the event happened. Duration is the time that a
	// request took.
	Start    time.Time
	Duration time.Duration
	// Err is the error that the caller received, or nil for a result.
	Err error
	// Rule names the rule of the policy that decided. DryRun lists the decisions of rules whose
	// mode is dry-run. Channel is how the user was asked, and Approver identifies who approved or
	// refused the request; see approval.Grant.
	Rule     string
	DryRun   []string
	Channel  string
	Approver string
	// Detail contains further members of the event: a JSON object.
	Detail json.RawMessage

	mask func(r *Record, text string) string // see SetMask
}

// Mask returns a text without the secrets of the servers that the host connected to: see
// [config.Server.Secrets]. A record without SetMask is not masked.
func (r *Record) Mask(text string) string {
	if r.mask == nil {
		return text
	}
	return r.mask(r, text)
}

// SetMask sets the function of Mask. The host calls it before it passes the record to a [Recorder].
func (r *Record) SetMask(mask func(r *Record, text string) string) { r.mask = mask }
