// Package approval declares the requests that wait for a user before a host sends them, the
// answers, and the grants. With its [Approvals], an operator can answer from any process.
package approval

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/host/policy"
)

// An Answer is the answer of a user to a request for approval.
type Answer string

// Answers to requests for approval.
const (
	Once    Answer = "once"    // this request
	Session Answer = "session" // requests for the same item in this session
	Always  Answer = "always"  // requests for the same item, until the grant is revoked
	Deny    Answer = "deny"
)

// A Pending is a request that waits for its approval. Servers and clients chose texts in it, which
// must not be trusted: they may contain characters that change how they are displayed.
type Pending struct {
	ID      string    `json:"id"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires"`
	// Principal contains the subject and the issuer of the caller. It is empty for the local user.
	Principal string `json:"principal,omitzero" jsonschema:"who sends the request; absent for the local user"`
	// Client is the name and version that the client sent. They are not verified.
	Client string `json:"client,omitzero" jsonschema:"what the client calls itself; not verified"`
	Server string `json:"server"`
	Method string `json:"method"`
	// Target is the name or URI that the server uses for the item.
	Target string `json:"target" jsonschema:"name or URI that the server uses"`
	// Arguments are exactly the arguments that the server receives: canonical JSON, except that
	// numbers are unchanged. For a method without the member arguments, they are its params; see
	// [policy.Action].
	Arguments json.RawMessage `json:"arguments,omitzero" jsonschema:"what the server receives, without secrets"`
	// Meta is a JSON object with the members of `_meta` that the server receives, except the trace
	// context. Nil means that the server receives no other member.
	Meta json.RawMessage `json:"meta,omitzero" jsonschema:"members of _meta that the server receives"`
	// Definition is the definition as the server sent it. Its annotations are claims.
	Definition json.RawMessage `json:"definition,omitzero" jsonschema:"as the server sent it; not trusted"`
	Rule       string          `json:"rule,omitzero"`
	Reason     string          `json:"reason,omitzero"`
	// Answers are the answers that the request accepts.
	Answers []Answer `json:"answers" jsonschema:"those that can be given"`
}

// A Record is the entry of a Pending in a state.Store, under its ID and [KindPending].
type Record struct {
	Pending
	Answer Answer `json:"answer,omitzero"` // empty until the request is answered
	// Approver identifies who answered, in the form of [ApproverName].
	Approver string `json:"approver,omitzero"`
	// Void is the reason why the request can no longer be approved.
	Void string `json:"void,omitzero"`
}

// A Grant is an approval for further requests. It is void if the definition of its item, its rule
// or the command or URL of its server changes.
type Grant struct {
	ID        string         `json:"id"`
	Created   time.Time      `json:"created"`
	Expires   time.Time      `json:"expires,omitzero" jsonschema:"absent for never"`
	Principal string         `json:"principal,omitzero" jsonschema:"absent for the local user"`
	Server    string         `json:"server"`
	Method    string         `json:"method"`
	Target    string         `json:"target"`
	Rule      string         `json:"rule,omitzero"`
	Scope     Answer         `json:"scope" jsonschema:"session or always"`
	Channel   policy.Channel `json:"channel" jsonschema:"how it was approved"`
	// Approver identifies who gave the grant: the user passed to [Approvals.Decide], the principal
	// of a client, or host.Options.WebhookName. It may contain characters that change how it is
	// displayed, and is empty for a grant of an earlier version.
	Approver string `json:"approver,omitzero" jsonschema:"who approved it: OS user, principal, or webhook host"`
	// Definition is the SHA-256 digest of the definition in canonical form, in hexadecimal digits.
	Definition string `json:"definition" jsonschema:"digest: the grant is void if the definition changes"`
	// Session is the SHA-256 digest of the session, for the scope [Session].
	Session string `json:"session,omitzero"`
}

// A Verdict is the decision of a user about a [policy.Action]; see host.Options.Consent.
type Verdict struct {
	// Allow allows the action.
	Allow bool
	// Reason is the reason of a refusal. The caller receives it.
	Reason string
}

// maxApprover limits the name of an approver, in bytes, because the subject of a principal may be
// of any length.
const maxApprover = 256

// ApproverName returns the name of an approver as records and grants contain it: valid UTF-8 of at
// most 256 bytes.
func ApproverName(name string) string {
	if len(name) > maxApprover {
		name = name[:maxApprover-len("…")]
		return strings.ToValidUTF8(name, "") + "…"
	}
	return strings.ToValidUTF8(name, "\uFFFD")
}
