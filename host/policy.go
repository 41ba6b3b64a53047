package host

import (
	"context"
	"encoding/json"
	"time"
)

// An ActionKind is what an [Action] does.
type ActionKind string

// Kinds of actions.
const (
	ActionCall     ActionKind = "call"     // tools/call
	ActionRead     ActionKind = "read"     // resources/read
	ActionGet      ActionKind = "get"      // prompts/get
	ActionComplete ActionKind = "complete" // completion/complete
	ActionOther    ActionKind = "other"    // a method of an extension
)

// An Action is a request before it is sent to a server.
type Action struct {
	Kind   ActionKind
	Caller *Caller
	// Server is the name of the server in the configuration.
	Server string
	// Target is the name or URI by which the server knows the tool, prompt or resource.
	Target string
	// Definition is the definition as the server sent it: JSON, nil if there is none. Its annotations
	// are claims of the server.
	Definition json.RawMessage
	// Arguments are those of the request: JSON, nil if there are none.
	Arguments json.RawMessage
}

// A Verdict is the decision about an [Action].
type Verdict struct {
	// Allow allows the action.
	Allow bool
	// Reason says why it is refused. The caller sees it.
	Reason string
}

// A Policy decides which actions are allowed. Its methods are safe for concurrent use.
type Policy interface {
	// Decide returns the decision about an action before the request is sent. An error refuses it.
	Decide(ctx context.Context, a *Action) (*Verdict, error)
}

// A Recorder keeps a record of actions. Its methods are safe for concurrent use and do not block.
type Recorder interface {
	// Record records an action that has ended or was refused.
	Record(r *Record)
}

// A Record is an action and its outcome.
type Record struct {
	Action
	// Start is when the request arrived, and Duration how long it took.
	Start    time.Time
	Duration time.Duration
	// Err is the error that the caller received, nil for a result.
	Err error
}
