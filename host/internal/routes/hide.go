package routes

import (
	"context"

	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A Stage is the stage of a call that applies the configuration of its item.
type Stage struct{}

// HideArgs removes arguments that the configuration hides from callers.
func (Stage) HideArgs(next call.Next) call.Next {
	return func(ctx context.Context, c *call.Call) (mcp.Result, error) {
		if c.Item != nil {
			c.SetRequest(withoutHidden(c.Request, c.Item))
		}
		return next(ctx, c)
	}
}

// withoutHidden returns the request without the arguments that the configuration hides.
func withoutHidden(req *mcp.Request, item *catalogue.Item) *mcp.Request {
	hidden := item.HiddenArguments()
	arguments, ok := req.Param("arguments")
	if !ok || len(hidden) == 0 {
		return req
	}
	for _, name := range hidden {
		arguments = jsonscan.Without(arguments, name)
	}
	inner := *req
	inner.Params = jsonscan.WithMember(req.Params, "arguments", arguments)
	return &inner
}
