package approve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/internal/round"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/visible"
)

// approvalTime limits the wait for an approval. An approval by the caller's client must arrive within
// this time, too.
const approvalTime = 5 * time.Minute

// approving obtains the approval of a call.
type approving struct {
	*Approver
	c       *call.Call
	meta    json.RawMessage // the approved members of `_meta` that the server receives; nil without any
	session string          // the digest of the caller's session; empty without a session
}

// consume makes sure that an approval is used only once, by all processes that share the state.
func (p *approving) consume(ctx context.Context, nonce string) error {
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

// errNotInTime refuses a request that was not approved within approvalTime.
var errNotInTime = hosterr.Public{Err: fmt.Errorf("the request was not approved within %v", approvalTime)}

func (p *approving) fail(code hosterr.Code, err error) error {
	return &hosterr.Error{Code: code, Server: p.c.Action.Server, Err: err}
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

// shown returns text with its hidden characters escaped.
func shown(text string) string { return visible.Escape(text, nil) }
