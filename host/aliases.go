package host

import (
	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/policy"
)

// Names of package [event].
type (
	Record   = event.Record
	Recorder = event.Recorder
)

// Names of package [hosterr].
type (
	Error     = hosterr.Error
	ErrorCode = hosterr.Code
)

// Names of package [hosterr].
const (
	CodeApprovalExpired = hosterr.CodeApprovalExpired
	CodeApprovalNeeded  = hosterr.CodeApprovalNeeded
	CodeAuthRequired    = hosterr.CodeAuthRequired
	CodeCallLost        = hosterr.CodeCallLost
	CodeConfigError     = hosterr.CodeConfigError
	CodeCrashLoop       = hosterr.CodeCrashLoop
	CodeDenied          = hosterr.CodeDenied
	CodeInvalidResult   = hosterr.CodeInvalidResult
	CodeLimited         = hosterr.CodeLimited
	CodeQuarantined     = hosterr.CodeQuarantined
	CodeStarting        = hosterr.CodeStarting
	CodeTimeout         = hosterr.CodeTimeout
	CodeTooLarge        = hosterr.CodeTooLarge
	CodeUnavailable     = hosterr.CodeUnavailable
	CodeUnrecorded      = hosterr.CodeUnrecorded
)

// Names of package [policy].
type (
	Action     = policy.Action
	ActionKind = policy.ActionKind
	Caller     = policy.Caller
	Channel    = policy.Channel
	Decision   = policy.Decision
	Fields     = policy.Fields
	Outcome    = policy.Outcome
	Policy     = policy.Policy
	Redaction  = policy.Redaction
)

// Names of package [policy].
const (
	ActionCall     = policy.ActionCall
	ActionComplete = policy.ActionComplete
	ActionGet      = policy.ActionGet
	ActionList     = policy.ActionList
	ActionOther    = policy.ActionOther
	ActionQuestion = policy.ActionQuestion
	ActionRead     = policy.ActionRead
	ActionResult   = policy.ActionResult
	ChannelClient  = policy.ChannelClient
	ChannelConsole = policy.ChannelConsole
	ChannelWebhook = policy.ChannelWebhook
	FieldArguments = policy.FieldArguments
	FieldClient    = policy.FieldClient
	FieldExternal  = policy.FieldExternal
	FieldQuestion  = policy.FieldQuestion
	FieldRecent    = policy.FieldRecent
	FieldResult    = policy.FieldResult
	FieldTime      = policy.FieldTime
	OutcomeAllow   = policy.OutcomeAllow
	OutcomeAsk     = policy.OutcomeAsk
	OutcomeDeny    = policy.OutcomeDeny
	OutcomeHide    = policy.OutcomeHide
)
