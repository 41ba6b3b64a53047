// Package policy declares who asks a host for what, and how a policy decides about it.
package policy

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A Caller identifies for whom requests are made. Its fields select the connections that serve it: data
// of a principal never reaches the connections of another principal, unless the configuration shares
// the server.
type Caller struct {
	// Principal is the authenticated caller; nil means the local user.
	Principal *mcp.Principal
	// Session identifies the session or connection of the caller; it may be empty. Only servers with
	// "share": "session" depend on it.
	Session string
	// Profile is the name of a profile of the configuration: the servers and tools that the caller
	// may use. Default: all.
	Profile string
	// Server is the name of the only server that the caller may use, with its names and URIs unchanged. The
	// profile must contain it, too.
	Server string
	// Workspace is the directory that the client works in, if it is on this machine: an absolute path.
	// Commands of the user's own configuration run in it, with it as ${workspaceFolder}, so callers
	// with different directories share no process. Default: the current directory.
	Workspace string
	// Single leaves names and URIs unchanged, like Server, while the configuration contains a single
	// server.
	Single bool
	// Servers are the names of the servers that the caller may use; nil means all.
	Servers []string
	// Only are the kinds of requests that the caller may make: ActionCall (tools, and their tasks),
	// ActionGet (prompts) and ActionRead (resources and skills). Everything else is invisible to the
	// caller. Default: all kinds, and the methods of other extensions.
	Only []ActionKind
	// ReadOnly hides the tools that do not declare readOnlyHint. It refuses the methods of other
	// extensions, and requests that cancel or update tasks. The hint is a claim of the server.
	ReadOnly bool
}

// Key returns a key that differs between different principals.
func (c *Caller) Key() string { return c.Principal.Key() }

// IsLimited reports whether the caller may use less than its profile contains.
func (c *Caller) IsLimited() bool { return c.Servers != nil || c.Only != nil || c.ReadOnly }

// HasServer reports whether the caller may use a server, as far as Servers limits it.
func (c *Caller) HasServer(name string) bool {
	return c.Servers == nil || slices.Contains(c.Servers, name)
}

// May reports whether the caller may make requests of a kind.
func (c *Caller) May(kind ActionKind) bool { return c.Only == nil || slices.Contains(c.Only, kind) }

// A Channel is a way to ask for the approval of a request.
type Channel string

// Channels of approvals.
const (
	// ChannelClient asks the user of the caller's own client, so the approval is only as trustworthy as
	// the client. It requires a client with form elicitation.
	ChannelClient Channel = "client"
	// ChannelConsole waits for the operator: see host.Host.Approvals.
	ChannelConsole Channel = "console"
	// ChannelWebhook asks host.Options.Webhook.
	ChannelWebhook Channel = "webhook"
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
	ActionEvent    ActionKind = "event"    // events/poll, events/stream, events/subscribe
	ActionOther    ActionKind = "other"    // a method of an extension
	ActionResult   ActionKind = "result"   // a server responded; the caller has not received it
	ActionQuestion ActionKind = "question" // a server asks the caller
)

// An Action is a request before it is sent to a server, or a response of a server before the caller
// receives it. A Policy must not change it.
type Action struct {
	Kind ActionKind
	// Method is the method of the request, or of the list that an item is in.
	Method string
	Caller *Caller
	// Client contains the name and version that the client sent. They are not verified.
	Client mcp.Implementation
	// Server is the name of the server in the configuration.
	Server string
	// Target is the name or URI that the server uses for the tool, prompt, resource or type of events.
	// For the result and the questions of a task, it is the tool that was called, or empty if the tool
	// is unknown: see [Action.LacksTool].
	Target string
	// Definition is the definition as the server sent it: JSON, or nil without a definition. Its
	// annotations are claims of the server.
	Definition json.RawMessage
	// Digest is the SHA-256 digest of the definition in canonical form, zero without one.
	Digest [32]byte
	// Arguments are the arguments of the request: JSON, or nil without arguments. For a method
	// without the member arguments, such as completion/complete or a method of an extension, they
	// are the params that the caller sent, without `_meta` and `requestState`. For ActionRead, they
	// also omit the URI, which is Target, and `inputResponses`.
	Arguments json.RawMessage
	// Result is the result of ActionResult: a JSON object. An error of the server is {"error": …}.
	Result json.RawMessage
	// Question is the input request of ActionQuestion: a JSON object with method and params.
	Question json.RawMessage
	// Recent contains the servers from which the caller received results, questions, progress, log
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
// or whose definition changed since the call.
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
	// Rule names the rule that decided, for messages and records.
	Rule string
	// RuleID identifies the rule with its content: a grant is void if it changes. Default: Rule.
	RuleID string
	// Reason is the reason of the decision. The caller receives it.
	Reason string
	// Channel is the only channel by which OutcomeAsk may be approved. Default: the channels of
	// host.Options.Channels, in order.
	Channel Channel
	// Approver identifies who approved or refused the request through Channel; see
	// approval.Grant. The host sets it; policies must leave it empty.
	Approver string
	// Redact lists the parts of a result that the caller must not receive.
	Redact []Redaction
	// Undecided means that OutcomeDeny stands for a failure, such as a program that did not answer. A request
	// is refused. The events of a subscription wait until the policy, which is asked again, could decide.
	Undecided bool
	// DryRun lists the decisions of rules in dry-run mode, such as "deny by rule no-deletes".
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

// Members that differ between requests of a caller for the same item.
const (
	FieldClient Fields = 1 << iota
	FieldArguments
	FieldResult
	FieldQuestion
	FieldRecent
	FieldTime
	FieldExternal // the policy asks another process or host
)

// A Policy decides which actions are allowed. Its methods are safe for concurrent use.
type Policy interface {
	// Decide returns the decision about an action: about a request before it is sent, about a result
	// before the caller receives it. It returns at once, unless it Needs FieldExternal.
	Decide(ctx context.Context, a *Action) Decision
	// Needs returns the members that Decide reads of actions of a kind, among the members that differ
	// between requests. If it returns 0, a decision applies to all requests of a caller for the same
	// definition.
	Needs(k ActionKind) Fields
	// Epoch returns a number that changes when the policy decides differently. Decisions and approvals
	// of another epoch are void.
	Epoch() uint64
}
