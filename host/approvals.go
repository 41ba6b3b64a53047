package host

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/host/state"
)

// Kinds of entries in a [state.Store].
const (
	statePending = "approval" // requests that wait; by id
	stateUsed    = "approval used"
	stateGrant   = "grant" // by grantKey
)

// approvalTime is how long a request waits for its approval, and how long an approval by the caller's
// client is valid.
const approvalTime = 5 * time.Minute

// An Answer is the answer of a user to a request for approval.
type Answer string

// Answers to requests for approval.
const (
	AnswerOnce    Answer = "once"    // this request
	AnswerSession Answer = "session" // requests for the same item in this session
	AnswerAlways  Answer = "always"  // requests for the same item, until the grant is revoked
	AnswerDeny    Answer = "deny"
)

// A Pending is a request that waits for its approval. Texts of servers and clients in it are not
// trusted: they may have characters that change how they are displayed.
type Pending struct {
	ID      string    `json:"id"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires"`
	// Principal is the subject and the issuer of the caller, empty for the local user.
	Principal string `json:"principal,omitzero"`
	// Client is the name and version that the client has sent. They are not verified.
	Client string `json:"client,omitzero"`
	Server string `json:"server"`
	Method string `json:"method"`
	// Target is the name or URI that the server uses for the item.
	Target string `json:"target"`
	// Arguments are exactly the arguments that the server receives: canonical JSON, except that
	// numbers are unchanged. For a method without the member arguments, they are its params; see
	// [policy.Action].
	Arguments json.RawMessage `json:"arguments,omitzero"`
	// Meta is a JSON object with the members of `_meta` that the server receives, except the trace
	// context. Nil means that there are none.
	Meta json.RawMessage `json:"meta,omitzero"`
	// Definition is the definition as the server sent it. Its annotations are claims.
	Definition json.RawMessage `json:"definition,omitzero"`
	Rule       string          `json:"rule,omitzero"`
	Reason     string          `json:"reason,omitzero"`
	// Answers are those that can be given.
	Answers []Answer `json:"answers"`
}

// A pendingEntry is the entry of a Pending.
type pendingEntry struct {
	Pending
	Answer   Answer `json:"answer,omitzero"`
	Approver string `json:"approver,omitzero"` // identifies who answered
	// Void is why the request cannot be approved any more.
	Void string `json:"void,omitzero"`
}

// A Grant is an approval for further requests. It is void if the definition of its item, its rule or
// the command or URL of its server changes.
type Grant struct {
	ID        string         `json:"id"`
	Created   time.Time      `json:"created"`
	Expires   time.Time      `json:"expires,omitzero"` // zero for never
	Principal string         `json:"principal,omitzero"`
	Server    string         `json:"server"`
	Method    string         `json:"method"`
	Target    string         `json:"target"`
	Rule      string         `json:"rule,omitzero"`
	Scope     Answer         `json:"scope"` // AnswerSession or AnswerAlways
	Channel   policy.Channel `json:"channel"`
	// Approver identifies who gave the grant: the user passed to [Approvals.Decide], the principal
	// of a client, or [Options.WebhookName]. It may contain characters that change how it is
	// displayed, and is empty for a grant of an earlier version.
	Approver string `json:"approver,omitzero"`
	// Definition is the SHA-256 digest of the definition in canonical form, in hexadecimal digits.
	Definition string `json:"definition"`
	// Session is the SHA-256 digest of the session of AnswerSession.
	Session string `json:"session,omitzero"`
}

// An Approvals gives access to the requests that wait for an approval by [policy.ChannelConsole] or
// [policy.ChannelWebhook], and to the grants, of all hosts that share a state.Store, in any process. It
// is safe for concurrent use.
type Approvals struct {
	state state.Store
	woken func() // called after each answer; nil if no host of this process waits for one
}

// NewApprovals returns the Approvals of a state.Store.
func NewApprovals(s state.Store) *Approvals { return &Approvals{state: s} }

// Approvals returns the requests that wait for approval, and the grants.
func (h *Host) Approvals() *Approvals { return &Approvals{h.opts.State, h.approver.answers.wake} }

// ErrNotPending reports that no request with the id waits for approval: it was decided, canceled, or
// has expired.
var ErrNotPending = errors.New("host: no request with this id waits for approval")

// ErrNoGrant reports that there is no grant with the id.
var ErrNoGrant = errors.New("host: no grant has this id")

