package host

import (
	"context"
	"encoding/json"

	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// hideArguments removes arguments that the configuration hides from callers.
func (h *Host) hideArguments(next call.Next) call.Next {
	return func(ctx context.Context, c *call.Call) (mcp.Result, error) {
		if c.Item != nil {
			c.Request = withoutHidden(c.Request, c.Item)
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

// mustJSON returns the JSON of a value of this package.
func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // no such type is used
	}
	return b
}
