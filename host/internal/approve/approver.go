// Package approve obtains the approvals that a policy requires before a call is sent: a grant, an
// answer of the caller's own client, or an answer of the operator or a webhook.
package approve

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/host/approval"
	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/internal/seal"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// stateUsed is the kind of the entries that contain used approvals. The key is the nonce, the value
// the time at which the entry may be removed, in seconds since 1970.
const stateUsed = "approval used"

// pruneInterval is how many approvals are used before expired entries are removed.
const pruneInterval = 256

// Options configures an [Approver].
type Options struct {
	State state.Store
	Ring  *seal.KeyRing // seals the states of questions
	// Process binds questions to this process. It is empty if the state outlives the process.
	Process string
	Logger  *slog.Logger
	Context context.Context       // ends with the host
	Run     func(f func())        // runs f in a goroutine that ends with Context
	Epoch   func() uint64         // of the policy
	Changed func(c Change)        // a request begins to wait, or is decided
	Record  func(r *event.Record) // records an answer of the operator
	// Waits counts a waiting request of a server until done is called.
	Waits func(server string) (done func())
	// Again decides about a call again after a wait. It returns false if the definition changed, and an error
	// if the policy now refuses the call.
	Again func(ctx context.Context, c *call.Call, req *mcp.Request) (bool, error)
	// Count counts the end of a request that needed an approval.
	Count func(ctx context.Context, granted bool, err error)
}

// A Change is the beginning or the end of a request's wait for the operator.
type Change struct {
	Server, Pending string // Pending is the ID of the request
	Decided         bool
	Answer          approval.Answer // empty if the wait ended without an answer
}

// Channels are the ways in which an approver asks.
type Channels struct {
	Order       []policy.Channel
	Webhook     func(ctx context.Context, p *approval.Pending) (approval.Answer, error)
	WebhookName string
}

// An Approver obtains the approvals of requests. It is safe for concurrent use.
type Approver struct {
	Options
	channels atomic.Pointer[Channels]
	waiting  waiting
	granted  sync.Map      // the digests of sessions at this process that have used grants
	used     atomic.Uint64 // counts the used approvals
}

// New returns an approver without channels; see [Approver.Use].
func New(o Options) *Approver {
	a := &Approver{Options: o}
	a.channels.Store(&Channels{})
	return a
}

// Use replaces the channels.
func (a *Approver) Use(c Channels) { a.channels.Store(&c) }

// Approvals returns the requests that wait, and the grants.
func (a *Approver) Approvals() *approval.Approvals { return approval.New(a.State, a.waiting.wake) }

// Recheck makes all waiting requests look for an answer in the state, and check whether the policy is
// still the same.
func (a *Approver) Recheck() { a.waiting.wake() }

// End refuses the requests that wait for the operator, and later requests that would wait.
func (a *Approver) End() { a.waiting.stop() }

// Hold counts a request of a principal that waits for a user. It returns false if too many wait. The
// caller must call release when the wait ends.
func (a *Approver) Hold(principal string) (release func(), ok bool) {
	if !a.waiting.add(principal) {
		return nil, false
	}
	return func() { a.waiting.remove(principal) }, true
}

// EndSession removes the grants for a session that has ended.
func (a *Approver) EndSession(session string) {
	digest := sessionDigest(session)
	if _, ok := a.granted.LoadAndDelete(digest); !ok {
		return
	}
	_, err := a.Approvals().RevokeFunc(a.Context, func(g *approval.Grant) bool { return g.Session == digest })
	if err != nil {
		a.Logger.Warn("host: grants of a session not removed: they expire", "error", err)
	}
}

// LeaveSession forgets a session that may continue at other processes. Its grants stay.
func (a *Approver) LeaveSession(session string) { a.granted.Delete(sessionDigest(session)) }

// pruneUsed removes used approvals that have expired.
func (a *Approver) pruneUsed(ctx context.Context) {
	now := time.Now().Unix()
	for e, err := range a.State.List(ctx, stateUsed) {
		if err != nil {
			return
		}
		if expires, err := strconv.ParseInt(string(e.Value), 10, 64); err != nil || expires < now {
			_ = a.State.CompareAndSet(ctx, stateUsed, e.Key, e.Version, nil) // else the next time
		}
	}
}

// sessionDigest returns the text that identifies a session in the state, because its ID is a secret. It
// is empty without a session.
func sessionDigest(session string) string {
	if session == "" {
		return ""
	}
	return digestOf("session " + session)
}

func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// mustJSON returns the JSON of a value of this package.
func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // this package uses no such type
	}
	return b
}
