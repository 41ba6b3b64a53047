package host

import (
	"context"

	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// pipeline returns the stages of a call in the order in which they run. The order is part of the
// security model: ADR 30 explains it.
func (h *Host) pipeline() call.Next {
	return call.Chain(h.sendCall,
		h.observe.Call,     // records the end or the refusal of every call
		h.hideArguments,    // removes arguments that the configuration hides
		h.authorize.Decide, // allows, denies, hides or asks: first, so that no later refusal reveals a hidden item
		h.checkPins,        // refuses definitions that differ from the approved definitions
		h.checkLogin,       // requires the login that the server needs
		h.limits.Admit,     // rates, sizes and budget: before a user is asked
		h.approveCall,      // finds a grant, takes an answer, or asks
		h.limits.Queue,     // waits for a place at the server, and releases it
		h.limits.Spend,     // charges the budget
		h.observe.Intent,   // stores the intent; a Recorder that fails refuses the call
		h.task.Begin,       // declares or translates a task
		h.applySteps,       // treats the result with the steps below
	)
}

// steps returns the treatment of a result in the order in which it runs.
func (h *Host) steps() []call.Step {
	return []call.Step{
		h.result.Bytes,     // charges the size of the result
		h.task.Result,      // a result that created a task
		h.result.Questions, // seals the state of a result that asks the caller
		h.result.Map,       // gives items the names and URIs of the caller
		h.result.Validate,  // logs a result that does not match the output schema
		h.authorize.Result, // denies or redacts the result
		h.result.Limit,     // refuses a result over the limit, or keeps it and returns a link
		h.task.Keep,        // stores the result for a task of the host
	}
}

// applySteps runs the steps on the result of the server.
func (h *Host) applySteps(next call.Next) call.Next {
	steps := h.steps()
	return func(ctx context.Context, c *call.Call) (mcp.Result, error) {
		res, err := next(ctx, c)
		for _, step := range steps {
			res, err = step(ctx, c, res, err)
		}
		return res, err
	}
}
