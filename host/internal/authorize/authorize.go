// Package authorize asks the policy about calls, results, questions, and items of lists, and applies its
// decisions: it refuses, hides, and redacts.
package authorize

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/observe"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// Options configures an [Authorizer].
type Options struct {
	Recent *observe.Recent // the servers that callers used recently
	// Count counts a decision of a kind.
	Count func(about policy.ActionKind, d *policy.Decision)
	// Describe completes the record of a call with an action.
	Describe func(c *call.Call)
	// Context ends with the host. Lists are decided with it, because no request waits for them alone.
	Context context.Context
}

// An Authorizer applies the policy of a host. It is safe for concurrent use.
type Authorizer struct {
	opts   Options
	policy atomic.Pointer[policy.Policy]
}

// A View is the caller's side of a call, as far as decisions depend on it.
type View interface {
	call.View
	// Decisions returns the cache of the view.
	Decisions() *Cache
	// Concerned returns the action that the result of a call is about: for a call about a task, the action
	// of the call that created the task. t may be nil.
	Concerned(ctx context.Context, a *policy.Action, t *call.Task) *policy.Action
	// IsUnchanged reports whether a name still belongs to the same definition of the same server.
	IsUnchanged(ctx context.Context, item *catalogue.Item) bool
}

// New returns an Authorizer without a policy.
func New(o Options) *Authorizer { return &Authorizer{opts: o} }

// Use replaces the policy; nil removes it. Calls that were sent before keep their decision.
func (z *Authorizer) Use(p policy.Policy) {
	if p == nil {
		z.policy.Store(nil)
		return
	}
	z.policy.Store(&p)
}

// Policy returns the policy, or nil.
func (z *Authorizer) Policy() policy.Policy {
	if p := z.policy.Load(); p != nil {
		return *p
	}
	return nil
}

// Epoch returns the epoch of the policy, or 0 without a policy.
func (z *Authorizer) Epoch() uint64 {
	if p := z.Policy(); p != nil {
		return p.Epoch()
	}
	return 0
}

// Decide asks the policy about a call, and refuses a call that the policy denies or hides.
func (z *Authorizer) Decide(next call.Next) call.Next {
	return func(ctx context.Context, c *call.Call) (mcp.Result, error) {
		p := z.Policy()
		if c.Own {
			p = nil
		}
		if p == nil && c.Record == nil {
			return next(ctx, c)
		}
		c.Action = actionOf(c)
		z.opts.Describe(c)
		if p == nil {
			return next(ctx, c)
		}
		c.Policy, c.Server = p, c.Pool.Entry()
		d := z.Ask(ctx, c.View.(View), p, c.Request, c.Action)
		c.Decision = &d
		z.opts.Count(c.Kind, &d)
		if IsRefusal(c.Decision) || c.Kind == policy.ActionEvent && d.Do != policy.OutcomeAllow { // nobody can be asked
			return nil, Denied(c, c.Request, c.Decision)
		}
		return next(ctx, c)
	}
}

// Again decides about a call again after a wait for its approval. It returns false if the definition
// changed, and an error if the policy now refuses the call.
func (z *Authorizer) Again(ctx context.Context, c *call.Call, req *mcp.Request) (bool, error) {
	v := c.View.(View)
	if c.Item != nil && !v.IsUnchanged(ctx, c.Item) {
		return false, nil
	}
	again := *c.Action
	d := z.Ask(ctx, v, z.Policy(), req, &again)
	if IsRefusal(&d) {
		return true, Denied(c, req, &d)
	}
	return true, nil
}

// actionOf returns the action of a call for the policy.
func actionOf(c *call.Call) *policy.Action {
	a := &policy.Action{Kind: c.Kind, Method: c.Request.Method, Caller: c.View.Caller(), Server: c.Pool.Name(),
		Target: c.Target, Definition: c.Definition()}
	if c.Item != nil {
		a.Digest = c.Item.Digest
	}
	a.Arguments = call.Arguments(c.Request)
	return a
}

// Ask returns the decision of a policy. It sets the members of the action that the policy needs. req may
// be nil.
func (z *Authorizer) Ask(
	ctx context.Context, v View, p policy.Policy, req *mcp.Request, a *policy.Action,
) policy.Decision {
	needs, key := p.Needs(a.Kind), keyOf(a.Kind, a)
	epoch := p.Epoch()
	if needs == 0 {
		if d, ok := v.Decisions().get(&key, epoch); ok {
			return d
		}
	}
	if needs&policy.FieldClient != 0 && req != nil {
		a.Client = req.ClientInfo()
	}
	if needs&policy.FieldTime != 0 {
		a.Time = time.Now()
	}
	if needs&policy.FieldRecent != 0 {
		a.Recent = z.opts.Recent.Servers(v.Principal())
	}
	d := p.Decide(ctx, a)
	if needs == 0 && !d.Undecided {
		v.Decisions().put(&key, epoch, d)
	}
	return d
}

// Visible reports whether a policy shows an item in lists of a caller.
func (z *Authorizer) Visible(p policy.Policy, c *policy.Caller, item *catalogue.Item) bool {
	d := p.Decide(z.opts.Context, &policy.Action{Kind: policy.ActionList, Method: item.Kind.Method(), Caller: c,
		Server: item.Server, Target: item.Original, Definition: item.Raw, Digest: item.Digest})
	return !IsRefusal(&d)
}

// IsRefusal reports whether a decision denies or hides.
func IsRefusal(d *policy.Decision) bool {
	return d.Do != policy.OutcomeAllow && d.Do != policy.OutcomeAsk
}

// Denied returns the error of a decision that refuses a request of a call.
func Denied(c *call.Call, req *mcp.Request, d *policy.Decision) error {
	if d.Do != policy.OutcomeHide {
		return &hosterr.Error{Code: hosterr.CodeDenied, Server: c.Pool.Name(), Err: Reason(d)}
	}
	switch { // as if the item did not exist
	case c.Kind == policy.ActionRead:
		return mcp.NotFound(jsonscan.GetString(req.Params, "uri"))
	case c.Item != nil:
		return c.Item.Kind.Unknown(c.Item.Public)
	}
	return mcp.Errorf(mcp.CodeMethodNotFound, "method not found: %s", req.Method)
}

// Reason returns the reason of a refusal for the caller.
func Reason(d *policy.Decision) error {
	text := "denied"
	if d.Rule != "" {
		text += " by rule " + d.Rule
	}
	if d.Reason != "" {
		text += ": " + d.Reason
	}
	return hosterr.Public{Err: reason{text, d.Undecided}}
}

// ErrUndecided is the reason of a refusal by [policy.Decision].Undecided.
var ErrUndecided = errors.New("the policy could not decide")

type reason struct {
	text        string
	isUndecided bool
}

func (r reason) Error() string { return r.text }

func (r reason) Is(target error) bool { return r.isUndecided && target == ErrUndecided }

// minPause and maxPause limit the pauses of Await: less than the interval of heartbeats of a stream.
const minPause, maxPause = time.Second, 10 * time.Second

// Await calls decide again, after a pause, while its error is ErrUndecided, until ctx ends. It calls pending
// before each pause, and returns the error of either function.
func Await(ctx context.Context, decide func() error, pending func(err error) error) error {
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		err := decide()
		if !errors.Is(err, ErrUndecided) || ctx.Err() != nil {
			return err
		}
		if err := pending(err); err != nil {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}