// Pending returns the requests that wait, the oldest first.
func (a *Approvals) Pending(ctx context.Context) (all []Pending, err error) {
	now := time.Now()
	for e, err := range a.state.List(ctx, statePending) {
		if err != nil {
			return nil, fmt.Errorf("list requests for approval: %w", err)
		}
		var p pendingEntry
		switch {
		case json.Unmarshal(e.Value, &p) != nil, now.After(p.Expires): // of a process that was killed
			_ = a.state.CompareAndSet(ctx, statePending, e.Key, e.Version, nil) // else the next time
		case p.Answer == "" && p.Void == "":
			all = append(all, p.Pending)
		}
	}
	slices.SortStableFunc(all, func(x, y Pending) int { return x.Created.Compare(y.Created) })
	return all, nil
}

// Decide answers a request that waits. The host that holds it sends or refuses it within about a
// second, and at once after Decide of [Host.Approvals]. The approver identifies who answers in
// records and grants, such as a user of the operating system; Decide truncates it to 256 bytes. The
// error is [ErrNotPending] if the request no longer waits.
func (a *Approvals) Decide(ctx context.Context, id string, answer Answer, approver string) error {
	for {
		value, version, err := a.state.Get(ctx, statePending, cmp.Or(id, "-"))
		if err != nil {
			return fmt.Errorf("decide about %q: %w", id, err)
		}
		var p pendingEntry
		switch {
		case version != 0 && json.Unmarshal(value, &p) == nil && p.Void != "":
			return fmt.Errorf("decide about %.64q: %w: void: %s", id, ErrNotPending, p.Void)
		case version == 0 || json.Unmarshal(value, &p) != nil || p.Answer != "" || time.Now().After(p.Expires):
			return fmt.Errorf("decide about %.64q: %w", id, ErrNotPending)
		case !slices.Contains(p.Answers, answer):
			why := ""
			if answer == AnswerSession {
				why = ": this client has no session"
			}
			return fmt.Errorf("decide about %q: invalid answer %.64q: must be one of %s%s", id, answer,
				answersText(p.Answers), why)
		}
		p.Answer, p.Approver = answer, cutApprover(approver)
		err = a.state.CompareAndSet(ctx, statePending, id, version, mustJSON(p))
		if err == nil && a.woken != nil {
			a.woken()
		}
		if !errors.Is(err, state.ErrConflict) {
			return err
		}
	}
}

// maxApprover limits the name of an approver, in bytes, because the subject of a principal may have
// any length.
const maxApprover = 256

// cutApprover returns name as valid UTF-8, truncated to maxApprover bytes.
func cutApprover(name string) string {
	if len(name) > maxApprover {
		name = name[:maxApprover-len("…")]
		return strings.ToValidUTF8(name, "") + "…"
	}
	return strings.ToValidUTF8(name, "\uFFFD")
}

func answersText(answers []Answer) string {
	var texts []string
	for _, a := range answers {
		texts = append(texts, string(a))
	}
	return strings.Join(texts, ", ")
}

// Grants returns the grants, the oldest first.
func (a *Approvals) Grants(ctx context.Context) (all []Grant, err error) {
	now := time.Now()
	for e, err := range a.state.List(ctx, stateGrant) {
		if err != nil {
			return nil, fmt.Errorf("list grants: %w", err)
		}
		var g Grant
		if json.Unmarshal(e.Value, &g) != nil || !g.Expires.IsZero() && now.After(g.Expires) {
			_ = a.state.CompareAndSet(ctx, stateGrant, e.Key, e.Version, nil) // else the next time
			continue
		}
		all = append(all, g)
	}
	slices.SortStableFunc(all, func(x, y Grant) int { return x.Created.Compare(y.Created) })
	return all, nil
}

// Revoke removes a grant. The next request for the item asks again. The error is [ErrNoGrant] if there
// is none with the id.
func (a *Approvals) Revoke(ctx context.Context, id string) error {
	found, err := a.revoke(ctx, func(g *Grant) bool { return g.ID == id })
	if err == nil && found == 0 {
		err = fmt.Errorf("revoke %.64q: %w", id, ErrNoGrant)
	}
	return err
}

// revoke removes the grants that match.
func (a *Approvals) revoke(ctx context.Context, match func(*Grant) bool) (found int, err error) {
	for e, err := range a.state.List(ctx, stateGrant) {
		if err != nil {
			return found, fmt.Errorf("list grants: %w", err)
		}
		var g Grant
		if json.Unmarshal(e.Value, &g) != nil || !match(&g) {
			continue
		}
		err := a.state.CompareAndSet(ctx, stateGrant, e.Key, e.Version, nil)
		if err != nil && !errors.Is(err, state.ErrConflict) {
			return found, fmt.Errorf("revoke a grant: %w", err)
		}
		found++
	}
	return found, nil
}
