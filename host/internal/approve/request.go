package approve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/round"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/visible"
)

// approvalTime limits the wait for an approval. An approval by the caller's client must arrive within
// this time, too.
const approvalTime = 5 * time.Minute

// A Request obtains the approval of a request.
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

// consume makes sure that an approval is used only once, by all processes that share the state.
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

// errNotInTime refuses a request that was not approved within approvalTime.
var errNotInTime = hosterr.Public{Err: fmt.Errorf("the request was not approved within %v", approvalTime)}

// A NotSentError is the error of a request that answers a question of the host: the server never
// received any part of it.
type NotSentError struct{ Err error }

// Error returns the text of Err.
func (e *NotSentError) Error() string { return e.Err.Error() }

// Wrap returns the error of the request, as a [NotSentError] if the request answers the host.
func (p *Request) Wrap(err error) error {
	if err == nil || p == nil || !p.begins {
		return err
	}
	return &NotSentError{err}
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

// shown returns text with its hidden characters escaped.
func shown(text string) string { return visible.Escape(text, nil) }
