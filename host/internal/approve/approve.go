package approve

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/round"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

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

// request asks through the first channel that can ask.
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
// that no other request contained the same answer.
func (p *Request) resume(ctx context.Context, req *mcp.Request) error {
	st, continues, err := p.Earlier(req)
	switch {
	case err != nil:
		return err
	case !continues || st.Policy != p.binding:
		return p.fail(hosterr.CodeDenied, hosterr.Public{Err: errors.New(
			"the policy or the definition has changed since the request was approved: start it again")})
	case st.Nonce == "": // it was allowed when it began; an answer must not be used twice either
		text, _, _ := round.StateOf(req)
		st.Nonce = digestOf(text)
	}
	p.nonce = rand.Text()
	return p.consume(ctx, st.Nonce)
}
