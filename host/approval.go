package host

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/login"
	"github.com/patchbay-mcp/patchbay/host/internal/round"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/internal/forward"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/seal"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// stateUsed is the kind of the entries of approvals that were used.
const stateUsed = "approval used"

// approvalTime is how long a request waits for its approval, and how long an approval by the caller's
// client is valid.
const approvalTime = 5 * time.Minute

// approverOptions configures an [approver].
type approverOptions struct {
	state state.Store
	ring  *seal.KeyRing // seals the states of questions
	// process binds questions to this process; empty if the state outlives it.
	process string
	logger  *slog.Logger
	ctx     context.Context       // ends with the host
	run     func(f func())        // runs f in a goroutine that ends with ctx
	epoch   func() uint64         // of the policy
	changed func(e Event)         // a request begins to wait, or is decided
	record  func(r *event.Record) // records an answer of the operator
	held    *heldRequests         // counts the requests that wait
	// waits counts a request for a server that waits, until done is called.
	waits func(server string) (done func())
	// count counts the end of a request that needed an approval.
	count func(ctx context.Context, granted bool, err error)
}

// An approver obtains the approvals of requests: by grants, by asking the client of the caller, or by waiting for
// the operator. It is safe for concurrent use.
type approver struct {
	approverOptions
	asking  atomic.Pointer[asking]
	answers answerSignal
	granted sync.Map      // digests of sessions with grants
	pruned  atomic.Uint64 // approvals used
}

// An approving obtains the approval of one request.
type approving struct {
	*approver
	caller      *policy.Caller
	principal   string
	action      *policy.Action
	decision    policy.Decision
	identity    string // of the server; configurations with one state may have different servers with one name
	withoutMeta string // the member of `_meta` that the server does not receive
	call        string // identifies the events of the request
	original    *mcp.Request
	// earlier returns the earlier round of the request.
	earlier func(req *mcp.Request) (st round.State, continues bool, err error)
	// stillApplies reports whether the definition is still the same, and returns an error if the policy
	// now refuses the request.
	stillApplies func(ctx context.Context, req *mcp.Request) (bool, error)

	binding string          // identifies the request that is approved
	meta    json.RawMessage // the approved members of `_meta` that the server receives; nil if there are none
	session string          // the digest of the caller's session, empty without one
	nonce   string          // of an approved request
	begins  bool            // the request carries an answer for the host: the server has seen nothing of it
}

// approve returns a request that is approved: by a grant, by an answer that it carries, or by an
// answer that it waits for. Otherwise it returns a question for the caller's client, or an error.
func (p *approving) approve(ctx context.Context, req *mcp.Request) (send *mcp.Request, asks mcp.Result, err error) {
	send, err = withCanonicalArguments(req)
	if err != nil {
		return nil, nil, err
	}
	p.action.Arguments = argumentsOf(send)
	p.session = sessionOf(ctx, p.caller)
	if p.binding, err = p.bind(req); err != nil {
		return nil, nil, err
	}
	if round.Continues(req) {
		if st, ok := p.openAnswer(req); ok {
			p.begins = true
			send, err = p.answered(ctx, send, st)
			p.count(ctx, false, err)
			return send, asks, err
		}
		return send, nil, p.resume(ctx, req)
	}
	grant, err := p.findGrant(ctx)
	defer func() {
		if asks == nil { // else its answer is counted
			p.count(ctx, grant != nil, err)
		}
	}()
	switch {
	case err != nil:
		return nil, nil, p.fail(hosterr.CodeApprovalNeeded, err)
	case grant != nil:
		p.decision.Channel, p.decision.Approver, p.nonce = grant.Channel, grant.Approver, rand.Text()
		return send, nil, nil
	}
	asks, err = p.request(ctx, req)
	return send, asks, err
}

// request asks by the first channel that is there.
func (p *approving) request(ctx context.Context, req *mcp.Request) (asks mcp.Result, err error) {
	channels := p.asking.Load().channels
	if len(channels) == 0 {
		channels = []policy.Channel{policy.ChannelClient}
	}
	if p.decision.Channel != "" {
		channels = []policy.Channel{p.decision.Channel}
	}
	why := "no channel can ask for it"
	for n, c := range channels {
		switch {
		case c == policy.ChannelClient && len(shown(string(p.action.Arguments)))+len(shown(string(p.meta))) > maxShown:
			why = fmt.Sprintf("its arguments and _meta are too long for a question, which shows %d bytes: "+
				"approve with \"patchbay gateway approve\", which needs the channel console", maxShown)
		case c == policy.ChannelClient && mayElicit(req):
			p.decision.Channel = c
			return p.question(req), nil
		case c == policy.ChannelConsole, c == policy.ChannelWebhook && p.asking.Load().webhook != nil:
			return nil, p.await(ctx, req, channels[n:])
		}
	}
	return nil, p.fail(hosterr.CodeApprovalNeeded, hosterr.Public{Err: errors.New(
		"the request needs the approval of a user, and " + why + because(&p.decision))})
}

// resume checks that a request which answers a question of its server was approved when it began, and
// that no other request has given this answer.
func (p *approving) resume(ctx context.Context, req *mcp.Request) error {
	st, continues, err := p.earlier(req)
	switch {
	case err != nil:
		return err
	case !continues || st.Policy != p.binding:
		return p.fail(hosterr.CodeDenied, hosterr.Public{Err: errors.New(
			"the policy or the definition has changed since the request was approved: start it again")})
	case st.Nonce == "": // it was allowed when it began: each of its answers is for one request, too
		text, _, _ := round.StateOf(req)
		st.Nonce = login.DigestOf(text)
	}
	p.nonce = rand.Text()
	return p.consume(ctx, st.Nonce)
}

