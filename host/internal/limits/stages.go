package limits

import (
	"context"

	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/internal/fold"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A Pool contains the limits of the server of a call. The [call.Call.Pool] of each call must implement it.
type Pool interface {
	Limits() *Server
	// Queue returns the queue of the server, or of the process that serves the caller.
	Queue() *Queue
	Schema(item *catalogue.Item) *catalogue.Schema
	// RequestError returns the error of a request that was not sent.
	RequestError(ctx context.Context, err error) error
}

// requestOf returns the request that limits apply to.
func requestOf(c *call.Call) Request {
	return Request{Principal: c.View.Principal(), Server: c.Pool.(Pool).Limits(), Kind: c.Kind, Target: c.Target,
		MCP: c.Request}
}

// Admit checks the limits of the caller and the names of the arguments.
func (l *Limits) Admit(next call.Next) call.Next {
	return func(ctx context.Context, c *call.Call) (mcp.Result, error) {
		r := requestOf(c)
		err := l.Check(ctx, &r)
		if err == nil {
			err = checkNames(c)
		}
		if err != nil {
			return nil, err
		}
		return next(ctx, c)
	}
}

// checkNames refuses arguments whose names the server could confuse with other names: the policy
// would decide about one argument, and the server would use the other.
func checkNames(c *call.Call) error {
	arguments, ok := c.Request.Param("arguments")
	if !ok || c.Kind != policy.ActionCall && c.Kind != policy.ActionGet {
		return nil
	}
	names, hidden := &fold.Names{}, []string(nil)
	if c.Item != nil {
		hidden = c.Item.HiddenArguments()
		if known := c.Pool.(Pool).Schema(c.Item).Names; known != nil {
			names = known
		}
	}
	err := names.Check(arguments)
	if err == nil && len(hidden) > 0 {
		err = fold.Named(hidden).Check(arguments)
	}
	if err != nil {
		return mcp.Errorf(mcp.CodeInvalidParams, "invalid params.arguments: %v", err)
	}
	return nil
}

// Queue waits until it is the turn of the call at its server. The answer to a question of a call that waits at
// the server must not wait: the server may serve no other request before it. Neither must a call that cannot be
// sent again because its approval was used. Calls that the host serves itself need no turn.
func (l *Limits) Queue(next call.Next) call.Next {
	return func(ctx context.Context, c *call.Call) (mcp.Result, error) {
		if c.Local != nil {
			return next(ctx, c)
		}
		p, principal := c.Pool.(Pool), c.View.Principal()
		q := p.Queue()
		if st, ok, err := c.Continues(); ok && err == nil && (st.Instance != "" || st.Nonce != "") {
			q.Force(principal)
		} else if err := q.Enter(ctx, principal); err != nil {
			return nil, p.RequestError(ctx, err)
		}
		defer q.Leave(principal)
		return next(ctx, c)
	}
}

// Spend charges the request to the budget of the caller. A step charges the result.
func (l *Limits) Spend(next call.Next) call.Next {
	return func(ctx context.Context, c *call.Call) (mcp.Result, error) {
		r := requestOf(c)
		if err := l.Pay(ctx, &r); err != nil {
			return nil, err
		}
		return next(ctx, c)
	}
}
