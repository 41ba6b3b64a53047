package host

import "github.com/patchbay-mcp/patchbay/host/internal/call"

// pipeline returns the stages of a call in the order in which they run. The order is part of the
// security model: ADR 30 explains it.
func (h *Host) pipeline() call.Next {
	return call.Chain(h.servers.Send,
		h.observe.Call,           // records the end or the refusal of every call
		h.routes.HideArgs,        // removes arguments that the configuration hides
		h.authorize.Decide,       // allows, denies, hides or asks: before refusals that could reveal a hidden item
		h.pins.Check,             // refuses definitions that differ from the approved definitions
		h.login.Check,            // requires the login that the server needs
		h.limits.Admit,           // rates, sizes and budget: before a user is asked
		h.approve.Approve,        // finds a grant, takes an answer, or asks
		h.limits.Queue,           // waits for a place at the server, and releases it
		h.limits.Spend,           // charges the budget
		h.observe.Intent,         // stores the intent; a Recorder that fails refuses the call
		h.task.Begin,             // declares or translates a task
		call.Apply(h.steps()...), // treats the result with the steps below
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
