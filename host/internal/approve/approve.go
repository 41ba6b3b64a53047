package approve

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/internal/round"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// Approve is the stage that obtains the approval that the policy requires: it finds a grant, takes the
// answer that the call contains, or asks. A question for the client of the caller ends the call.
func (a *Approver) Approve(next call.Next) call.Next {
	return func(ctx context.Context, c *call.Call) (mcp.Result, error) {
		if c.Decision == nil || c.Decision.Do != policy.OutcomeAsk {
			return next(ctx, c)
		}
		p := &approving{Approver: a, c: c}
		req, asks, err := p.approve(ctx, c.Request)
		if err != nil || asks != nil {
			return asks, err
		}
		c.SetRequest(req)
		return next(ctx, c)
	}
}

// Mark adds the decision about a call to the state of a question of its server. The next round must
// present it.
func (a *Approver) Mark(c *call.Call, st *round.State) {
	if c.Decision == nil {
		return
	}
	if c.Approval.Binding == "" { // allowed without an approval
		p := &approving{Approver: a, c: c}
		c.Approval.Binding, _ = p.bind(c.Request) // else the next round is refused
	}
	st.Policy, st.Nonce = c.Approval.Binding, c.Approval.Nonce
}

// approve returns a request that is approved: by a grant, by an answer that it carries, or by an
// answer that it waits for. Otherwise it returns a question for the caller's client, or an error.
func (p *approving) approve(ctx context.Context, req *mcp.Request) (send *mcp.Request, asks mcp.Result, err error) {
	send, err = withCanonicalArguments(req)
	if err != nil {
		return nil, nil, err
	}
	p.c.Action.Arguments = call.Arguments(send)
	p.session = sessionOf(ctx, p.c.Action.Caller)
	if p.c.Approval.Binding, err = p.bind(req); err != nil {
		return nil, nil, err
	}
	if round.Continues(req) {
		if st, ok := p.openAnswer(req); ok {
			p.c.Approval.Begins = true
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
		p.c.Decision.Channel, p.c.Decision.Approver, p.c.Approval.Nonce = grant.Channel, grant.Approver, rand.Text()
		return send, nil, nil
	}
	asks, err = p.request(ctx, req)
	return send, asks, err
}

// request asks through the first channel that can ask.
func (p *approving) request(ctx context.Context, req *mcp.Request) (asks mcp.Result, err error) {
	given := p.channels.Load()
	channels := given.Order
	if len(channels) == 0 {
		channels = []policy.Channel{policy.ChannelClient}
	}
	if p.c.Decision.Channel != "" {
		channels = []policy.Channel{p.c.Decision.Channel}
	}
	why := "no channel can ask for it"
	for n, c := range channels {
		switch {
		case c == policy.ChannelClient &&
			len(shown(string(p.c.Action.Arguments)))+len(shown(string(p.meta))) > maxShown:
			why = fmt.Sprintf("its arguments and _meta are too long for a question, which shows %d bytes: "+
				"approve with \"patchbay gateway approve\", which needs the channel console", maxShown)
		case c == policy.ChannelClient && mayElicit(req):
			p.c.Decision.Channel = c
			return p.question(req), nil
		case c == policy.ChannelConsole, c == policy.ChannelWebhook && given.Webhook != nil:
			return nil, p.await(ctx, req, channels[n:])
		}
	}
	return nil, p.fail(hosterr.CodeApprovalNeeded, hosterr.Public{Err: errors.New(
		"the request needs the approval of a user, and " + why + because(p.c.Decision))})
}

// resume checks that a request which answers a question of its server was approved when it began, and
// that no other request contained the same answer.
func (p *approving) resume(ctx context.Context, req *mcp.Request) error {
	st, continues, err := p.c.Continues()
	switch {
	case err != nil:
		return err
	case !continues || st.Policy != p.c.Approval.Binding:
		return p.fail(hosterr.CodeDenied, hosterr.Public{Err: errors.New(
			"the policy or the definition has changed since the request was approved: start it again")})
	case st.Nonce == "": // it was allowed when it began; an answer must not be used twice either
		text, _, _ := round.StateOf(req)
		st.Nonce = digestOf(text)
	}
	p.c.Approval.Nonce = rand.Text()
	return p.consume(ctx, st.Nonce)
}
