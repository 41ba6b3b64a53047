package approve

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/round"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// approvalTime is how long a request waits for its approval, and how long an approval by the caller's
// client is valid.
const approvalTime = 5 * time.Minute

// A Request obtains the approval of one request.
type Request struct {
	*Approver
	Caller    *policy.Caller
	Principal string
	Action    *policy.Action
	Decision  policy.Decision
	// Identity identifies the server: configurations that share a state may contain different servers
	// with the same name.
	Identity    string
	WithoutMeta string       // the member of `_meta` that the server does not receive
	Call        string       // identifies the events of the request
	Original    *mcp.Request // as it arrived
	// Earlier returns the earlier round of the request.
	Earlier func(req *mcp.Request) (st round.State, continues bool, err error)
	// StillApplies reports whether the definition is still the same, and returns an error if the policy
	// now refuses the request.
	StillApplies func(ctx context.Context, req *mcp.Request) (bool, error)

	binding string          // identifies the request that is approved
	meta    json.RawMessage // the approved members of `_meta` that the server receives; nil without any
	session string          // the digest of the caller's session; empty without a session
	nonce   string          // of an approved request
	begins  bool            // the request contains an answer for the host: the server never saw it
}

// Approve returns a request that is approved: by a grant, by an answer that it carries, or by an
// answer that it waits for. Otherwise it returns a question for the caller's client, or an error.
func (p *Request) Approve(ctx context.Context, req *mcp.Request) (send *mcp.Request, asks mcp.Result, err error) {
	send, err = p.withCanonicalArguments(req)
	if err != nil {
		return nil, nil, err
	}
	p.Action.Arguments = p.Arguments(send)
	p.session = sessionOf(ctx, p.Caller)
	if p.binding, err = p.bind(req); err != nil {
		return nil, nil, err
	}
	if round.Continues(req) {
		if st, ok := p.openAnswer(req); ok {
			p.begins = true
			send, err = p.answered(ctx, send, st)
			p.Count(ctx, false, err)
			return send, asks, err
		}
		return send, nil, p.resume(ctx, req)
	}
	grant, err := p.findGrant(ctx)
	defer func() {
		if asks == nil { // else its answer is counted
			p.Count(ctx, grant != nil, err)
		}
	}()
	switch {
	case err != nil:
		return nil, nil, p.fail(hosterr.CodeApprovalNeeded, err)
	case grant != nil:
		p.Decision.Channel, p.Decision.Approver, p.nonce = grant.Channel, grant.Approver, rand.Text()
		return send, nil, nil
	}
	asks, err = p.request(ctx, req)
	return send, asks, err
}

// request asks by the first channel that is there.
func (p *Request) request(ctx context.Context, req *mcp.Request) (asks mcp.Result, err error) {
	given := p.channels.Load()
	channels := given.Order
	if len(channels) == 0 {
		channels = []policy.Channel{policy.ChannelClient}
	}
	if p.Decision.Channel != "" {
		channels = []policy.Channel{p.Decision.Channel}
	}
	why := "no channel can ask for it"
	for n, c := range channels {
		switch {
		case c == policy.ChannelClient && len(shown(string(p.Action.Arguments)))+len(shown(string(p.meta))) > maxShown:
			why = fmt.Sprintf("its arguments and _meta are too long for a question, which shows %d bytes: "+
				"approve with \"patchbay gateway approve\", which needs the channel console", maxShown)
		case c == policy.ChannelClient && mayElicit(req):
			p.Decision.Channel = c
			return p.question(req), nil
		case c == policy.ChannelConsole, c == policy.ChannelWebhook && given.Webhook != nil:
			return nil, p.await(ctx, req, channels[n:])
		}
	}
	return nil, p.fail(hosterr.CodeApprovalNeeded, hosterr.Public{Err: errors.New(
		"the request needs the approval of a user, and " + why + because(&p.Decision))})
}

// resume checks that a request which answers a question of its server was approved when it began, and
// that no other request has given this answer.
func (p *Request) resume(ctx context.Context, req *mcp.Request) error {
	st, continues, err := p.Earlier(req)
	switch {
	case err != nil:
		return err
	case !continues || st.Policy != p.binding:
		return p.fail(hosterr.CodeDenied, hosterr.Public{Err: errors.New(
			"the policy or the definition has changed since the request was approved: start it again")})
	case st.Nonce == "": // it was allowed when it began: each of its answers is for one request, too
		text, _, _ := round.StateOf(req)
		st.Nonce = digestOf(text)
	}
	p.nonce = rand.Text()
	return p.consume(ctx, st.Nonce)
}

// Mark adds to the state of a question of the server that the request was decided about.
func (p *Request) Mark(st *round.State) {
	if p == nil {
		return
	}
	if p.binding == "" {
		p.binding, _ = p.bind(p.Original) // else the next round is refused
	}
	st.Policy, st.Nonce = p.binding, p.nonce
}

// A NotSentError is the error of a request that answers a question of the host: the server never
// received any part of it.
type NotSentError struct{ Err error }

func (e *NotSentError) Error() string { return e.Err.Error() }

// Wrap marks the error of a request.
func (p *Request) Wrap(err error) error {
	if err == nil || p == nil || !p.begins {
		return err
	}
	return &NotSentError{err}
}

// consume makes sure that an approval is used once, in all processes that share the state.
func (p *Request) consume(ctx context.Context, nonce string) error {
	err := p.State.CompareAndSet(ctx, stateUsed, nonce, 0, mustJSON(time.Now().Add(round.TTL).Unix()))
	switch {
	case errors.Is(err, state.ErrConflict):
		return p.fail(hosterr.CodeDenied, hosterr.Public{Err: errors.New(
			"this approval was used before: it is for one request")})
	case err != nil:
		return p.fail(hosterr.CodeApprovalNeeded, err)
	}
	if p.used.Add(1)%pruneInterval == 0 {
		p.pruneUsed(ctx)
	}
	return nil
}

func (p *Request) fail(code hosterr.Code, err error) error {
	return &hosterr.Error{Code: code, Server: p.Action.Server, Err: err}
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