// mark adds to the state of a question of the server that the request was decided about.
func (p *approving) mark(st *round.State) {
	if p == nil {
		return
	}
	if p.binding == "" {
		p.binding, _ = p.bind(p.original) // else the next round is refused
	}
	st.Policy, st.Nonce = p.binding, p.nonce
}

// An unbegunError is the error of a request that answers a question of the host: the server has executed
// nothing of it before.
type unbegunError struct{ error }

// wrap marks the error of a request.
func (p *approving) wrap(err error) error {
	if err == nil || p == nil || !p.begins {
		return err
	}
	return unbegunError{err}
}

// bind returns the digest of all that an approval is for.
func (p *approving) bind(req *mcp.Request) (string, error) {
	h := sha256.New()
	add := func(b []byte) {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(b))))
		h.Write(b)
	}
	for _, text := range []string{p.caller.Key(), p.caller.Profile, p.action.Server, p.identity,
		p.action.Method, p.action.Target, strconv.FormatUint(p.epoch(), 10)} {
		add([]byte(text))
	}
	add(p.action.Digest[:])
	p.meta = p.sentMeta(req)
	add(p.meta)
	params := req.Params
	for _, key := range []string{"_meta", "inputResponses", "requestState"} {
		if jsonscan.Has(params, key) {
			params = jsonscan.Without(params, key)
		}
	}
	params, err := canonical(params)
	if err != nil {
		return "", err
	}
	add(params)
	return hex.EncodeToString(h.Sum(nil)), nil
}

// sentMeta returns the members of `_meta` that the server receives. It omits the trace context,
// whose IDs change with each round of a request.
func (p *approving) sentMeta(req *mcp.Request) json.RawMessage {
	meta, ok := req.Param("_meta")
	if !ok {
		return nil
	}
	sent := forward.Meta(meta, mustJSON(req.Capabilities()), p.withoutMeta)
	delete(sent, wire.MetaTraceParent)
	delete(sent, wire.MetaTraceState)
	if len(sent) == 0 {
		return nil
	}
	return mustJSON(sent)
}

// canonical returns a value in canonical form (RFC 8785), except that numbers are unchanged: large
// ones would lose digits.
func canonical(raw json.RawMessage) (json.RawMessage, error) {
	if len(raw) == 0 {
		return raw, nil
	}
	value := jsontext.Value(raw).Clone()
	err := value.Canonicalize(jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false))
	if err != nil {
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "invalid params: %v", err)
	}
	return json.RawMessage(value), nil
}

// withCanonicalArguments returns the request with its arguments as they are shown to the user.
func withCanonicalArguments(req *mcp.Request) (*mcp.Request, error) {
	arguments, err := canonical(argumentsOf(req))
	if err != nil || arguments == nil {
		return req, err
	}
	inner := *req
	if req.Method == methodToolsCall || req.Method == "prompts/get" {
		inner.Params = jsonscan.WithMember(req.Params, "arguments", arguments)
	} else if inner.Params, err = canonical(req.Params); err != nil {
		return nil, err
	}
	return &inner, nil
}

// consume makes sure that an approval is used once, in all processes that share the state.
func (p *approving) consume(ctx context.Context, nonce string) error {
	err := p.state.CompareAndSet(ctx, stateUsed, nonce, 0, mustJSON(time.Now().Add(round.TTL).Unix()))
	switch {
	case errors.Is(err, state.ErrConflict):
		return p.fail(hosterr.CodeDenied, hosterr.Public{Err: errors.New(
			"this approval was used before: it is for one request")})
	case err != nil:
		return p.fail(hosterr.CodeApprovalNeeded, err)
	}
	if p.pruned.Add(1)%pruneInterval == 0 {
		p.pruneUsed(ctx)
	}
	return nil
}

// pruneInterval is how many approvals are used before expired ones are removed.
const pruneInterval = 256

// pruneUsed removes used approvals that have expired.
func (p *approver) pruneUsed(ctx context.Context) {
	now := time.Now().Unix()
	for e, err := range p.state.List(ctx, stateUsed) {
		if err != nil {
			return
		}
		if expires, err := strconv.ParseInt(string(e.Value), 10, 64); err != nil || expires < now {
			_ = p.state.CompareAndSet(ctx, stateUsed, e.Key, e.Version, nil) // else the next time
		}
	}
}

func (p *approving) fail(code hosterr.Code, err error) error {
	return &hosterr.Error{Code: code, Server: p.action.Server, Err: err}
}

// because returns the rule and the reason as the end of a sentence.
func because(d *policy.Decision) (text string) {
	if d.Rule != "" {
		text = " (rule " + d.Rule + ")"
	}
	if d.Reason != "" {
		text += ": " + d.Reason
	}
	return text
}

// sessionOf returns the digest of the session of a request, empty without one.
func sessionOf(ctx context.Context, c *policy.Caller) string {
	if c.Session != "" {
		return sessionDigest(c.Session)
	}
	return sessionDigest(driver.SessionID(ctx))
}

// principalText returns who a caller is, for users; empty for the local user.
func principalText(c *policy.Caller) string {
	if c.Principal == nil {
		return ""
	}
	text := c.Principal.Subject
	if c.Principal.Issuer != "" {
		text += " (" + c.Principal.Issuer + ")"
	}
	return text
}
