package host

import (
	"context"
	"encoding/json"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// An ActionKind is the kind of an [Action].
type ActionKind string

// Kinds of actions.
const (
	ActionList     ActionKind = "list"     // an item becomes visible
	ActionCall     ActionKind = "call"     // tools/call
	ActionRead     ActionKind = "read"     // resources/read
	ActionGet      ActionKind = "get"      // prompts/get
	ActionComplete ActionKind = "complete" // completion/complete
	ActionOther    ActionKind = "other"    // a method of an extension
	ActionResult   ActionKind = "result"   // a server has responded; the caller has not received it
	ActionQuestion ActionKind = "question" // a server asks the caller
)

// An Action is a request before it is sent to a server, or what the server has responded with before
// the caller receives it. A Policy must not change it.
type Action struct {
	Kind ActionKind
	// Method is the method of the request, or of the list that an item is in.
	Method string
	Caller *Caller
	// Client is the name and version that the client has sent. They are not verified.
	Client mcp.Implementation
	// Server is the name of the server in the configuration.
	Server string
	// Target is the name or URI that the server uses for the tool, prompt or resource. For the result and
	// the questions of a task, it is the tool that was called, or empty if the tool is unknown: see
	// [Action.LacksTool].
	Target string
	// Definition is the definition as the server sent it: JSON, nil if there is none. Its annotations
	// are claims of the server.
	Definition json.RawMessage
	// Digest is the SHA-256 digest of the definition in canonical form, zero without one.
	Digest [32]byte
	// Arguments are the arguments of the request: JSON, or nil if there are none. For a method
	// without the member arguments, such as completion/complete or a method of an extension, they
	// are the params that the caller sent, without `_meta` and `requestState`. For ActionRead, they
	// also omit the URI, which is Target, and `inputResponses`.
	Arguments json.RawMessage
	// Result is the result of ActionResult: a JSON object. An error of the server is {"error": …}.
	Result json.RawMessage
	// Question is the input request of ActionQuestion: a JSON object with method and params.
	Question json.RawMessage
	// Recent are the servers from which the caller has received results, questions, progress, log
	// messages or notifications of topics in the last 30 minutes.
	Recent []string
	// Time is when the policy is asked.
	Time time.Time
}

// LacksTool reports whether the action is the result or a question of a task whose tool is unknown, because
// the task was not created through this host, or was created by an older version. A policy must then
// decide as if the task could belong to any tool of the server. The definition may be unknown although
// Target is set: see [Action.LacksDefinition].
func (a *Action) LacksTool() bool { return a.isOfTask() && a.Target == "" }

// LacksDefinition reports whether the action is the result or a question of a task whose tool is unknown,
// or whose definition has changed since the call.
func (a *Action) LacksDefinition() bool { return a.isOfTask() && len(a.Definition) == 0 }

func (a *Action) isOfTask() bool {
	if a.Kind != ActionResult && a.Kind != ActionQuestion {
		return false
	}
	switch a.Method {
	case wire.MethodTasksGet, "tasks/update", wire.MethodTasksCancel, wire.MethodTasksResult:
		return true
	}
	return false
}

// A Verdict is the decision of a user about an [Action]; see [Options.Consent].
type Verdict struct {
	// Allow allows the action.
	Allow bool
	// Reason is the reason of a refusal. The caller receives it.
	Reason string
}

// An Outcome is the effect of a [Decision]. The zero value is OutcomeDeny.
type Outcome uint8

// Outcomes of decisions.
const (
	OutcomeDeny  Outcome = iota // the action is refused
	OutcomeAllow                // the action continues
	OutcomeAsk                  // the action continues after its approval; requests only
	OutcomeHide                 // the item is not visible: for the caller, it does not exist
)

// String returns "deny", "allow", "ask" or "hide".
func (o Outcome) String() string {
	if int(o) >= len(outcomes) {
		return "unknown"
	}
	return outcomes[o]
}

var outcomes = [...]string{OutcomeDeny: "deny", OutcomeAllow: "allow", OutcomeAsk: "ask", OutcomeHide: "hide"}

// A Decision is the decision of a [Policy] about an [Action]. The zero value denies it.
type Decision struct {
	Do Outcome
	// Rule names the rule that has decided, for messages and records.
	Rule string
	// RuleID identifies the rule with its content: a grant is void if it changes. Default: Rule.
	RuleID string
	// Reason is the reason of the decision. The caller receives it.
	Reason string
	// Channel is the only channel by which OutcomeAsk may be approved. Default: those of
	// [Options.Channels], in order.
	Channel Channel
	// Approver identifies who approved or refused the request through Channel; see [Grant]. The
	// host sets it; policies leave it empty.
	Approver string
	// Redact are the parts of a result that the caller does not receive.
	Redact []Redaction
	// DryRun are the decisions of rules that are tried only, such as "deny by rule no-deletes".
	DryRun []string
}

// A Redaction is a part of results that is replaced by "[redacted]".
type Redaction struct {
	// Pointer is a JSON pointer into structuredContent, and into texts of the result that are JSON; the
	// step * stands for all members or elements. The text of a removed value is removed from the other
	// texts too. Default: the known forms of secrets, such as private keys and tokens, in all texts.
	Pointer string
	// MustApply denies a result if pointers cannot be applied to all of its contents: an image,
	// text other than JSON objects and arrays, or JSON that is nested too deeply.
	MustApply bool
}

// Fields are the members of an [Action] that a [Policy] reads.
type Fields uint8

// Members that differ between requests for the same item of one caller.
const (
	FieldClient Fields = 1 << iota
	FieldArguments
	FieldResult
	FieldQuestion
	FieldRecent
	FieldTime
	FieldExternal // what the policy asks elsewhere
)

// A Policy decides which actions are allowed. Its methods are safe for concurrent use.
type Policy interface {
	// Decide returns the decision about an action: about a request before it is sent, about a result
	// before the caller receives it. It returns at once, unless it Needs FieldExternal.
	Decide(ctx context.Context, a *Action) Decision
	// Needs returns the members of actions of a kind that Decide reads, of those that differ between
	// requests. Without any, a decision is used for all requests of a caller for the same definition.
	Needs(k ActionKind) Fields
	// Epoch returns a number that is different if the policy decides differently. Decisions and
	// approvals of another epoch are void.
	Epoch() uint64
}
